//! Whether two runs are the same run: last checkpoints and step records, bit for bit.

use std::path::Path;

use anyhow::{Context, ensure};
use serde::Serialize;
use serde_json::Value;

use super::super::tensor_file::TensorFile;
use super::super::{TrainState, layout, load};
use crate::report::jsonl::METRICS;

/// Keys of a step record that depend on the clock or on where a session began; others must be equal.
const OF_THE_SESSION: [&str; 5] =
    ["tokens_per_s", "gflop_per_s", "data_wait_share", "session_s", "resumed_from"];

/// What was compared, and the first thing that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Compared {
    /// Parameter tensors.
    pub(super) parameters: usize,
    /// Moment tensors, first and second.
    pub(super) moments: usize,
    /// Step records.
    pub(super) records: usize,
    #[serde(skip)]
    pub(super) first_difference: Option<String>,
}

/// Compares two run folders after step `end`. Records come first: they tell the step at which two runs part.
///
/// # Errors
/// A checkpoint or records that cannot be read.
pub(super) fn runs(straight: &Path, resumed: &Path, end: u64) -> anyhow::Result<Compared> {
    let left = load(&layout::folder(straight, end))?;
    let right = load(&layout::folder(resumed, end))?;
    let (left_records, right_records) = (records(straight, end)?, records(resumed, end)?);
    let difference = first_record(&left_records, &right_records)
        .or_else(|| first_state(&left.state, &right.state))
        .map_or_else(|| first_tensor(&left.model, &right.model), |found| Ok(Some(found)))?;
    let difference = match difference {
        None => first_tensor(&left.optimizer, &right.optimizer)?,
        found => found,
    };
    Ok(Compared {
        parameters: left.model.names().len(),
        moments: left.optimizer.names().len(),
        records: left_records.len(),
        first_difference: difference,
    })
}

/// The records of steps 1 to `end`, without what depends on the clock.
fn records(run_dir: &Path, end: u64) -> anyhow::Result<Vec<Value>> {
    let path = run_dir.join(METRICS);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let records = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<Vec<Value>, _>>()
        .with_context(|| format!("{} cannot be read", path.display()))?;
    ensure!(
        records.len() as u64 == end && (1..).zip(&records).all(|(step, record)| record["step"] == step),
        "{} has not exactly one record of each step from 1 to {end}",
        path.display()
    );
    Ok(records.into_iter().map(without_clock).collect())
}

fn without_clock(mut record: Value) -> Value {
    if let Some(record) = record.as_object_mut() {
        for key in OF_THE_SESSION {
            record.remove(key);
        }
        if let Some(eval) = record.get_mut("eval").and_then(Value::as_object_mut) {
            eval.remove("seconds");
        }
    }
    record
}

fn first_record(straight: &[Value], resumed: &[Value]) -> Option<String> {
    let (left, right) = straight.iter().zip(resumed).find(|(left, right)| left != right)?;
    let step = &left["step"];
    let key = left
        .as_object()?
        .keys()
        .chain(right.as_object()?.keys())
        .find(|key| left.get(*key) != right.get(*key))?;
    let show = |record: &Value| record.get(key).map_or_else(|| "nothing".into(), Value::to_string);
    Some(format!(
        "`{key}` of step {step} is {} in the straight run, {} in the resumed one",
        show(left),
        show(right)
    ))
}

fn first_state(straight: &TrainState, resumed: &TrainState) -> Option<String> {
    let counters = |state: &TrainState| {
        [
            ("step", Value::from(state.step)),
            ("updates", state.updates.into()),
            ("tokens_seen", state.tokens_seen.into()),
            ("target_tokens", state.target_tokens.into()),
            ("skipped_steps", state.skipped_steps.into()),
            ("data position", state.data.clone()),
            ("model configuration", state.model.clone()),
            ("tokenizer", state.tokenizer_fingerprint.clone().into()),
        ]
    };
    let differs = |((name, left), (_, right)): ((&'static str, Value), (_, Value))| {
        (left != right)
            .then(|| format!("the {name} is {left} after the straight run, {right} after the resumed one"))
    };
    counters(straight).into_iter().zip(counters(resumed)).find_map(differs)
}

fn first_tensor(straight: &TensorFile, resumed: &TensorFile) -> anyhow::Result<Option<String>> {
    let (names, others) = (straight.names(), resumed.names());
    if names != others {
        return Ok(Some(format!("the tensors are {names:?} and {others:?}")));
    }
    for name in names {
        let (left, right) = (straight.read_f32(&name)?, resumed.read_f32(&name)?);
        let unequal = left.iter().zip(&right).position(|(left, right)| left.to_bits() != right.to_bits());
        if let Some(at) = unequal {
            return Ok(Some(format!(
                "element {at} of `{name}` is {:e} after the straight run, {:e} after the resumed one",
                left[at], right[at]
            )));
        }
        if left.len() != right.len() {
            return Ok(Some(format!("`{name}` has {} and {} elements", left.len(), right.len())));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::tests::{Model, state};
    use super::super::super::{Contents, save};
    use super::*;

    /// Two run folders that end at step 2; `change` may alter the second one's model, state and records.
    fn check(change: impl FnOnce(&Model, &mut TrainState, &mut Vec<Value>)) -> Compared {
        let folder = tempfile::tempdir().unwrap();
        let (straight, resumed) = (folder.path().join("a"), folder.path().join("b"));
        let record =
            |step: u64| json!({"step": step, "loss": 1.5, "lr": 0.1 / step as f64, "session_s": 1.0});
        write(&straight, &Model::new(1), &state(2), &[record(1), record(2)]);
        let (model, mut other) = (Model::new(1), state(2));
        let mut records = vec![record(1), record(2)];
        records[1]["session_s"] = 9.0.into();
        records[1]["resumed_from"] = 1.into();
        change(&model, &mut other, &mut records);
        write(&resumed, &model, &other, &records);
        runs(&straight, &resumed, 2).unwrap()
    }

    fn write(run_dir: &Path, model: &Model, state: &TrainState, records: &[Value]) {
        let Model { parameters, m, v } = model;
        save(run_dir, &Contents { state, parameters, m, v, files: &[] }).unwrap();
        let lines: Vec<String> = records.iter().map(|record| format!("{record}\n")).collect();
        std::fs::write(run_dir.join(METRICS), lines.concat()).unwrap();
    }

    /// The last bit of one element turned over.
    fn flip(tensor: &candle_core::Tensor, at: usize) {
        let mut values = atpm_core::read_f32(tensor).unwrap();
        values[at] = f32::from_bits(values[at].to_bits() ^ 1);
        atpm_core::overwrite_f32(tensor, &values).unwrap();
    }

    #[test]
    fn equal_runs_are_identical_whatever_the_clock_says() {
        let compared = check(|_, _, _| {});
        assert_eq!(compared, Compared { parameters: 4, moments: 8, records: 2, first_difference: None });
    }

    #[test]
    fn one_bit_anywhere_is_found_and_named() {
        type Change = fn(&Model, &mut TrainState, &mut Vec<Value>);
        let table: [(Change, &str); 6] = [
            (|model, _, _| flip(&model.parameters[1].value, 5), "element 5 of `blocks.0.mixer.transport.c`"),
            (|model, _, _| flip(&model.m[2], 7), "element 7 of `m.norm.weight`"),
            (|model, _, _| flip(&model.v[3], 0), "element 0 of `v.scale`"),
            (|_, state, _| state.updates += 1, "the updates is 1 after the straight run, 2"),
            (|_, state, _| state.data["lanes"][1] = 9.into(), "the data position is"),
            (
                |_, _, records| records[1]["loss"] = 1.500_000_000_000_000_2.into(),
                "`loss` of step 2 is 1.5 in the straight run, 1.5000000000000002",
            ),
        ];
        for (change, expected) in table {
            let difference = check(change).first_difference.unwrap();
            assert!(difference.contains(expected), "{difference}");
        }
    }
}
