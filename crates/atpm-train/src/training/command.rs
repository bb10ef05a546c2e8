//! `atpm-train --config FILE`: from flags to a finished run.

use std::sync::Arc;

use atpm_data::{EvalSource, TextSource, Tokenizer};
use serde::Serialize;

use super::estimate::EstimateReport;
use super::session::{Outcome, Stopped, train_plan};
use super::setup::{Plan, sketch, warn_of_common_files};
use super::signals::StopFlag;
use crate::report::output;
use crate::run::cli::TrainArgs;
use crate::run::config::{self, Run};
use crate::run::exit::Interrupted;
use crate::run::folder::{self, Resume};
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
    /// The step that the run would go on from; null for a fresh start.
    resumes_from: Option<u64>,
}

/// Trains, or with `--dry-run` only plans to.
///
/// # Errors
/// A mistake in config, data or checkpoint, or a failure of the run; [`Interrupted`] after a signal.
pub fn run(args: &TrainArgs, console: &Console) -> anyhow::Result<()> {
    let run = config::load(&args.config)?;
    if args.dry_run {
        return dry_run(&run, &Resume::from(args.resume.as_deref()), args.json);
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
        output::read_or_not(output::json(outcome))?;
    }
    if let Stopped::Signal(signal) = outcome.stopped {
        let advice = match outcome.checkpoint {
            Some(_) => "the last step is saved; go on with --resume auto",
            None => "before its first step, so that there was nothing to save",
        };
        return Err(Interrupted { signal, advice }.into());
    }
    tracing::info!("done at step {} of {}", outcome.step, outcome.run_dir.display());
    Ok(())
}

fn dry_run(run: &Run, resume: &Resume, json: bool) -> anyhow::Result<()> {
    let start = folder::starting_point(run, resume)?;
    let (run, estimate) = sketch(run)?;
    if let Some(loaded) = &start {
        folder::compare_settings(&run, loaded)?;
    }
    let resumes_from = start.map(|loaded| loaded.state.step);
    let data = check_data(&run)?;
    if json {
        return output::json(&DryRun { planned_only: true, estimate: estimate.report(), data, resumes_from });
    }
    output::line(estimate.render())?;
    output::line(format_args!("data: {data}"))?;
    output::line(resumes_from.map_or("a fresh start".into(), |step| format!("goes on from step {step}")))
}

/// Looks at the shards as training would; shards that are not there yet are no mistake of a dry run.
fn check_data(run: &Run) -> anyhow::Result<String> {
    // Which tokenizer it is does not matter to the shards; its special tokens were looked at before.
    let bytes = Arc::new(Tokenizer::open("bytes")?);
    let (mut train, mut val) = (run.train_text(), run.eval_text());
    (train.data.bos, val.data.bos) = (false, false);
    let opened = TextSource::open(&train, Arc::clone(&bytes), None).map(drop);
    let opened = match opened {
        Ok(()) if run.eval().every > 0 => EvalSource::open(&val, bytes).map(drop),
        outcome => outcome,
    };
    match opened {
        Ok(()) => warn_of_common_files(run.data()).map(|()| "checked".into()),
        Err(error @ atpm_data::Error::NoFiles { .. }) => Ok(format!("not checked: {error}")),
        Err(error) => Err(error.into()),
    }
}
