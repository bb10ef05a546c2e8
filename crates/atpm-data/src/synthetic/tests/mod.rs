//! The samples: right answers, no way around the task, disjoint splits, the same ones every time.

mod documents;
mod shortcuts;
mod solvers;
mod writes;

use std::collections::{HashMap, HashSet};

use rayon::prelude::*;

use super::sample::QUESTIONS;
use super::*;
use crate::{Batch, BatchSource, IGNORE, Tokenizer};

/// Samples of a split that a test looks at.
const MANY: u64 = 300;

/// The tasks with lines of their own.
fn single() -> impl Iterator<Item = Task> {
    Task::ALL.into_iter().filter(|&task| task != Task::MixedAll)
}

fn samples(task: Task, split: Split) -> Vec<Sample> {
    (0..MANY).map(|index| task.sample(split, 0, index)).collect()
}

#[test]
fn names_are_those_of_configs_and_lead_back() {
    for task in Task::ALL {
        assert_eq!(serde_json::to_value(task).unwrap(), task.name());
        assert_eq!(Task::ALL[task as usize], task);
    }
    for split in Split::ALL {
        assert_eq!(serde_json::to_value(split).unwrap(), split.name());
    }
    let names: HashSet<String> = (0..vocabulary::SIZE as u32).map(vocabulary::name).collect();
    assert_eq!(names.len(), vocabulary::SIZE, "every id has its own name");
    assert!(names.iter().all(|name| !name.starts_with('#')) && vocabulary::name(160) == "#160");
}

#[test]
fn sizes_grow_from_split_to_split() {
    for task in single() {
        let (_, sizes) = task.sizes().unwrap();
        let trained = sizes.of(Split::Train);
        assert_eq!((trained, trained), (sizes.of(Split::Validation), sizes.of(Split::Iid)));
        let (ood, stress) = (sizes.of(Split::Ood), sizes.of(Split::Stress));
        assert!(trained.0 < trained.1 && trained.1 < ood.0 && ood.1 < stress.0, "{}", task.name());
        assert_eq!((2 * ood.1, stress.1), (3 * trained.1, 3 * trained.1), "{}", task.name());
    }
    assert_eq!(Task::MixedAll.sizes(), None);
}

#[test]
fn a_sample_reads_what_it_answered_and_nothing_ahead() {
    for (task, split) in single().flat_map(|task| Split::ALL.map(|split| (task, split))) {
        for sample in samples(task, split) {
            let answer: Vec<_> = sample.answer().collect();
            assert_eq!((sample.task, sample.ids.len()), (task, sample.targets.len()));
            assert_eq!(sample.prompt(), &sample.ids[..sample.prompt]);
            assert!(sample.ids.iter().all(|&id| id != vocabulary::PAD && (id as usize) < vocabulary::SIZE));
            if sample.prompt == sample.ids.len() {
                // No answer is fed back: what follows it is the next question, or whatever the line says there.
                let asks = |position: usize| sample.ids[position] == vocabulary::ANSWER;
                let questions = sample.ids.iter().filter(|&&id| id == vocabulary::QUERY).count();
                if !matches!(task, Task::Mqar | Task::ForgettingMqar) {
                    assert!(answer.len() == questions && (1..=QUESTIONS).contains(&questions));
                    assert!(answer.iter().all(|&(position, _)| asks(position)), "{}", sample.text());
                    let next = answer.iter().filter_map(|&(position, _)| sample.ids.get(position + 1));
                    assert!(next.copied().all(|id| id == vocabulary::QUERY), "{}", sample.text());
                }
                continue;
            }
            assert!(
                matches!(task, Task::Copy | Task::SelectiveCopy | Task::Sort),
                "an answer of many tokens"
            );
            // The answer begins with the prompt's last token, and each of its tokens is the next input but the last.
            let positions: Vec<_> = answer.iter().map(|&(position, _)| position).collect();
            assert_eq!(positions, (sample.prompt - 1..sample.ids.len()).collect::<Vec<_>>());
            assert_eq!(sample.ids[sample.prompt - 1], vocabulary::ANSWER);
            for pair in answer.windows(2) {
                assert_eq!(sample.ids[pair[1].0], pair[0].1);
            }
        }
    }
}

/// Samples that a split may not have.
fn strangers(split: Split, samples: &[Sample]) -> usize {
    samples.iter().filter(|sample| Split::owner(sample.prompt()) != split).count()
}

#[test]
fn splits_share_no_prompt() {
    for task in single() {
        let mut owners: HashMap<Vec<u32>, Split> = HashMap::new();
        for (split, seed) in Split::ALL.into_iter().flat_map(|split| [0, 1].map(|seed| (split, seed))) {
            for index in 0..MANY {
                let sample = task.sample(split, seed, index);
                let owner = *owners.entry(sample.prompt().to_vec()).or_insert(split);
                assert_eq!(owner, split, "{}", sample.text());
                assert_eq!(strangers(split, &[sample]), 0);
            }
        }
        // Drawn without the rule, most samples of an evaluation split could be training samples as well.
        let definition = task.definition().unwrap();
        let unruly = |index| {
            let mut draw = Draw::new(task, Split::Iid, 0, index);
            let size = draw.size(definition.sizes);
            (definition.write)(&mut draw, size)
        };
        let unruly: Vec<_> = (0..MANY).map(unruly).collect();
        assert!(strangers(Split::Iid, &unruly) > MANY as usize * 3 / 4, "{}", task.name());
    }
}

#[test]
fn samples_differ_from_each_other_and_from_seed_to_seed() {
    for task in Task::ALL {
        let texts = [0, 1].iter().flat_map(|&seed| (0..MANY).map(move |index| (seed, index)));
        let texts: HashSet<_> =
            texts.map(|(seed, index)| task.sample(Split::Train, seed, index).text()).collect();
        assert_eq!(texts.len() as u64, 2 * MANY, "{}", task.name());
    }
}

/// Results are compared across months: these samples may not change.
#[test]
fn the_samples_are_frozen() {
    let digest = |tasks: &[Task]| {
        let mut hasher = blake3::Hasher::new();
        for (task, split) in tasks.iter().flat_map(|task| Split::ALL.map(|split| (task, split))) {
            for index in 0..4 {
                hasher.update(task.sample(split, 7, index).text().as_bytes());
            }
        }
        hasher.finalize().to_hex()[..16].to_owned()
    };
    assert_eq!(digest(&Task::ALL[..12]), "641f57a2d1a4ce82");
    assert_eq!(digest(&Task::ALL[12..]), "7ccbcd12c5a756e4");
}

#[test]
fn the_mixture_gives_samples_of_its_nine_tasks_in_equal_shares() {
    let mut counts: HashMap<Task, usize> = HashMap::new();
    for (index, sample) in samples(Task::MixedAll, Split::Ood).into_iter().enumerate() {
        assert_eq!(sample, sample.task.sample(Split::Ood, 0, index as u64));
        *counts.entry(sample.task).or_default() += 1;
    }
    let parts: HashSet<_> = Task::MixedAll.parts().into_iter().collect();
    assert_eq!(counts.keys().copied().collect::<HashSet<_>>(), parts);
    assert!(parts.len() == 9 && counts.values().all(|&count| count > 15), "{counts:?}");
}

fn source(rows: usize) -> SyntheticSource {
    let config = SyntheticConfig { task: Task::MixedAll, split: Split::Train, seed: 3, rows };
    SyntheticSource::open(&config, None).unwrap()
}

/// The documents of a batch, without the padding behind a row's last one, in ascending order.
fn documents(batch: &Batch) -> Vec<(Vec<u32>, Vec<u32>)> {
    let mut found = Vec::new();
    let rows = batch.ids.chunks(batch.tokens).zip(batch.targets.chunks(batch.tokens));
    for (((ids, targets), positions), starts) in
        rows.zip(batch.positions.chunks(batch.tokens)).zip(&batch.starts)
    {
        let length = ids.iter().rposition(|&id| id != vocabulary::PAD).unwrap() + 1;
        assert!(targets[length..].iter().all(|&target| target == IGNORE), "padding counts for nothing");
        let ends = starts[1..].iter().copied().chain([length]);
        for (&start, end) in starts.iter().zip(ends) {
            found.push((ids[start..end].to_vec(), targets[start..end].to_vec()));
            assert!(positions[start..end].iter().copied().eq(0..(end - start) as u32));
        }
    }
    found.sort();
    found
}

#[test]
fn batches_hold_the_samples_whatever_their_size_and_on_any_thread() {
    let expected: Vec<_> = (0..60).map(|index| Task::MixedAll.sample(Split::Train, 3, index)).collect();
    let parallel: Vec<_> =
        (0..60).into_par_iter().map(|index| Task::MixedAll.sample(Split::Train, 3, index)).collect();
    assert_eq!(parallel, expected);
    let expected: Vec<_> = expected.into_iter().map(|sample| (sample.ids, sample.targets)).collect();
    for size in [1, 4, 15, 60] {
        let mut source = source(size);
        for expected in expected.chunks(size) {
            let batch = source.next_batch().unwrap();
            let mut expected = expected.to_vec();
            expected.sort();
            assert_eq!(documents(&batch), expected);
            assert_eq!((batch.ids.len(), batch.target_bytes), (batch.rows * batch.tokens, 0));
            assert_eq!((batch.targets.len(), batch.positions.len()), (batch.ids.len(), batch.ids.len()));
        }
    }
}

#[test]
fn samples_share_rows() {
    let samples: Vec<_> = (0..64).map(|index| Task::MixedAll.sample(Split::Train, 3, index)).collect();
    let tokens: usize = samples.iter().map(|sample| sample.ids.len()).sum();
    let longest = samples.iter().map(|sample| sample.ids.len()).max().unwrap();
    let packed = batch(&samples);
    assert!(packed.ids.len() * 9 < tokens * 10, "{} for {tokens}", packed.ids.len());
    assert!(packed.rows * 2 < 64 && (longest..=96).contains(&packed.tokens), "{}", packed.tokens);
    let alone = batch(&samples[..1]);
    assert_eq!((alone.rows, alone.tokens), (1, samples[0].ids.len()));
}

#[test]
fn a_source_goes_on_where_it_was_also_with_other_batches() {
    let mut whole = source(12);
    let expected = documents(&whole.next_batch().unwrap());
    let mut first = source(5);
    let mut found = documents(&first.next_batch().unwrap());
    let stored = serde_json::to_string(&first.position()).unwrap();
    let position = serde_json::from_str(&stored).unwrap();
    let config = SyntheticConfig { task: Task::MixedAll, split: Split::Train, seed: 3, rows: 7 };
    let mut second = SyntheticSource::open(&config, Some(&position)).unwrap();
    found.extend(documents(&second.next_batch().unwrap()));
    found.sort();
    assert_eq!((found, second.position()), (expected, whole.position()));

    let other = SyntheticConfig { seed: 4, ..config };
    let error = SyntheticSource::open(&other, Some(&position)).unwrap_err().to_string();
    assert!(error.contains("mixed_all, train, seed 3 and are mixed_all, train, seed 4"), "{error}");
    let error = SyntheticSource::open(&SyntheticConfig { rows: 0, ..config }, None).unwrap_err().to_string();
    assert!(error.contains("rows = 0"), "{error}");
}
