//! `atpm-train --config FILE`: from flags to a finished run.

use std::sync::Arc;

use atpm_data::{TextSource, Tokenizer};
use serde::Serialize;

use super::estimate::EstimateReport;
use super::session::{Outcome, Stopped, train_plan};
use super::setup::{Plan, sketch};
use super::signals::StopFlag;
use crate::report::output;
use crate::run::cli::TrainArgs;
use crate::run::config::{self, Run};
use crate::run::exit::Interrupted;
use crate::run::folder::Resume;
use crate::run::logging::{self, Console};
use crate::run::threads;

/// What `--dry-run --json` prints.
#[derive(Debug, Serialize)]
struct DryRun {
    #[serde(rename = "dry_run")]
    planned_only: bool,
    #[serde(flatten)]
    estimate: EstimateReport,
    /// `checked`, or why the shards could not be.
    data: String,
}

/// Trains, or with `--dry-run` only plans to.
///
/// # Errors
/// A mistake in config, data or checkpoint, or a failure of the run; [`Interrupted`] after a signal.
pub fn run(args: &TrainArgs, console: &Console) -> anyhow::Result<()> {
    let run = config::load(&args.config)?;
    if args.dry_run {
        return dry_run(&run, args.json);
    }
    logging::warn_if_unoptimised();
    threads::build_pool(run.threads())?;
    let stop = StopFlag::on_signals()?;
    let plan = Plan::of(&run, &Resume::from(args.resume.as_deref()))?;
    for line in plan.estimate.render().lines() {
        tracing::info!("{line}");
    }
    report(&train_plan(&plan, &stop, console)?, args.json)
}

fn report(outcome: &Outcome, json: bool) -> anyhow::Result<()> {
    if json {
        output::json(outcome)?;
    }
    if let Stopped::Signal(signal) = outcome.stopped {
        return Err(Interrupted(signal).into());
    }
    tracing::info!("done at step {} of {}", outcome.step, outcome.run_dir.display());
    Ok(())
}

fn dry_run(run: &Run, json: bool) -> anyhow::Result<()> {
    let (run, estimate) = sketch(run)?;
    let data = check_data(&run)?;
    if json {
        return output::json(&DryRun { planned_only: true, estimate: estimate.report(), data });
    }
    output::line(estimate.render())?;
    output::line(format_args!("data: {data}"))
}

/// Looks at the training shards as training would; shards that are not there yet are no mistake of a dry run.
fn check_data(run: &Run) -> anyhow::Result<String> {
    // Which tokenizer it is does not matter to the shards; its special tokens were looked at before.
    let mut text = run.train_text();
    text.data.bos = false;
    match TextSource::open(&text, Arc::new(Tokenizer::open("bytes")?), None) {
        Ok(_) => Ok("checked".into()),
        Err(error @ atpm_data::Error::NoFiles { .. }) => Ok(format!("not checked: {error}")),
        Err(error) => Err(error.into()),
    }
}
