//! No way around a task: what leaves out the point of it must fail.

use super::solvers::{asked, told, value_of, words};
use super::*;
use crate::synthetic::sample::Question;

/// Share of the samples that `guess` answers wholly.
fn share(samples: &[Sample], guess: impl Fn(&[String]) -> Vec<String>) -> f64 {
    let right = |sample: &&Sample| {
        let answer: Vec<_> = sample.answer().map(|(_, id)| vocabulary::name(id)).collect();
        guess(&words(sample)) == answer
    };
    samples.iter().filter(right).count() as f64 / samples.len() as f64
}

/// The nearest that comes to an answer without doing what the task is about.
fn shortcut(task: Task, words: &[String]) -> Vec<String> {
    let told = told(words);
    let pairs = || told.chunks(2);
    let each = |answer: &dyn Fn(&String) -> String| asked(words).map(answer).collect();
    match task {
        // The latest pair, whatever is asked.
        Task::KvRecall => each(&|_| told[told.len() - 1].clone()),
        Task::InverseRecall => each(&|_| told[told.len() - 2].clone()),
        // The first write of the key.
        Task::Overwrite => each(&|key| pairs().find(|pair| pair[0] == *key).unwrap()[1].clone()),
        // The bindings without the moves.
        Task::Rebind | Task::Relocate => {
            let bound = told.iter().position(|word| word == ">").unwrap();
            let pair = |key: &String| told[..bound].chunks(2).find(|pair| pair[0] == *key);
            each(&|key| pair(key).map_or("unknown".into(), |pair| pair[1].clone()))
        }
        // One hop instead of two.
        Task::PointerChase => each(&|key| value_of(told, key)),
        // Every write counts.
        Task::GatedWrite => each(&|key| told.chunks(3).rfind(|write| write[1] == *key).unwrap()[2].clone()),
        // As many values, the first again and again.
        Task::Copy | Task::SelectiveCopy => vec![told[0].clone(); told.len()],
        // The values as they were told.
        Task::Sort => pairs().map(|pair| pair[1].clone()).collect(),
        // The values in the order of the pairs.
        Task::Mqar => words.iter().filter(|word| word.starts_with('v')).cloned().collect(),
        // The first value of each key.
        Task::ForgettingMqar => {
            let end = words.iter().rposition(|word| word.starts_with('v')).unwrap() + 1;
            let first =
                |key: &String| words[..end].chunks(2).find(|pair| pair[0] == *key).unwrap()[1].clone();
            words[end..].iter().map(first).collect()
        }
        Task::MixedAll => panic!("its samples belong to other tasks"),
    }
}

#[test]
fn leaving_out_the_point_of_a_task_fails() {
    for (task, split) in single().flat_map(|task| Split::ALL.map(|split| (task, split))) {
        let found = share(&samples(task, split), |words| shortcut(task, words));
        // Coins decide in gated_write which writes count: two in a row may, and few keys may be asked for.
        let limit = if task == Task::GatedWrite { 0.45 } else { 0.35 };
        assert!(found < limit, "{} {}: {found}", task.name(), split.name());
    }
}

/// The largest share of samples one of whose first four answers (the first of all, or the second, …) stands at one and the
/// same distance from the line's beginning or from its end.
fn fixed_place(samples: &[Sample]) -> f64 {
    let mut largest = 0.0f64;
    for which in 0..4 {
        let asked: Vec<(&[u32], u32)> = samples
            .iter()
            .filter_map(|sample| Some((&sample.prompt()[1..], sample.answer().nth(which)?.1)))
            .collect();
        for (distance, from_end) in (0..40).flat_map(|distance| [(distance, true), (distance, false)]) {
            let at = |(line, answer): &&(&[u32], u32)| {
                let index = if from_end { line.len().checked_sub(distance + 1) } else { Some(distance) };
                index.and_then(|index| line.get(index)) == Some(answer)
            };
            largest = largest.max(asked.iter().filter(at).count() as f64 / asked.len().max(1) as f64);
        }
    }
    largest
}

#[test]
fn no_answer_stands_at_a_fixed_place() {
    for (task, split) in single().flat_map(|task| Split::ALL.map(|split| (task, split))) {
        let found = fixed_place(&samples(task, split));
        // Copying begins with the first value by its definition; only noise moves it.
        if task != Task::Copy {
            assert!(found < 0.45, "{} {}: {found}", task.name(), split.name());
        }
    }
    // Planted: the pair that was told last is always the one that is asked for.
    let planted = |index| {
        let mut draw = Draw::new(Task::KvRecall, Split::Train, 9, index);
        let keys = draw.distinct(6, vocabulary::N_KEYS);
        let value = vocabulary::value(draw.below(vocabulary::N_VALUES));
        let line: Vec<u32> = keys.iter().flat_map(|&k| [vocabulary::key(k), value]).collect();
        let question = Question { words: vec![vocabulary::key(keys[5])], answer: value };
        Sample::questions(Task::KvRecall, line, [question])
    };
    let planted: Vec<_> = (0..MANY).map(planted).collect();
    assert_eq!(fixed_place(&planted), 1.0);
    // Planted: the answer to the second question is told once more before the first.
    let planted = samples(Task::KvRecall, Split::Train).into_iter().map(|mut sample| {
        let second = sample.answer().nth(1).map_or(vocabulary::UNKNOWN, |(_, answer)| answer);
        let first_question = sample.ids.iter().position(|&id| id == vocabulary::QUERY).unwrap();
        sample.ids.insert(first_question, second);
        sample.targets.insert(0, IGNORE);
        sample.prompt += 1;
        sample
    });
    assert!(fixed_place(&planted.collect::<Vec<_>>()) > 0.9);
}

#[test]
fn no_answer_is_the_same_all_the_time() {
    for (task, split) in single().flat_map(|task| Split::ALL.map(|split| (task, split))) {
        let mut counts: HashMap<u32, usize> = HashMap::new();
        for (_, id) in samples(task, split).iter().flat_map(Sample::answer) {
            *counts.entry(id).or_default() += 1;
        }
        let (most, all) = (counts.values().max().unwrap(), counts.values().sum::<usize>());
        let limit = if matches!(task, Task::Rebind | Task::Relocate) { 0.35 } else { 0.06 };
        assert!((*most as f64) < limit * all as f64, "{} {}: {most} of {all}", task.name(), split.name());
    }
}

/// An evaluation that shows a model the whole sample and takes the next input for its output still finds no whole
/// answer: the last token of an answer is never an input.
#[test]
fn the_inputs_never_hold_a_whole_answer() {
    for task in Task::MixedAll.parts() {
        let mut score = Score::default();
        for sample in samples(task, Split::Iid) {
            let mut ahead = sample.ids[1..].to_vec();
            ahead.push(vocabulary::PAD);
            score.add(&sample.targets, &ahead);
        }
        assert_eq!((score.exact, score.samples), (0, MANY), "{}", task.name());
    }
}
