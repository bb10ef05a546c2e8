//! One session of training: the loop over steps, and what happens between them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use atpm_data::{Batch, BatchSource, TextSource};
use serde::Serialize;

use super::evaluation::evaluate;
use super::inputs::Inputs;
use super::rate::RateMeter;
use super::setup::{Plan, Ready, TOKENIZER_FILE};
use super::signals::StopFlag;
use super::trainer::Trainer;
use crate::checkpoint::{self, Contents, TrainState};
use crate::report::jsonl::JsonLines;
use crate::report::metrics::{Evaluation, Record, Sink};
use crate::report::plot;
use crate::report::progress::Progress;
use crate::run::config::{Run, TokenizerSpec};
use crate::run::exit;
use crate::run::folder::{self, Resume};
use crate::run::logging::Console;

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Outcome {
    /// The run's folder.
    pub run_dir: PathBuf,
    /// Steps finished in the whole run.
    pub step: u64,
    /// Loss of the last step, in nats; null if it was skipped or there was none.
    pub loss: Option<f64>,
    /// The last evaluation of this session.
    pub eval: Option<Evaluation>,
    /// Input tokens of the whole run.
    pub tokens: u64,
    /// Input tokens a second of this session's steps, without the first one; null if there was no other.
    pub tokens_per_s: Option<f64>,
    /// Steps skipped in the whole run.
    pub skipped_steps: u64,
    /// The newest checkpoint of this session.
    pub checkpoint: Option<PathBuf>,
    /// The step that the session went on from.
    pub resumed_from: Option<u64>,
    /// Bytes of the GPU's memory that the session took after it had opened the device; null on the CPU.
    pub gpu_bytes: Option<u64>,
    /// Why it ended.
    pub stopped: Stopped,
}

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stopped {
    /// All steps are done.
    Finished,
    /// `train.stop_after` is reached.
    StopAfter,
    /// A signal of this number asked for it, before all steps were done or while the last evaluation was made.
    Signal(i32),
}

/// Trains `run` to its end (or `train.stop_after`, or until `stop` is raised) and saves its state.
///
/// # Errors
/// A mistake in settings, data or checkpoint, or a failure of the run. The last complete checkpoint is
/// never touched by a failure; one of the data or of an evaluation leaves a checkpoint of the last finished step.
pub fn train(run: &Run, resume: &Resume, stop: &StopFlag, console: &Console) -> anyhow::Result<Outcome> {
    train_plan(&Plan::of(run, resume)?, stop, console)
}

/// [`train`] for a plan that was made and looked at before.
///
/// # Errors
/// As [`train`].
pub fn train_plan(plan: &Plan, stop: &StopFlag, console: &Console) -> anyhow::Result<Outcome> {
    let ready = plan.ready(console)?;
    let mut session = Session::new(plan, ready, stop, console)?;
    while let Some(number) = session.next_step() {
        session.one_step(number)?;
    }
    session.finish()
}

struct Session<'a> {
    plan: &'a Plan,
    stop: &'a StopFlag,
    trainer: Trainer,
    source: TextSource,
    metrics: JsonLines,
    progress: Progress,
    meter: RateMeter,
    began: Instant,
    resumed_from: Option<u64>,
    last_step: u64,
    last_record: Option<Record>,
    last_evaluation: Option<Evaluation>,
    /// Whether a signal came before the last evaluation was done.
    evaluation_abandoned: bool,
    /// The newest checkpoint of this session, and its step.
    newest: Option<(u64, PathBuf)>,
    tokenizer_files: Vec<(String, Vec<u8>)>,
}

impl<'a> Session<'a> {
    fn new(plan: &'a Plan, ready: Ready, stop: &'a StopFlag, console: &Console) -> anyhow::Result<Self> {
        let Ready { trainer, source } = ready;
        let resumed_from = plan.start.as_ref().map(|loaded| loaded.state.step);
        let (run, done) = (&plan.run, trainer.counters().step);
        let last_step = run.train().last_step();
        let metrics = match &plan.start {
            Some(loaded) if folder::is_own(run.run_dir(), &loaded.path) => {
                JsonLines::resume(run.run_dir(), loaded.state.step)?
            }
            _ => JsonLines::create(run.run_dir(), resumed_from)?,
        };
        Ok(Self {
            plan,
            stop,
            progress: Progress::new(console, done, last_step, run.report().log_every),
            metrics,
            meter: RateMeter::default(),
            began: Instant::now(),
            resumed_from,
            last_step,
            last_record: None,
            last_evaluation: None,
            evaluation_abandoned: false,
            newest: None,
            tokenizer_files: tokenizer_files(plan)?,
            trainer,
            source,
        })
    }

    fn next_step(&self) -> Option<u64> {
        let done = self.trainer.counters().step;
        (done < self.last_step && self.stop.raised().is_none()).then_some(done + 1)
    }

    /// A step and what is due after it; one record.
    fn one_step(&mut self, number: u64) -> anyhow::Result<()> {
        let (mut record, batches) = self.train_step()?;
        let run = &self.plan.run;
        if is_due(number, run.report().telemetry_every) {
            let inputs = Inputs::of(&batches[0])?;
            record.layers = Some(self.trainer.model().telemetry(&inputs.ids, &inputs.segments)?);
        }
        let mut failure = None;
        if is_due(number, run.eval().every) || (number == self.last_step && run.eval().every > 0) {
            match self.evaluate(number) {
                Ok(evaluation) => record.eval = evaluation,
                Err(error) => failure = Some(error),
            }
        }
        record.session_s = self.began.elapsed().as_secs_f64();
        self.metrics.record(&record)?;
        self.progress.step(&record, self.meter.time_for(self.last_step - number));
        self.last_record = Some(record);
        // An evaluation that fails costs no step.
        if failure.is_some() || (is_due(number, run.checkpoint().every) && number != self.last_step) {
            self.save()?;
        }
        failure.map_or(Ok(()), Err)
    }

    /// The batches of one step. An error in the data costs no step: what is trained so far is saved first.
    fn next_batches(&mut self) -> anyhow::Result<Vec<Batch>> {
        let count = self.plan.run.train().accumulate;
        let batches = self.source.next_batches(count);
        if batches.is_err()
            && let Err(error) = self.save_the_rest()
        {
            tracing::warn!("the steps since the last checkpoint are lost: {}", exit::message(&error));
        }
        Ok(batches?)
    }

    /// Data, gradient, update; timed.
    fn train_step(&mut self) -> anyhow::Result<(Record, Vec<Batch>)> {
        let (started, waited) = (Instant::now(), self.source.wait_seconds());
        let batches = self.next_batches()?;
        let mut record = self.trainer.step(&batches)?;
        let read = batches.iter().map(|batch| batch.ids.len() as u64).sum();
        let data_wait = Duration::try_from_secs_f64(self.source.wait_seconds() - waited).unwrap_or_default();
        self.meter.add(read, started.elapsed(), data_wait);
        if let Some(recent) = self.meter.recent() {
            let flop_per_token = self.plan.estimate.training_flop_per_token();
            record.tokens_per_s = Some(recent.tokens_per_s());
            record.gflop_per_s = Some(recent.tokens_per_s() * flop_per_token / 1e9);
            record.data_wait_share = Some(recent.data_wait_share());
        }
        Ok((record, batches))
    }

    fn evaluate(&mut self, number: u64) -> anyhow::Result<Option<Evaluation>> {
        let run = &self.plan.run;
        let evaluation = evaluate(
            self.trainer.model(),
            &run.eval_text(),
            &self.plan.tokenizer,
            run.eval().batches,
            self.stop,
            |_, _| {},
        )?;
        if let Some(evaluation) = &evaluation {
            self.progress.evaluation(number, evaluation);
            self.last_evaluation = Some(evaluation.clone());
        } else {
            self.evaluation_abandoned = true;
            tracing::warn!(
                "the signal ended the evaluation after step {number}; `atpm-train eval` measures its checkpoint"
            );
        }
        Ok(evaluation)
    }

    /// Writes a checkpoint and removes old ones.
    fn save(&mut self) -> anyhow::Result<()> {
        let tokenizer = &self.plan.tokenizer;
        let state = TrainState {
            data: serde_json::to_value(self.source.position()).context("cannot write the data position")?,
            tokenizer: tokenizer_name(self.plan)?.into(),
            tokenizer_fingerprint: tokenizer.fingerprint().into(),
            ..self.trainer.state()?
        };
        let (m, v) = self.trainer.moments();
        let parameters = self.trainer.parameters();
        let contents = Contents { state: &state, parameters, m, v, files: &self.tokenizer_files };
        let run = &self.plan.run;
        let path = checkpoint::save(run.run_dir(), &contents)?;
        tracing::info!("saved {}", path.display());
        let settings = run.checkpoint();
        checkpoint::prune(run.run_dir(), settings.keep_last, settings.keep_every, &path)?;
        self.newest = Some((state.step, path));
        Ok(())
    }

    /// Draws the run's loss beside its metrics. A picture that fails is no reason for the run to.
    fn draw(&self) {
        let folder = self.plan.run.run_dir();
        let (svg, png) = (folder.join("loss.svg"), folder.join("loss.png"));
        match plot::write(&[folder.into()], &plot::Options::default(), &svg, &png) {
            Ok(_) => tracing::info!("drew {}", png.display()),
            Err(error) => tracing::warn!("no picture of the loss: {error}"),
        }
    }

    /// A checkpoint of the last step, if this session made one that is not saved yet.
    fn save_the_rest(&mut self) -> anyhow::Result<()> {
        let step = self.trainer.counters().step;
        let is_saved = self.newest.as_ref().is_some_and(|(saved, _)| *saved == step);
        if self.last_record.is_some() && !is_saved { self.save() } else { Ok(()) }
    }

    fn finish(mut self) -> anyhow::Result<Outcome> {
        self.save_the_rest()?;
        let counters = self.trainer.counters();
        if self.last_record.is_some() {
            self.draw();
        }
        let stopped = match self.stop.raised() {
            Some(signal) if counters.step < self.last_step || self.evaluation_abandoned => {
                Stopped::Signal(signal)
            }
            _ if counters.step < self.plan.run.train().steps => Stopped::StopAfter,
            _ => Stopped::Finished,
        };
        let read = self.source.counters();
        tracing::info!(
            "data read so far: {} documents, {} empty and {} null rows, {} repaired, pass {}; left out as unreadable: \
             {} shards, {} row groups",
            read.kept,
            read.empty,
            read.null,
            read.invalid,
            read.epoch + 1,
            read.bad_shards,
            read.bad_row_groups
        );
        if self.last_record.is_none() && counters.step >= self.last_step {
            tracing::info!("nothing to do: step {} of {} is done", counters.step, self.last_step);
        }
        Ok(Outcome {
            run_dir: self.plan.run.run_dir().into(),
            step: counters.step,
            loss: self.last_record.and_then(|record| record.loss),
            eval: self.last_evaluation,
            tokens: counters.tokens_seen,
            tokens_per_s: self.meter.session().map(|lap| lap.tokens_per_s()),
            skipped_steps: counters.skipped_steps,
            checkpoint: self.newest.map(|(_, path)| path),
            resumed_from: self.resumed_from,
            gpu_bytes: self.plan.estimate.taken(&self.plan.device)?,
            stopped,
        })
    }
}

/// Whether something that happens every `every` steps (0 = never) is due after this one.
fn is_due(step: u64, every: u64) -> bool {
    every > 0 && step.is_multiple_of(every)
}

/// How a checkpoint names its tokenizer: built in, or the file that travels along.
fn tokenizer_name(plan: &Plan) -> anyhow::Result<&str> {
    match plan.run.tokenizer()? {
        TokenizerSpec::BuiltIn(name) => Ok(name),
        TokenizerSpec::Bpe(_) | TokenizerSpec::File(_) => Ok(TOKENIZER_FILE),
    }
}

/// The tokenizer's files as checkpoints carry them.
fn tokenizer_files(plan: &Plan) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    if tokenizer_name(plan)? != TOKENIZER_FILE {
        return Ok(Vec::new());
    }
    let files = plan.tokenizer.files()?;
    Ok(files.into_iter().map(|(name, text)| (name.into(), text.into_bytes())).collect())
}
