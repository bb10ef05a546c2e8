//! One model trained on one task, and what it can do afterwards.

use std::time::Instant;

use anyhow::Context;
use atpm_data::BatchSource;
use atpm_data::synthetic::{Sample, Split, SyntheticConfig, SyntheticSource, Task};
use candle_core::Device;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::config::{Eval, SuiteConfig};
use super::evaluation::{SplitScore, cross_entropy, evaluate, number_or_nan};
use super::kept::Kept;
use super::models::{Entry, unread_data};
use crate::report::metrics::Skip;
use crate::run::config::Run;
use crate::run::program::fingerprint;
use crate::training::signals::StopFlag;
use crate::training::trainer::Trainer;

/// Raised whenever the same settings would give other results: a change of samples, of scores, of numerics beyond
/// rounding.
const FORMAT: u32 = 2;

/// What is to be trained and measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// What is learned.
    pub task: Task,
    /// The model's name.
    pub model: String,
    /// Its parameters that can learn.
    pub parameters: usize,
    /// Model, steps, rows, optimiser and schedule.
    pub run: Run,
    /// How much is evaluated.
    pub eval: Eval,
    /// Whether it only helps to choose a learning rate: then the test splits stay unseen.
    pub is_sweep: bool,
}

/// A finished trial: one file of the results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// What the settings were, as a digest.
    pub digest: String,
    /// What was learned.
    pub task: Task,
    /// The model's name.
    pub model: String,
    /// Seed of initialisation and samples.
    pub seed: u64,
    /// Peak learning rate.
    pub lr: f64,
    /// Parameters that can learn.
    pub parameters: usize,
    /// Nats of an answer token in each step; null where a step was skipped.
    pub losses: Vec<Option<f64>>,
    /// The learning curve.
    pub curve: Vec<CurvePoint>,
    /// Scores at the sizes of training, beyond, and under stress; null in the sweep.
    pub scores: Option<Scores>,
    /// Seconds of training, samples and learning curve included.
    pub seconds: f64,
    /// The resolved settings, as a run's config.
    pub settings: String,
    /// The program that made it ([`fingerprint`]); empty in files of before it was told.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program: String,
}

/// Scores by split.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Sizes of training.
    pub iid: SplitScore,
    /// Up to 1.5 times.
    pub ood: SplitScore,
    /// Up to 3 times, among distractors.
    pub stress: SplitScore,
}

/// A point of the learning curve.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Steps done.
    pub step: u64,
    /// Nats of an answer token of the validation split, teacher-forced; null in the file where it is not finite (the model
    /// diverged), and then read as NaN.
    #[serde(deserialize_with = "number_or_nan")]
    pub cross_entropy: f64,
}

impl Outcome {
    /// The step at which training ended because too many in a row were not finite.
    pub fn diverged(&self) -> Option<u64> {
        self.curve.last().filter(|last| !last.cross_entropy.is_finite()).map(|last| last.step)
    }
}

impl Trial {
    /// The trial of these settings.
    ///
    /// # Errors
    /// Settings that no run has.
    pub fn new(
        config: &SuiteConfig,
        entry: &Entry,
        task: Task,
        seed: u64,
        steps: u64,
        lr: Option<f64>,
    ) -> anyhow::Result<Self> {
        let mut optimizer = config.optimizer.clone();
        optimizer.extend(lr.map(|lr| ("lr".into(), Value::Float(lr))));
        let mut train = Table::new();
        train.insert("steps".into(), integer(steps)?);
        train.insert("rows".into(), integer(config.train.rows as u64)?);
        let mut run = Table::new();
        run.insert("seed".into(), integer(seed)?);
        let model = Value::try_from(&entry.model).context("cannot write the model's settings")?;
        for (name, section) in [
            ("model", model),
            ("data", unread_data()),
            ("train", Value::Table(train)),
            ("optimizer", Value::Table(optimizer)),
            ("schedule", Value::Table(config.schedule.clone())),
        ] {
            run.insert(name.into(), section);
        }
        Ok(Self {
            task,
            model: entry.name.clone(),
            parameters: entry.parameters,
            run: Run::from_toml(&run.to_string(), "the suite's settings")?,
            eval: config.eval,
            is_sweep: false,
        })
    }

    /// What it is called in messages and as a file.
    pub fn name(&self) -> String {
        let (task, model, seed) = (self.task.name(), &self.model, self.run.seed());
        if self.is_sweep {
            format!("sweep-{task}-{model}-lr{}-{seed}", self.run.optimizer().lr)
        } else {
            format!("{task}-{model}-{seed}")
        }
    }

    /// A digest of everything that the outcome depends on.
    ///
    /// # Errors
    /// Settings that cannot be written.
    pub fn digest(&self) -> anyhow::Result<String> {
        let Self { task, model, run, eval, is_sweep, .. } = self;
        let all = serde_json::to_vec(&(FORMAT, task, model, run.to_toml()?, eval, is_sweep))
            .context("cannot write the settings")?;
        Ok(blake3::hash(&all).to_hex().to_string())
    }

    /// Trains and evaluates on the current thread pool, and puts what was learned into `kept`; `None` if `stop` was raised
    /// meanwhile.
    ///
    /// # Errors
    /// A model that cannot be built, weights that cannot be written.
    pub fn run(&self, stop: &StopFlag, kept: Option<&Kept>) -> anyhow::Result<Option<Outcome>> {
        let (task, seed) = (self.task, self.run.seed());
        let began = Instant::now();
        let mut trainer = Trainer::new(&self.run, &Device::Cpu)?;
        let Some((losses, curve)) = self.train(&mut trainer, stop)? else { return Ok(None) };
        let seconds = began.elapsed().as_secs_f64();
        if let Some(kept) = kept {
            kept.write(self, &trainer)?;
        }
        let score = |split| evaluate(trainer.model(), task, split, seed, self.eval.samples);
        let scores = if self.is_sweep {
            None
        } else {
            Some(Scores { iid: score(Split::Iid)?, ood: score(Split::Ood)?, stress: score(Split::Stress)? })
        };
        Ok(Some(Outcome {
            digest: self.digest()?,
            task,
            model: self.model.clone(),
            seed,
            lr: self.run.optimizer().lr,
            parameters: self.parameters,
            losses,
            curve,
            scores,
            seconds,
            settings: self.run.to_toml()?,
            program: fingerprint().into(),
        }))
    }

    /// The loss of each step, and the learning curve; `None` if `stop` was raised. A trial that diverges ends there with a
    /// point that is no number ([`Outcome::diverged`]): in the sweep its rate has lost, and in the comparison that, too, is a
    /// result, of the weights before the steps that were not finite.
    fn train(&self, trainer: &mut Trainer, stop: &StopFlag) -> anyhow::Result<Option<Learned>> {
        let (task, seed, train) = (self.task, self.run.seed(), self.run.train());
        let settings = SyntheticConfig { task, split: Split::Train, seed, rows: train.rows };
        let mut source = SyntheticSource::open(&settings, None)?;
        let validation: Vec<Sample> =
            (0..self.eval.curve_samples).map(|index| task.sample(Split::Validation, seed, index)).collect();
        let (mut losses, mut curve, mut skipped_in_a_row) = (Vec::new(), Vec::new(), 0);
        for step in 1..=train.steps {
            if stop.raised().is_some() {
                return Ok(None);
            }
            let record = match trainer.step(&[source.next_batch()?]) {
                Ok(record) => record,
                // What ends training after as many skipped steps is one more of them.
                Err(error) if skipped_in_a_row == train.max_skipped => {
                    let what =
                        if self.is_sweep { "its rate is not taken" } else { "it is measured as it stands" };
                    tracing::warn!("{} diverged, {what}: {error:#}", self.name());
                    curve.push(CurvePoint { step, cross_entropy: f64::NAN });
                    break;
                }
                Err(error) => return Err(error),
            };
            skipped_in_a_row = if record.skipped == Some(Skip::NonFinite) { skipped_in_a_row + 1 } else { 0 };
            losses.push(record.loss);
            if step.is_multiple_of(self.eval.every) || step == train.steps {
                let cross_entropy = cross_entropy(trainer.model(), &validation)?;
                curve.push(CurvePoint { step, cross_entropy });
                let loss = record.loss.unwrap_or(f64::NAN);
                tracing::debug!(
                    "{}: step {step}, loss {loss:.4}, validation {cross_entropy:.4}",
                    self.name()
                );
            }
        }
        Ok(Some((losses, curve)))
    }
}

/// The loss of each step, and the learning curve.
type Learned = (Vec<Option<f64>>, Vec<CurvePoint>);

fn integer(number: u64) -> anyhow::Result<Value> {
    Ok(Value::Integer(i64::try_from(number).context("a number that TOML cannot hold")?))
}
