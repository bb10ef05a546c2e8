//! `atpm-train suite`: the memory tasks.

use atpm_data::IGNORE;
use atpm_data::synthetic::{Sample, Split, Task};
use clap::Subcommand;
use serde::Serialize;

use super::exit::user;
use super::nearest::nearest;
use crate::report::output;
use crate::suite::{command, eval, matching, ntm};

/// The comparison's flags, or another command about the memory tasks.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct Args {
    /// What to do; without it, compare.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Flags of the comparison.
    #[command(flatten)]
    pub suite: command::Args,
}

/// What else to do with the memory tasks.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Print samples of a task in words, each answer in brackets.
    Show(ShowArgs),
    /// Ask a trained model: its scores on any task and split, and what its mistakes are.
    Eval(eval::Args),
    /// Widths at which other models are as large as a run's, for loss curves on text.
    Match(matching::Args),
    /// The Neural Turing machine on its own tasks: train, measure beyond training, look inside.
    #[command(subcommand)]
    Ntm(ntm::Command),
    /// Where a Neural Turing machine's heads read and write: `suite ntm inspect`, by a shorter name.
    Inspect(ntm::inspect::Args),
}

const EXAMPLES: &str = "\
Examples:
  atpm-train suite show --task kv_recall
  atpm-train suite show --task kv_recall --split stress --seed 0 --count 3
  atpm-train suite show --task sort --json

Tasks: kv_recall, inverse_recall, overwrite, rebind, pointer_chase, gated_write, copy, selective_copy, sort, mqar,
forgetting_mqar, mixed_all (the first nine mixed), and relocate. docs/suite.md describes them.

A sample is one line. An answer stands in brackets behind the token at which the model has to give it. The same
flags always print the same samples.

With --json: task, split, seed, samples (task, index, prompt (how many of ids are given), ids, targets (null where
nothing counts), text).";

/// Flags that say which samples.
#[derive(Debug, Clone, clap::Args)]
pub struct TaskArgs {
    /// The task.
    #[arg(long, value_name = "NAME")]
    pub task: String,
    /// The part of its samples: train, validation, iid, ood or stress.
    #[arg(long, value_name = "NAME", default_value = "iid")]
    pub split: String,
    /// Seed of the samples.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

impl TaskArgs {
    /// The task and the split that are named.
    ///
    /// # Errors
    /// A name that there is not.
    pub fn resolve(&self) -> anyhow::Result<(Task, Split)> {
        let task = named("task", &self.task, &Task::ALL, Task::name)?;
        Ok((task, named("split", &self.split, &Split::ALL, Split::name)?))
    }
}

/// Flags of `suite show`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ShowArgs {
    /// What to print.
    #[command(flatten)]
    pub of: TaskArgs,
    /// Samples to print, from the first on.
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub count: u64,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Report {
    task: Task,
    split: Split,
    seed: u64,
    samples: Vec<Shown>,
}

#[derive(Serialize)]
struct Shown {
    task: Task,
    index: u64,
    prompt: usize,
    ids: Vec<u32>,
    targets: Vec<Option<u32>>,
    text: String,
}

/// Runs it.
///
/// # Errors
/// A task or split that does not exist, standard output that cannot be written; as [`command::run`].
pub fn run(args: Args) -> anyhow::Result<()> {
    match args.command {
        None => command::run(&args.suite),
        Some(Command::Show(args)) => show(&args),
        Some(Command::Eval(args)) => eval::run(&args),
        Some(Command::Match(args)) => matching::run(&args),
        Some(Command::Ntm(command)) => ntm::run(&command),
        Some(Command::Inspect(args)) => ntm::run(&ntm::Command::Inspect(args)),
    }
}

fn show(args: &ShowArgs) -> anyhow::Result<()> {
    let ((task, split), seed) = (args.of.resolve()?, args.of.seed);
    let sample = |index| task.sample(split, seed, index);
    if args.json {
        let samples = (0..args.count).map(|index| shown(index, sample(index))).collect();
        return output::json(&Report { task, split, seed, samples });
    }
    (0..args.count).try_for_each(|index| output::line(sample(index).text()))
}

/// The one of `all` that the user named.
pub(crate) fn named<T: Copy>(
    what: &str,
    wanted: &str,
    all: &[T],
    name: fn(T) -> &'static str,
) -> anyhow::Result<T> {
    let names = || all.iter().map(|&one| name(one));
    all.iter().copied().find(|&one| name(one) == wanted).ok_or_else(|| {
        let hint = nearest(&wanted.replace('-', "_"), names());
        let hint = hint.map_or(String::new(), |name| format!("did you mean `{name}`? "));
        let known = names().collect::<Vec<_>>().join(", ");
        user(format!("--{what} {wanted}: there is no such {what}; {hint}The {what}s are {known}"))
    })
}

fn shown(index: u64, sample: Sample) -> Shown {
    Shown {
        task: sample.task,
        index,
        prompt: sample.prompt,
        text: sample.text(),
        targets: sample.targets.into_iter().map(|target| (target != IGNORE).then_some(target)).collect(),
        ids: sample.ids,
    }
}
