//! One step on batches made by hand.

use atpm_data::{Batch, IGNORE};
use candle_core::{Device, Tensor};

use super::trainer::Trainer;
use crate::report::metrics::Skip;
use crate::run::config::Run;

const VOCAB: u32 = 64;
const TOKENS: usize = 12;

const CONFIG: &str = "
[model]
vocab = 64
d_model = 16
layers = 1
heads = 2
address = 8
key = 4
value = 4
rank = 2
mlp = 16
[data]
train = \"unused\"
[train]
max_skipped = 2
[schedule]
warmup = 0
";

fn trainer(overrides: &[&str]) -> Trainer {
    let run = Run::from_toml(CONFIG, "test").unwrap().with(overrides).unwrap();
    Trainer::new(&run, &Device::Cpu).unwrap()
}

/// Rows of ids that `seed` decides; every seventh target does not count.
fn batch(seed: u32, rows: usize) -> Batch {
    let ids: Vec<u32> = (0..(rows * TOKENS) as u32)
        .map(|i| (seed.wrapping_mul(7919).wrapping_add(i).wrapping_mul(2_654_435_761) >> 16) % VOCAB)
        .collect();
    let target = |(i, &id): (usize, &u32)| {
        if (i + seed as usize).is_multiple_of(7) { IGNORE } else { (id + 1) % VOCAB }
    };
    Batch {
        rows,
        tokens: TOKENS,
        targets: ids.iter().enumerate().map(target).collect(),
        starts: (0..rows).map(|row| if row % 2 == 0 { vec![0, 5] } else { vec![] }).collect(),
        positions: vec![0; ids.len()],
        target_bytes: 1,
        ids,
    }
}

fn without_targets(mut batch: Batch) -> Batch {
    batch.targets.fill(IGNORE);
    batch
}

fn stacked(batches: &[Batch]) -> Batch {
    let mut all = batches[0].clone();
    for batch in &batches[1..] {
        all.rows += batch.rows;
        all.ids.extend(&batch.ids);
        all.targets.extend(&batch.targets);
        all.starts.extend(batch.starts.clone());
        all.positions.extend(&batch.positions);
    }
    all
}

fn values<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> Vec<f32> {
    tensors.into_iter().flat_map(|tensor| atpm_core::read_f32(tensor).unwrap()).collect()
}

fn parameters(trainer: &Trainer) -> Vec<f32> {
    values(trainer.parameters().iter().map(|parameter| &parameter.value))
}

fn gradients(trainer: &Trainer) -> Vec<f32> {
    values(trainer.parameters().iter().map(|parameter| &parameter.gradient))
}

/// Everything that an update changes.
fn state(trainer: &Trainer) -> Vec<f32> {
    let (m, v) = trainer.moments();
    [parameters(trainer), values(m), values(v)].concat()
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt()
}

#[track_caller]
fn assert_close(a: &[f32], b: &[f32], relative: f64) {
    let difference: Vec<_> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    assert!(norm(&difference) <= relative * norm(b), "{} of {}", norm(&difference), norm(b));
}

#[test]
fn micro_batches_are_one_batch() {
    let batches: Vec<_> = (0..4).map(|seed| batch(seed, 2)).collect();
    let (mut parts, mut whole) = (trainer(&[]), trainer(&[]));
    let part_record = parts.step(&batches).unwrap();
    let whole_record = whole.step(&[stacked(&batches)]).unwrap();
    assert_eq!(part_record.target_tokens, whole_record.target_tokens);
    assert!((part_record.loss.unwrap() - whole_record.loss.unwrap()).abs() < 1e-6);
    assert_close(&gradients(&parts), &gradients(&whole), 1e-5);
}

// T2: a micro-batch without targets adds nothing, neither to the mean nor to its denominator.
#[test]
fn a_micro_batch_without_targets_changes_nothing() {
    let (mut plain, mut padded) = (trainer(&[]), trainer(&[]));
    let record = plain.step(&[batch(1, 2)]).unwrap();
    let padded_record = padded.step(&[without_targets(batch(2, 2)), batch(1, 2)]).unwrap();
    assert_eq!(padded_record.loss, record.loss);
    assert_eq!(padded_record.target_tokens, record.target_tokens);
    assert_close(&state(&padded), &state(&plain), 1e-7);
}

// T2: a step without any target is skipped and counted; the next update is the first one.
#[test]
fn a_step_without_targets_is_skipped() {
    let mut trainer = trainer(&[]);
    let before = state(&trainer);
    for _ in 0..5 {
        let record = trainer.step(&[without_targets(batch(1, 2))]).unwrap();
        assert_eq!((record.skipped, record.loss), (Some(Skip::NoTargets), None));
    }
    assert_eq!(state(&trainer), before);
    trainer.step(&[batch(1, 2)]).unwrap();
    let counters = trainer.counters();
    assert_eq!((counters.step, counters.updates, counters.skipped_steps), (6, 1, 5));
}

/// Overwrites the first element of a parameter, and gives what it was.
fn replace_first(trainer: &Trainer, name: &str, value: f32) -> f32 {
    let parameter = trainer.parameters().iter().find(|parameter| parameter.name == name).unwrap();
    let mut elements = atpm_core::read_f32(&parameter.value).unwrap();
    let old = std::mem::replace(&mut elements[0], value);
    atpm_core::overwrite_f32(&parameter.value, &elements).unwrap();
    old
}

// T3, T12, T13: a NaN skips the step whole, and leaves nothing behind once its cause is gone.
#[test]
fn a_step_that_is_not_finite_is_skipped() {
    let mut trainer = trainer(&[]);
    let mut fresh = self::trainer(&[]);
    let healthy = replace_first(&trainer, "norm.weight", f32::NAN);
    let moments_before = values(trainer.moments().0);
    let batches: Vec<_> = (0..4).map(|seed| batch(seed, 2)).collect();
    let record = trainer.step(&batches).unwrap();
    assert_eq!((record.skipped, record.skipped_steps, record.loss), (Some(Skip::NonFinite), 1, None));
    assert_eq!(record.grad_norm_preclip, None);
    assert_eq!(values(trainer.moments().0), moments_before);

    replace_first(&trainer, "norm.weight", healthy);
    // The rate of the second step, as if the fresh trainer had skipped its first one, too.
    fresh.step(&[without_targets(batch(0, 8))]).unwrap();
    trainer.step(&batches).unwrap();
    fresh.step(&batches).unwrap();
    assert_eq!(state(&trainer), state(&fresh));
}

// T12: too many in a row end the run, naming step, loss and the first bad parameter.
#[test]
fn too_many_steps_that_are_not_finite_end_the_run() {
    let mut trainer = trainer(&[]);
    let healthy = replace_first(&trainer, "blocks.0.mlp.down.weight", f32::INFINITY);
    trainer.step(&[batch(1, 2)]).unwrap();
    trainer.step(&[batch(1, 2)]).unwrap();
    replace_first(&trainer, "blocks.0.mlp.down.weight", healthy);
    trainer.step(&[batch(1, 2)]).unwrap();
    replace_first(&trainer, "blocks.0.mlp.down.weight", f32::NAN);
    trainer.step(&[batch(1, 2)]).unwrap();
    trainer.step(&[batch(1, 2)]).unwrap();
    let before = values(trainer.moments().0);
    let error = trainer.step(&[batch(1, 2)]).unwrap_err();
    let message = error.to_string();
    for part in ["step 6", "loss is NaN", "`embedding.weight`", "3 steps in a row", "max_skipped = 2"] {
        assert!(message.contains(part), "{message}\nlacks {part}");
    }
    assert_eq!(values(trainer.moments().0), before);
    assert_eq!(crate::run::exit::code(&error), 1);
}

// T6, T7: the moments see a gradient of norm min(norm, clip); the record has the norm before clipping.
#[test]
fn clipping_takes_hold() {
    let unclipped = trainer(&["optimizer.clip=0"]).step(&[batch(1, 2)]).unwrap();
    let full = unclipped.grad_norm_preclip.unwrap();
    for (clip, expected) in [(full / 3.0, full / 3.0), (full * 3.0, full)] {
        let mut trainer = trainer(&[&format!("optimizer.clip={clip}"), "optimizer.beta1=0.9"]);
        let record = trainer.step(&[batch(1, 2)]).unwrap();
        assert_eq!(record.grad_norm_preclip, Some(full));
        assert_eq!(record.clipped, clip < full);
        let seen = norm(&values(trainer.moments().0)) / 0.1;
        assert!((seen / expected - 1.0).abs() < 1e-5, "{seen}, expected {expected}");
    }
}

// B1: every parameter learns. The transport's first factors wait for C, which starts at zero.
#[test]
fn every_parameter_has_a_gradient() {
    for overrides in [&["model.tied=true"][..], &["model.tied=false", "model.activation_checkpointing=true"]]
    {
        let mut trainer = trainer(overrides);
        trainer.step(&[batch(1, 4)]).unwrap();
        trainer.step(&[batch(2, 4)]).unwrap();
        for parameter in trainer.parameters() {
            let gradient = norm(&values([&parameter.gradient]));
            assert!(gradient > 0.0 && gradient.is_finite(), "{}: {gradient}", parameter.name);
        }
    }
}
