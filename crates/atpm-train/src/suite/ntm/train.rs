//! `suite ntm train`: a run from its settings to its results.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use atpm_data::synthetic::Split;
use serde::{Deserialize, Serialize};

use super::settings::Settings;
use super::trainer::{Accuracy, Record, Trainer};
use crate::checkpoint::Loaded;
use crate::report::jsonl::{METRICS, keep_up_to};
use crate::report::output;
use crate::run::exit::Interrupted;
use crate::run::folder::Resume;
use crate::run::{folder, logging, threads, whole};
use crate::training::signals::StopFlag;

/// Where a run says what it reached.
pub const RESULTS: &str = "results.json";

const EXAMPLES: &str = "\
Examples:
  atpm-train suite ntm train --task copy
  atpm-train suite ntm train --task priority_sort --set train.steps=20000 --set model.read_heads=4
  atpm-train suite ntm train --config runs/ntm-copy/config.toml --resume auto

Tasks: copy, repeat_copy, associative_recall, priority_sort. docs/ntm.md describes them and lists every key. The run
folder (runs/ntm-TASK, or run_dir) gets config.toml, metrics.jsonl (atpm-train plot reads it), checkpoints and results.json.";

/// Flags of `suite ntm train`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The task: copy, repeat_copy, associative_recall or priority_sort.
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
    /// A TOML file laid over the task's defaults.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Override one key, such as `--set train.lr=3e-4`; may be repeated, the last one wins.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Go on from a checkpoint: `auto` takes the newest complete one of the run folder (or starts afresh), `never` refuses
    /// a run folder that has checkpoints, a path names a run folder or one checkpoint.
    #[arg(long, value_name = "auto|never|PATH")]
    pub resume: Option<String>,
    /// Print results.json on standard output at the end.
    #[arg(long)]
    pub json: bool,
}

/// What a run reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// The task.
    pub task: String,
    /// Seed of parameters and samples.
    pub seed: u64,
    /// Steps done.
    pub steps: u64,
    /// Elements of all parameters.
    pub parameters: usize,
    /// At the sizes of training, on sequences that no choice was made by.
    pub test: Accuracy,
    /// The validations of this session, as (step, accuracy).
    pub validation: Vec<(u64, Accuracy)>,
    /// Seconds of this session's steps.
    pub seconds: f64,
    /// The newest checkpoint.
    pub checkpoint: PathBuf,
}

/// Trains.
///
/// # Errors
/// A mistake in the settings or checkpoint, a failure, or [`Interrupted`].
pub fn run(args: &Args) -> anyhow::Result<()> {
    let settings = Settings::load(args.task.as_deref(), args.config.as_deref(), &args.set)?;
    logging::warn_if_unoptimised();
    threads::build_pool(settings.threads)?;
    let results = train(&settings, &Resume::from(args.resume.as_deref()), &StopFlag::on_signals()?)?;
    if args.json {
        return output::json(&results);
    }
    output::line(sentence(&results))
}

/// Trains `settings` to its end, or until `stop` is raised. A run that is at its end already keeps its results.
///
/// # Errors
/// As [`run`].
pub fn train(settings: &Settings, resume: &Resume, stop: &StopFlag) -> anyhow::Result<Results> {
    let start = folder::starting_point_in(&settings.run_dir, resume)?;
    let mut trainer = match &start {
        Some(loaded) => Trainer::resume(settings, loaded)?,
        None => Trainer::new(settings)?,
    };
    if let Some(results) = start.as_ref().and_then(|loaded| finished(settings, loaded)) {
        tracing::info!("all {} steps are done: the results stand as they are", results.steps);
        return Ok(results);
    }
    let resumed_from = start.map(|loaded| loaded.state.step);
    let metrics = prepare(settings, resumed_from)?;
    tracing::info!(
        "{}, seed {}: {} parameters, {} steps",
        settings.task.name(),
        settings.seed,
        trainer.parameter_count(),
        settings.train.steps
    );
    let Session { validation, seconds, saved } = go_on(&mut trainer, settings, metrics, resumed_from, stop)?;
    let checkpoint = match saved {
        Some(path) => path,
        None => trainer.save(&settings.run_dir)?,
    };
    let results = Results {
        task: settings.task.name().into(),
        seed: settings.seed,
        steps: trainer.step_count(),
        parameters: trainer.parameter_count(),
        test: trainer.evaluate(Split::Iid)?,
        validation,
        seconds,
        checkpoint,
    };
    let json = serde_json::to_vec_pretty(&results).context("cannot write the results as JSON")?;
    whole::write(&settings.run_dir.join(RESULTS), &json)?;
    Ok(results)
}

/// The results of a run that the checkpoint is the end of. Those that cannot be read are made again, as those that the
/// program had no time to write.
fn finished(settings: &Settings, last: &Loaded) -> Option<Results> {
    let step = last.state.step;
    if step < settings.train.steps || !last.path.starts_with(&settings.run_dir) {
        return None;
    }
    let text = std::fs::read(settings.run_dir.join(RESULTS)).ok()?;
    let results: Results = serde_json::from_slice(&text).ok()?;
    (results.steps == step).then_some(results)
}

/// Makes the run's folder, and opens its metrics.
fn prepare(settings: &Settings, resumed_from: Option<u64>) -> anyhow::Result<File> {
    let run_dir = &settings.run_dir;
    folder::create(run_dir)?;
    whole::write(&run_dir.join(folder::CONFIG), settings.to_toml()?.as_bytes())?;
    if let Some(step) = resumed_from {
        folder::set_aside_newer(run_dir, step)?;
    }
    metrics(run_dir, resumed_from)
}

/// What a session leaves behind.
#[derive(Default)]
struct Session {
    validation: Vec<(u64, Accuracy)>,
    seconds: f64,
    /// The newest checkpoint.
    saved: Option<PathBuf>,
}

/// Every step that is left, with what is due after it.
fn go_on(
    trainer: &mut Trainer,
    settings: &Settings,
    mut metrics: File,
    mut resumed_from: Option<u64>,
    stop: &StopFlag,
) -> anyhow::Result<Session> {
    let mut session = Session::default();
    while trainer.step_count() < settings.train.steps {
        if let Some(signal) = stop.raised() {
            trainer.save(&settings.run_dir)?;
            return Err(Interrupted { signal, advice: "go on with --resume auto" }.into());
        }
        let mut record = trainer.train_step()?;
        session.seconds += record.seconds;
        record.resumed_from = resumed_from.take();
        let last = record.step == settings.train.steps;
        if last || is_due(record.step, settings.eval.every) {
            let began = Instant::now();
            let accuracy = trainer.evaluate(Split::Validation)?;
            session.validation.push((record.step, accuracy));
            tracing::info!(
                "step {} validation: {} ({:.1} s)",
                record.step,
                words(&accuracy),
                began.elapsed().as_secs_f64()
            );
            record.eval = Some(accuracy);
        }
        show(&record, settings);
        write(&mut metrics, &record).with_context(|| format!("cannot write {METRICS}"))?;
        if last || is_due(record.step, settings.checkpoint.every) {
            session.saved = Some(trainer.save(&settings.run_dir)?);
        }
    }
    Ok(session)
}

fn metrics(run_dir: &Path, resumed_from: Option<u64>) -> anyhow::Result<File> {
    let path = run_dir.join(METRICS);
    let opened = match resumed_from {
        None => File::create(&path),
        Some(step) => {
            keep_up_to(&path, step).with_context(|| format!("cannot resume {}", path.display()))?;
            OpenOptions::new().append(true).create(true).open(&path)
        }
    };
    opened.with_context(|| format!("cannot open {}", path.display()))
}

fn write(metrics: &mut File, record: &Record) -> anyhow::Result<()> {
    let mut line = serde_json::to_vec(record)?;
    line.push(b'\n');
    Ok(metrics.write_all(&line)?)
}

fn show(record: &Record, settings: &Settings) {
    if is_due(record.step, settings.train.log_every) {
        tracing::info!(
            "step {}/{} loss {:.4}, {:.1} % of bits right, size {}, gradient {:.2}, {:.1} ms",
            record.step,
            settings.train.steps,
            record.loss,
            100.0 * record.bit_accuracy,
            record.size,
            record.grad_norm_preclip,
            1e3 * record.seconds
        );
    }
}

fn is_due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}

/// An accuracy in words.
pub fn words(accuracy: &Accuracy) -> String {
    format!(
        "{:.2} % of bits right, {:.1} % of sequences, {:.2} bits a sequence",
        100.0 * accuracy.bit_accuracy,
        100.0 * accuracy.sequence_accuracy,
        accuracy.bits_per_sequence
    )
}

fn sentence(results: &Results) -> String {
    format!(
        "{}, seed {}, {} steps: {}; {:.0} s\n{}",
        results.task,
        results.seed,
        results.steps,
        words(&results.test),
        results.seconds,
        results.checkpoint.display()
    )
}
