//! `atpm-train verify-resume`: proof, on the user's own configuration, that a killed and resumed run is the same
//! run bit for bit.
//!
//! One process trains N+M steps. A second one trains towards the same end and is killed as soon as its checkpoint
//! of step N is there; a third goes on from that checkpoint. Both runs' last checkpoints and all their step records
//! are then compared.

mod compare;
mod process;

use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Serialize;

use super::layout;
use crate::report::output;
use crate::run::cli::ConfigArgs;
use crate::run::config::{self, Run};
use crate::run::exit::user;
use crate::training::signals::StopFlag;
use compare::Compared;

const EXAMPLES: &str = "\
Examples:
  atpm-train verify-resume --config configs/debug.toml
  atpm-train verify-resume --config configs/tiny.toml --set train.rows=2 --steps 5 --more 5 --json

Exit codes: 0 the runs are identical · 1 they differ (the first difference is named) · 2 a mistake in the config.

With --json: identical, first_difference (null if there is none), steps, more, killed (whether the process was still
running), parameters, moments, records (numbers of things compared), folder (with --keep).";

/// Flags of `verify-resume`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Config and overrides; `run_dir` is not used.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Steps before the kill (N).
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub steps: u64,
    /// Steps after it (M).
    #[arg(long, value_name = "M", default_value_t = 10)]
    pub more: u64,
    /// Keep both run folders and say where they are.
    #[arg(long)]
    pub keep: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    identical: bool,
    first_difference: Option<String>,
    steps: u64,
    more: u64,
    killed: bool,
    #[serde(flatten)]
    compared: Compared,
    #[serde(skip_serializing_if = "Option::is_none")]
    folder: Option<PathBuf>,
}

/// Trains three times, compares, and prints the verdict. A signal ends the training, too, and leaves nothing behind.
///
/// # Errors
/// A configuration that cannot train, runs that differ, or an interruption by a signal.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.steps == 0 || args.more == 0 {
        return Err(user("--steps and --more must be at least 1"));
    }
    let run = config::load(&args.config)?;
    let stop = StopFlag::on_signals()?;
    let folder = tempfile::Builder::new()
        .prefix("atpm-verify-resume-")
        .tempdir()
        .context("cannot make a temporary folder")?;
    let outcome = verify(&run, args, folder.path(), &stop);
    let folder = args.keep.then(|| folder.keep());
    if let Some(folder) = &folder {
        tracing::info!("both runs are kept in {}", folder.display());
    }
    let (killed, compared) = outcome?;
    let report = Report {
        identical: compared.first_difference.is_none(),
        first_difference: compared.first_difference.clone(),
        steps: args.steps,
        more: args.more,
        killed,
        compared,
        folder,
    };
    let written = if args.json { output::json(&report) } else { output::part(describe(&report)) };
    output::read_or_not(written)?;
    match report.first_difference {
        None => Ok(()),
        Some(difference) => Err(anyhow::anyhow!("the resumed run is not the same run: {difference}")),
    }
}

/// Both runs inside `folder`; whether the second was killed while it ran, and what the comparison found.
fn verify(run: &Run, args: &Args, folder: &Path, stop: &StopFlag) -> anyhow::Result<(bool, Compared)> {
    let (n, end) = (args.steps, args.steps + args.more);
    let (straight, resumed) = (folder.join("straight"), folder.join("resumed"));
    let steps = run.train().steps.max(end);
    let settings = |run_dir: &Path, stop_after: u64, every: u64| {
        run.with(&[
            format!("run_dir={}", run_dir.display()),
            format!("train.steps={steps}"),
            format!("train.stop_after={stop_after}"),
            format!("checkpoint.every={every}"),
            // Whatever the killed process still saves, the checkpoint of step N stays.
            format!("checkpoint.keep_every={n}"),
        ])
    };
    let to_end = settings(&straight, end, 0)?;
    // Far enough not to end before it is killed, and not for ever if nobody is left to kill it.
    let past_end = settings(&resumed, steps.min(10 * end), n)?;
    let from_n = settings(&resumed, end, n)?;

    tracing::info!("training {end} steps in one go");
    process::train(&to_end, &folder.join("straight"), None, stop)?;
    tracing::info!("training again, to be killed after step {n}");
    let checkpoint = layout::folder(&resumed, n);
    let sealed = checkpoint.join(layout::MANIFEST);
    let killed = process::kill_after(&past_end, &folder.join("killed"), &sealed, stop)?;
    tracing::info!("resuming from {}", checkpoint.display());
    process::train(&from_n, &folder.join("resumed"), Some(&checkpoint), stop)?;
    Ok((killed, compare::runs(&straight, &resumed, end)?))
}

fn describe(report: &Report) -> String {
    let Compared { parameters, moments, records, .. } = report.compared;
    let (n, end) = (report.steps, report.steps + report.more);
    let how = if report.killed { "killed (SIGKILL)" } else { "ended by itself before it could be killed" };
    let verdict = match &report.first_difference {
        None => format!(
            "identical: {parameters} parameters, {moments} moments, counters, data position, \
             {records} step records, bit for bit"
        ),
        Some(difference) => format!("DIFFERENT: {difference}"),
    };
    format!(
        "straight: steps 1–{end}\nresumed:  {how} after step {n}, then steps {}–{end}\n{verdict}\n",
        n + 1
    )
}
