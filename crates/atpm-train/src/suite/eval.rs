//! `atpm-train suite eval`: what a trained model answers on any task and split, and what its mistakes are.

use std::fmt::Write as _;
use std::path::PathBuf;

use atpm_data::synthetic::vocabulary::{self, ANSWER, QUERY, UNKNOWN};
use atpm_data::synthetic::{Sample, Split, Task};
use serde::Serialize;

use super::evaluation::{Decoding, SplitScore, TaskScore, answers, by_task, mean};
use super::kept;
use crate::inference::model::{self, Opened};
use crate::report::output;
use crate::run::exit::user;
use crate::run::suite::TaskArgs;

const EXAMPLES: &str = "\
Examples:
  atpm-train suite eval --model runs/suite/smoke/models/kv_recall-atpm-0 --task kv_recall --split stress
  atpm-train suite eval --model runs/suite/paper/models/mixed_all-atpm-0 --task mixed_all --split stress --wrong 3

Autoregressive, as in the suite's table; with the seed and the number of samples of a trial, its scores. A suite keeps
its trained weights with `--set keep=true`.

With --json: model, step, task, split, seed, samples, scores (task, exact_match, token_accuracy, cross_entropy), mean (of
scores), answers (sample, position, target, given, and of a wrong one its origin), mistakes (number of wrong answers by origin: same_key,
elsewhere, unknown, nowhere).";

/// All of them are kept, with their answers.
const MOST_SAMPLES: u64 = 65_536;

/// Flags of `suite eval`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The weights of a trial, or another run folder, checkpoint or export that reads the tasks' words.
    #[arg(long, value_name = "PATH")]
    pub model: PathBuf,
    /// Whether or not the model was trained on them.
    #[command(flatten)]
    pub asked: TaskArgs,
    /// How many samples.
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub samples: u64,
    /// Print up to as many samples that were answered wrongly.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub wrong: usize,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Where the model was read from.
    pub model: PathBuf,
    /// Its step; an export does not say.
    pub step: Option<u64>,
    /// What was asked.
    pub task: Task,
    /// The part of its samples.
    pub split: Split,
    /// Seed of the samples.
    pub seed: u64,
    /// How many.
    pub samples: u64,
    /// A line a task: one, or those of the mixture, in the order of names.
    pub scores: Vec<TaskScore>,
    /// Their mean: what the suite's table has.
    pub mean: SplitScore,
    /// Every answer, sample by sample.
    pub answers: Vec<Answer>,
    /// How many wrong answers are of each origin.
    pub mistakes: Mistakes,
}

/// One answer of one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// Index of the sample.
    pub sample: u64,
    /// Where in it the answer was due.
    pub position: usize,
    /// The right id.
    pub target: u32,
    /// The model's.
    pub given: u32,
    /// Where a wrong one may come from.
    pub origin: Option<Origin>,
}

/// Where the word of a wrong answer stands in what was told before the first question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Directly behind the key that was asked for: a value that it had once, or that was to be ignored.
    SameKey,
    /// Somewhere else: most often another key's.
    Elsewhere,
    /// It is `unknown`.
    Unknown,
    /// Nowhere.
    Nowhere,
}

/// How many wrong answers are of each origin.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Mistakes {
    /// [`Origin::SameKey`].
    pub same_key: usize,
    /// [`Origin::Elsewhere`].
    pub elsewhere: usize,
    /// [`Origin::Unknown`].
    pub unknown: usize,
    /// [`Origin::Nowhere`].
    pub nowhere: usize,
}

/// Asks and reports.
///
/// # Errors
/// A model that cannot be opened or does not read the tasks' words, a task or split that does not exist, nothing to ask.
pub fn run(args: &Args) -> anyhow::Result<()> {
    model::expect_folder(&args.model)?;
    let (task, split) = args.asked.resolve()?;
    if !(1..=MOST_SAMPLES).contains(&args.samples) {
        return Err(user(format!("--samples {}: it must be from 1 to {MOST_SAMPLES}", args.samples)));
    }
    let opened = model::open(&args.model)?;
    kept::expect_words(&opened, "")?;
    let seed = args.asked.seed;
    let samples: Vec<Sample> = (0..args.samples).map(|index| task.sample(split, seed, index)).collect();
    let report = ask(&opened, &samples, (task, split, seed))?;
    if args.json {
        return output::json(&report);
    }
    output::part(describe(&report))?;
    wrong(&report.answers, args.wrong).try_for_each(|index| {
        let answers = report.answers.iter().filter(|answer| answer.sample == index);
        output::part(correct(&samples[index as usize], answers))
    })
}

/// The report on samples of this task, split and seed, the first one's index being 0.
///
/// # Errors
/// Whatever the model refuses.
fn ask(
    opened: &Opened,
    samples: &[Sample],
    (task, split, seed): (Task, Split, u64),
) -> anyhow::Result<Report> {
    let given = answers(&mut Decoding::new(&opened.model)?, samples)?;
    let scores = by_task(&opened.model, samples, &given)?;
    let answers: Vec<Answer> = (0..)
        .zip(samples.iter().zip(&given))
        .flat_map(|(index, (sample, given))| compare(index, sample, given))
        .collect();
    let count = |origin| answers.iter().filter(|answer| answer.origin == Some(origin)).count();
    Ok(Report {
        model: opened.path.clone(),
        step: opened.step,
        task,
        split,
        seed,
        samples: samples.len() as u64,
        mean: mean(&scores),
        scores,
        mistakes: Mistakes {
            same_key: count(Origin::SameKey),
            elsewhere: count(Origin::Elsewhere),
            unknown: count(Origin::Unknown),
            nowhere: count(Origin::Nowhere),
        },
        answers,
    })
}

fn compare<'a>(index: u64, sample: &'a Sample, given: &'a [u32]) -> impl Iterator<Item = Answer> + 'a {
    sample.answer().map(move |(position, target)| {
        let given = given[position];
        let origin = (given != target).then(|| origin(sample, position, given));
        Answer { sample: index, position, target, given, origin }
    })
}

/// Where a wrong answer at this position stands in what was told.
fn origin(sample: &Sample, position: usize, given: u32) -> Origin {
    let read = &sample.ids[..=position];
    let is_question = |&id: &u32| id == QUERY || id == ANSWER;
    // Where there is no question mark, the answer is due at the key itself, and all before it was told.
    let (told, question) = read.split_at(read.iter().position(is_question).unwrap_or(position));
    // Of the question that is answered, the last of several; a list is asked for by no key.
    let asked = question.iter().rev().find(|&&id| vocabulary::is_key(id));
    if given == UNKNOWN {
        Origin::Unknown
    } else if told.windows(2).any(|pair| Some(&pair[0]) == asked && pair[1] == given) {
        Origin::SameKey
    } else if told.contains(&given) {
        Origin::Elsewhere
    } else {
        Origin::Nowhere
    }
}

/// The first samples with a wrong answer.
fn wrong(answers: &[Answer], most: usize) -> impl Iterator<Item = u64> + '_ {
    let mut indices: Vec<u64> =
        answers.iter().filter(|answer| answer.origin.is_some()).map(|answer| answer.sample).collect();
    indices.dedup();
    indices.into_iter().take(most)
}

fn describe(report: &Report) -> String {
    let mut text = String::new();
    let Report { task, split, seed, samples, mistakes, .. } = report;
    let _ = writeln!(text, "{}", report.model.display());
    let _ = writeln!(text, "{}, {}, seed {seed}, samples {samples}", task.name(), split.name());
    let _ = writeln!(text, "\n{:<18}{:>14}{:>16}{:>12}", "", "exact match %", "answers right %", "nats");
    let mut line = |name: &str, score: &SplitScore| {
        let (exact, right) = (100.0 * score.exact_match, 100.0 * score.token_accuracy);
        let _ = writeln!(text, "{name:<18}{exact:>14.1}{right:>16.1}{:>12.4}", score.cross_entropy);
    };
    report.scores.iter().for_each(|TaskScore { task, score }| line(task.name(), score));
    if report.scores.len() > 1 {
        line("mean", &report.mean);
    }
    let Mistakes { same_key, elsewhere, unknown, nowhere } = mistakes;
    let wrong = same_key + elsewhere + unknown + nowhere;
    let _ = writeln!(text, "\nwrong answers: {wrong} of {}", report.answers.len());
    for (number, what) in [
        (same_key, "another word that stands behind the key asked for"),
        (elsewhere, "a word that stands elsewhere"),
        (unknown, "unknown"),
        (nowhere, "a word that was not told"),
    ] {
        if *number > 0 {
            let _ = writeln!(text, "{number:>8}  {what}");
        }
    }
    text
}

/// A sample in words, and what was given in place of its answers.
fn correct<'a>(sample: &Sample, answers: impl Iterator<Item = &'a Answer>) -> String {
    let mut text = format!("\n{}\n", sample.text());
    for Answer { position, target, given, .. } in answers.filter(|answer| answer.origin.is_some()) {
        let [target, given] = [*target, *given].map(vocabulary::name);
        let _ = writeln!(text, "  at {position}: {given} in place of {target}");
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::inference::tests::{checkpoint, config};
    use crate::run::exit;
    use crate::suite::protocol;
    use crate::suite::tests::config as suite_config;
    use crate::training::signals::StopFlag;

    fn args(model: &Path, task: &str, split: &str) -> Args {
        let asked = TaskArgs { task: task.into(), split: split.into(), seed: 0 };
        Args { model: model.into(), asked, samples: 40, wrong: 1, json: false }
    }

    #[test]
    fn a_kept_model_has_the_scores_of_its_trial() {
        let folder = tempfile::tempdir().unwrap();
        let out = format!("out={}", folder.path().display());
        let suite = ["tasks=['overwrite', 'mixed_all']", "models=['atpm']", "keep=true", "eval.samples=40"];
        let suite = suite_config(&[&suite[..], &["sweep.lrs=[1e-3]", &out]].concat()).unwrap();
        for outcome in protocol::run(&suite, &StopFlag::default()).unwrap().outcomes {
            let task = outcome.task;
            let opened = model::open(&folder.path().join(format!("models/{}-atpm-0", task.name()))).unwrap();
            let samples: Vec<Sample> = (0..40).map(|index| task.sample(Split::Stress, 0, index)).collect();
            let report = ask(&opened, &samples, (task, Split::Stress, 0)).unwrap();
            assert_eq!(Some(report.mean), outcome.scores.map(|scores| scores.stress));
            assert_eq!(report.scores.len() > 1, task == Task::MixedAll);
            assert_eq!(describe(&report).contains("\nmean "), task == Task::MixedAll);
            let right = report.answers.iter().filter(|answer| answer.origin.is_none()).count();
            assert!(
                report
                    .answers
                    .iter()
                    .all(|answer| (answer.given == answer.target) == answer.origin.is_none())
            );
            let Mistakes { same_key, elsewhere, unknown, nowhere } = report.mistakes;
            assert_eq!(right + same_key + elsewhere + unknown + nowhere, report.answers.len());
            // Two steps teach nothing: the first sample is among the wrong ones.
            assert_eq!(wrong(&report.answers, 1).collect::<Vec<_>>(), [0]);
            assert!(describe(&report).contains(&format!("wrong answers: {}", report.answers.len() - right)));
            run(&args(&opened.path, task.name(), "stress")).unwrap();
        }
    }

    #[test]
    fn mistakes_are_told_apart() {
        let words = ["k1", "v1", "k2", "v2", "n0", "k1", "v3", "?", "k1", "="];
        let id = |word: &str| (0..160).find(|&id| vocabulary::name(id) == word).unwrap();
        let ids: Vec<u32> = words.map(id).into();
        let targets = (0..10).map(|at| if at == 9 { id("v3") } else { atpm_data::IGNORE }).collect();
        let sample = Sample { task: Task::Overwrite, prompt: ids.len(), ids, targets };
        for (given, origin) in [
            ("v1", Origin::SameKey),
            ("v2", Origin::Elsewhere),
            ("n0", Origin::Elsewhere),
            ("unknown", Origin::Unknown),
            ("v9", Origin::Nowhere),
            ("=", Origin::Nowhere),
        ] {
            let row = [vec![0; 9], vec![id(given)]].concat();
            let answer =
                Answer { sample: 5, position: 9, target: id("v3"), given: id(given), origin: Some(origin) };
            assert_eq!(compare(5, &sample, &row).collect::<Vec<_>>(), [answer], "{given}");
            assert!(
                correct(&sample, [&answer].into_iter())
                    .ends_with(&format!("  at 9: {given} in place of v3\n"))
            );
        }
        // Two hops, of which one was answered; a key that is asked again where it stands; a list, asked for by no key.
        for (words, given, origin) in [
            (&["k1", "k2", "k2", "k3", "?", "k1", ">", "="][..], "k2", Origin::SameKey),
            (&["k1", "v1", "k2", "v2", "k1", "v3", "k2", "k1"], "v1", Origin::SameKey),
            (&["k1", "v1", "k2", "v2", "k1", "v3", "k2", "k1"], "v2", Origin::Elsewhere),
            (&["v1", "v2", "="], "v2", Origin::Elsewhere),
            (&["v1", "v2", "="], "=", Origin::Nowhere),
        ] {
            let ids: Vec<u32> = words.iter().map(|word| id(word)).collect();
            let last = ids.len() - 1;
            let sample = Sample { task: Task::Mqar, prompt: ids.len(), targets: Vec::new(), ids };
            assert_eq!(super::origin(&sample, last, id(given)), origin, "{words:?} {given}");
        }
        let right = [vec![0; 9], vec![id("v3")]].concat();
        assert!(compare(5, &sample, &right).all(|answer| answer.origin.is_none()));
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let text = checkpoint(folder.path(), &config(true), 3);
        let number = |samples| Args { samples, ..args(&text, "sort", "iid") };
        for (args, expected) in [
            (args(&text, "sort", "iid"), "was not trained on the memory tasks; give the weights"),
            (args(&text, "srot", "iid"), "did you mean `sort`?"),
            (args(&text, "sort", "test"), "there is no such split"),
            (number(0), "--samples 0: it must be from 1 to 65536"),
            (number(u64::MAX), "it must be from 1"),
            (args(Path::new("nowhere"), "sort", "iid"), "there is no such folder"),
        ] {
            let error = run(&args).unwrap_err();
            assert_eq!(exit::code(&error), 2, "{error:#}");
            assert!(format!("{error:#}").contains(expected), "{error:#}");
        }
    }
}
