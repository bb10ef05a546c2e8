//! A solver for each task that sees nothing but the prompt, in words, and searches it from end to end.

use super::*;

/// The prompt in words, without its marker and noise.
pub(super) fn words(sample: &Sample) -> Vec<String> {
    let words = sample.prompt()[1..].iter().map(|&id| vocabulary::name(id));
    words.filter(|word| !(word.starts_with('n') && word[1..].parse::<u32>().is_ok())).collect()
}

/// What is told before the questions.
pub(super) fn told(words: &[String]) -> &[String] {
    let end = words.iter().position(|word| word == "?" || word == "=").unwrap_or(words.len());
    &words[..end]
}

/// The first word of each question.
pub(super) fn asked(words: &[String]) -> impl Iterator<Item = &String> {
    words.windows(2).filter(|pair| pair[0] == "?").map(|pair| &pair[1])
}

/// The newest pair of `told` whose first word is `key`.
pub(super) fn value_of(told: &[String], key: &str) -> String {
    told.chunks(2).rfind(|pair| pair[0] == key).unwrap()[1].clone()
}

/// The answer as the words of the prompt have it.
fn solve(task: Task, words: &[String]) -> Vec<String> {
    let told = told(words);
    let each = |answer: &dyn Fn(&String) -> String| asked(words).map(answer).collect();
    match task {
        Task::KvRecall | Task::Overwrite => each(&|key| value_of(told, key)),
        Task::InverseRecall => {
            each(&|value| told.chunks(2).find(|pair| pair[1] == *value).unwrap()[0].clone())
        }
        Task::Rebind | Task::Relocate => each(&|key| origin(told, key)),
        Task::PointerChase => {
            let questions = words.split(|word| word == "?").skip(1);
            let hops = |question: &[String]| question.iter().filter(|word| *word == ">").count();
            questions
                .map(|question| (0..hops(question)).fold(question[0].clone(), |key, _| value_of(told, &key)))
                .collect()
        }
        Task::GatedWrite => {
            let counts = |write: &&[String], key: &String| write[0] == "+" && write[1] == *key;
            each(&|key| told.chunks(3).rfind(|write| counts(write, key)).unwrap()[2].clone())
        }
        Task::Copy | Task::SelectiveCopy => told.to_vec(),
        Task::Sort => {
            let pair = |key: usize| told.chunks(2).find(|pair| pair[0] == format!("k{key}"));
            (0..vocabulary::N_KEYS).filter_map(pair).map(|pair| pair[1].clone()).collect()
        }
        Task::Mqar | Task::ForgettingMqar => {
            let told = words.iter().rposition(|word| word.starts_with('v')).unwrap() + 1;
            words[told..].iter().map(|key| value_of(&words[..told], key)).collect()
        }
        Task::MixedAll => panic!("its samples belong to other tasks"),
    }
}

/// Follows a key back through the moves to the pair that its value came from.
fn origin(told: &[String], asked: &str) -> String {
    let mut key = asked;
    let mut end = told.len();
    while end > 0 {
        let (from, to) = (told[end - 2].as_str(), told[end - 1].as_str());
        if end > 2 && told[end - 3] == ">" {
            if from == key {
                return "unknown".into();
            }
            key = if to == key { from } else { key };
            end -= 3;
        } else if from == key {
            return to.into();
        } else {
            end -= 2;
        }
    }
    "unknown".into()
}

#[test]
fn every_answer_is_what_the_prompt_says() {
    for (task, split) in single().flat_map(|task| Split::ALL.map(|split| (task, split))) {
        for sample in samples(task, split) {
            let answer: Vec<_> = sample.answer().map(|(_, id)| vocabulary::name(id)).collect();
            assert_eq!(solve(task, &words(&sample)), answer, "{}", sample.text());
        }
    }
}

#[test]
fn a_line_has_the_size_of_its_split() {
    for (task, split) in single().flat_map(|task| Split::ALL.map(|split| (task, split))) {
        let (_, sizes) = task.sizes().unwrap();
        let (least, most) = sizes.of(split);
        let mut seen = HashSet::new();
        for sample in samples(task, split) {
            let words = words(&sample);
            let told = told(&words);
            let size = match task {
                Task::KvRecall | Task::InverseRecall | Task::Overwrite | Task::PointerChase => told.len() / 2,
                Task::Rebind => told.iter().filter(|word| word.starts_with('v')).count(),
                Task::Relocate => told.iter().filter(|word| *word == ">").count(),
                Task::GatedWrite => told.len() / 3,
                _ => sample.answer().count(),
            };
            assert!((least..=most).contains(&size), "{size}: {}", sample.text());
            seen.insert(size);
        }
        assert!(seen.contains(&least) && seen.contains(&most), "{} {}", task.name(), split.name());
    }
}

#[test]
fn stress_has_many_distractors_and_training_few() {
    let noise = |task, split| {
        let count = |sample: &Sample| (sample.prompt - 1, sample.prompt - 1 - words(sample).len());
        let all = samples(task, split).iter().map(count).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        all.1 as f64 / all.0 as f64
    };
    for task in Task::MixedAll.parts() {
        let (train, stress) = (noise(task, Split::Train), noise(task, Split::Stress));
        assert!(train > 0.01 && stress > 1.4 * train, "{}: {train} {stress}", task.name());
    }
}
