//! The command line: every subcommand, its help, and where it goes.
//!
//! A subcommand's flags live beside its code, in that module's `Args`; this file only names them.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use atpm_data::{DataConfig, OnBadShard, OnInvalidUtf8};

use super::logging::{self, Console};
use super::{data, suite, tokenizer};
use crate::{bench, checkpoint, doctor, inference, inspect, report, training};

const OVERVIEW: &str = "Trains ATPM language models on parquet shards, on one machine, from one file of settings.\n\n\
    Without a subcommand it trains: `atpm-train --config FILE`. A run lives in one folder (`run_dir`): the resolved \
    config, metrics.jsonl, checkpoints and the log.";

const EXAMPLES: &str = "\
Examples:
  atpm-train data demo --out data/demo                 write small demo shards of generated English
  atpm-train --config configs/debug.toml               train a small model on them, in under a minute
  atpm-train --config configs/tiny.toml --set data.train='shards/*.parquet' --set train.steps=500
  atpm-train --config configs/200m.toml --dry-run      parameters, FLOPs and memory, without training
  atpm-train --config configs/tiny.toml --resume auto  go on from the newest complete checkpoint
  atpm-train plot runs/debug                           loss curves as SVG and PNG
  atpm-train generate --model runs/debug --prompt 'Ada lives in'

Exit codes: 0 done · 1 failure · 2 a mistake in the config, data, checkpoint or flags
  130 stopped by Ctrl-C · 143 stopped by SIGTERM (what was trained is saved)
  A second signal ends the program at once, with the same codes and no new checkpoint.";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "atpm-train",
    version,
    about = "Train, evaluate and sample ATPM language models",
    long_about = OVERVIEW,
    after_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
pub struct Cli {
    /// What to do; without it, train.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Flags of training.
    #[command(flatten)]
    pub train: TrainArgs,
}

/// Flags of `atpm-train` without a subcommand.
#[derive(Debug, Clone, Args)]
pub struct TrainArgs {
    /// Config and overrides.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Go on from a checkpoint: `auto` takes the newest complete one of the run folder (or starts afresh, and
    /// says so), `never` refuses a run folder that has checkpoints, a path names a run folder or one checkpoint.
    ///
    /// Without this flag a run folder that already has checkpoints is refused, as with `never`.
    #[arg(long, value_name = "auto|never|PATH")]
    pub resume: Option<String>,
    /// Check config, starting point and shards, print parameters, FLOPs and the memory estimate, and stop before anything
    /// is allocated.
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON object about the finished run on standard output.
    #[arg(long)]
    pub json: bool,
}

/// A config file and what overrides it; shared by every subcommand that reads a config.
#[derive(Debug, Clone, Args)]
pub struct ConfigArgs {
    /// The run's settings, a TOML file such as configs/debug.toml.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Override one key, such as `--set train.steps=500`; may be repeated, the last one wins.
    ///
    /// The value is read as TOML, and as a plain string if it is none: `--set data.train=shards/*.parquet`.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// How shards are read where no config says so; shared by every subcommand that reads text from shards alone.
#[derive(Debug, Clone, Args)]
pub struct TextArgs {
    /// The column that holds the documents.
    #[arg(long, value_name = "NAME", default_value = "text")]
    pub text_column: String,
    /// What a shard that cannot be read does: `fail`, or `skip`, as `data.on_bad_shard`.
    #[arg(long, value_name = "fail|skip", default_value = "fail")]
    pub on_bad_shard: OnBadShard,
    /// What a document that is not UTF-8 does: `fail`, or `replace`, as `data.invalid_utf8`.
    #[arg(long, value_name = "fail|replace", default_value = "fail")]
    pub invalid_utf8: OnInvalidUtf8,
}

impl TextArgs {
    /// These settings; the others are the defaults of a config.
    pub fn data_config(&self) -> DataConfig {
        DataConfig {
            text_column: self.text_column.clone(),
            on_bad_shard: self.on_bad_shard,
            invalid_utf8: self.invalid_utf8,
            ..DataConfig::default()
        }
    }
}

/// Everything but training.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure the loss of a checkpoint or an export on any shards.
    Eval(inference::eval::Args),
    /// Continue a prompt with a checkpoint or an export.
    Generate(inference::generate::Args),
    /// Write a checkpoint as a Hugging Face folder (config.json, model.safetensors, tokenizer).
    Export(inference::export::Args),
    /// Look into a trained memory: its controllers at every token of one sequence, as pictures and as a table.
    Inspect(inspect::Args),
    /// Draw the loss curves of one or more runs as SVG and PNG.
    Plot(report::plot::Args),
    /// Measure speed: whole training steps, or op by op.
    Bench(bench::Args),
    /// Write demo shards, or look into shards.
    #[command(subcommand)]
    Data(data::Command),
    /// Train a tokenizer on shards.
    #[command(subcommand)]
    Tokenizer(tokenizer::Command),
    /// Train models on the memory tasks and compare them, or look at the tasks.
    Suite(suite::Args),
    /// Show what machine and build have, and check every op on a device.
    Doctor(doctor::Args),
    /// Prove that resuming is exact: train N+M steps, and N then M after a restart, and compare all bits.
    VerifyResume(checkpoint::verify::Args),
}

/// Runs what the command line asks for.
///
/// # Errors
/// Whatever the command meets; [`super::exit`] tells a user's mistake from a failure.
pub fn run(cli: Cli, console: &Console) -> anyhow::Result<()> {
    match cli.command {
        None => training::command::run(&cli.train, console),
        Some(Command::Eval(args)) => inference::eval::run(&args),
        Some(Command::Generate(args)) => inference::generate::run(&args),
        Some(Command::Export(args)) => inference::export::run(&args),
        Some(Command::Inspect(args)) => inspect::run(&args),
        Some(Command::Plot(args)) => report::plot::run(args),
        Some(Command::Bench(args)) => {
            logging::warn_if_unoptimised();
            bench::run(args)
        }
        Some(Command::Data(command)) => data::run(command),
        Some(Command::Tokenizer(command)) => tokenizer::run(command),
        Some(Command::Suite(args)) => suite::run(args),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::VerifyResume(args)) => checkpoint::verify::run(&args),
    }
}
