//! One training step of a machine, and its state on disk.

use std::path::{Path, PathBuf};

use anyhow::bail;
use atpm_core::Segments;
use atpm_core::optim::adamw;
use atpm_data::synthetic::Split;
use atpm_data::synthetic::vector::{VectorBatch, VectorStream};
use atpm_model::ntm::Ntm;
use atpm_model::ntm::loss::{BitScore, gradient, score};
use atpm_model::{Layer, Parameter, zero_gradients};
use candle_core::{Device, Tensor};
use serde::{Deserialize, Serialize};

use super::resume;
use super::settings::Settings;
use crate::checkpoint::{self, Contents, Loaded, TrainState};
use crate::run::config::{Schedule, ScheduleKind};
use crate::training::schedule::learning_rate;
use crate::training::step::{clip_scale, members};

/// Decays of AdamW's moments, and what is added to the root of the second.
const BETAS: (f64, f64) = (0.9, 0.999);
const EPS: f64 = 1e-8;
/// What the checkpoint format calls the tokenizer of data that has none.
const NO_TOKENIZER: &str = "none";

/// A machine, its moments, and how far it is.
pub struct Trainer {
    settings: Settings,
    machine: Ntm,
    parameters: Vec<Parameter>,
    m: Vec<Tensor>,
    v: Vec<Tensor>,
    step: u64,
    inputs: u64,
    answer_bits: u64,
}

/// What a score says, as shares.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    /// Mean loss of an answer bit, nats.
    pub loss: f64,
    /// Share of answer bits that are right.
    pub bit_accuracy: f64,
    /// Share of sequences without a wrong bit.
    pub sequence_accuracy: f64,
    /// Cost of a sequence, bits.
    pub bits_per_sequence: f64,
    /// Sequences that were scored.
    pub sequences: u64,
}

impl From<&BitScore> for Accuracy {
    fn from(score: &BitScore) -> Self {
        Self {
            loss: score.loss(),
            bit_accuracy: score.bit_accuracy(),
            sequence_accuracy: score.sequence_accuracy(),
            bits_per_sequence: score.bits_per_sequence(),
            sequences: score.sequences,
        }
    }
}

/// One line of metrics.jsonl.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Record {
    /// The step, from 1.
    pub step: u64,
    /// Mean loss of an answer bit, nats.
    pub loss: f64,
    /// Share of the batch's answer bits that were right before the update.
    pub bit_accuracy: f64,
    /// The batch's size, in the task's unit.
    pub size: usize,
    /// Learning rate.
    pub lr: f64,
    /// Norm of the gradient before clipping.
    pub grad_norm_preclip: f64,
    /// Seconds of the step.
    pub seconds: f64,
    /// Validation after the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval: Option<Accuracy>,
    /// The step that this session went on from, in its first record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<u64>,
}

impl Trainer {
    /// Before the first step.
    ///
    /// # Errors
    /// Sizes that make no machine.
    pub fn new(settings: &Settings) -> anyhow::Result<Self> {
        let machine = Ntm::new(&settings.model, settings.seed)?;
        let parameters = machine.parameters();
        let zeros = || -> anyhow::Result<Vec<Tensor>> {
            parameters.iter().map(|parameter| Ok(parameter.value.zeros_like()?)).collect()
        };
        let (m, v) = (zeros()?, zeros()?);
        let settings = settings.clone();
        Ok(Self { settings, machine, parameters, m, v, step: 0, inputs: 0, answer_bits: 0 })
    }

    /// Where a checkpoint left off.
    ///
    /// # Errors
    /// A checkpoint of another machine or of other data.
    pub fn resume(settings: &Settings, loaded: &Loaded) -> anyhow::Result<Self> {
        resume::compare(&Settings::from_toml(&loaded.state.config)?, settings, &loaded.path)?;
        let mut trainer = Self::new(settings)?;
        loaded.restore(&trainer.parameters, &trainer.m, &trainer.v)?;
        trainer.step = loaded.state.step;
        trainer.inputs = loaded.state.tokens_seen;
        trainer.answer_bits = loaded.state.target_tokens;
        Ok(trainer)
    }

    /// Steps done.
    pub fn step_count(&self) -> u64 {
        self.step
    }

    /// Elements of all parameters.
    pub fn parameter_count(&self) -> usize {
        self.parameters.iter().map(|parameter| parameter.value.elem_count()).sum()
    }

    /// The next batch, forward, backward, update.
    ///
    /// # Errors
    /// A loss or gradient that is not finite; the parameters stay as they were.
    pub fn train_step(&mut self) -> anyhow::Result<Record> {
        let began = std::time::Instant::now();
        let number = self.step + 1;
        let Settings { task, seed, train, .. } = &self.settings;
        let stream = VectorStream { task: *task, split: Split::Train, seed: *seed, rows: train.rows };
        let batch = stream.batch(self.step, self.settings.sizes_at(number));
        self.machine.set_beta_scale(self.settings.beta_scale_at(number));

        zero_gradients(&self.parameters)?;
        let (x, segments) = inputs(&batch, task.inputs())?;
        let (y, saved) = self.machine.forward(&x, &segments)?;
        let logits = y.flatten_all()?.to_vec1::<f32>()?;
        let score = score(&logits, &batch.targets, &batch.answers, batch.rows);
        let dy = gradient(&logits, &batch.targets, &batch.answers);
        self.machine.backward(&x, saved, &Tensor::from_vec(dy, y.shape(), &Device::Cpu)?, &segments)?;
        let norm = self.gradient_norm()?;
        if !score.loss().is_finite() || !norm.is_finite() {
            bail!(
                "step {number}: the loss is {} and the gradient's norm {norm}; the checkpoints are as they were, a lower \
                 train.lr or train.clip may help",
                score.loss()
            );
        }
        let lr = rate(&self.settings, number);
        self.update(lr, clip_scale(norm, train.clip))?;
        self.step = number;
        self.inputs += (batch.rows * batch.steps) as u64;
        self.answer_bits += score.bits;
        Ok(Record {
            step: number,
            loss: score.loss(),
            bit_accuracy: score.bit_accuracy(),
            size: batch.size,
            lr,
            grad_norm_preclip: norm,
            seconds: began.elapsed().as_secs_f64(),
            eval: None,
            resumed_from: None,
        })
    }

    fn gradient_norm(&self) -> anyhow::Result<f64> {
        let gradients: Vec<_> = self.parameters.iter().map(|parameter| &parameter.gradient).collect();
        Ok(adamw::squared_norm_of_all(&gradients)?.sqrt())
    }

    fn update(&self, lr: f64, grad_scale: f64) -> anyhow::Result<()> {
        let config = adamw::Config {
            lr,
            beta1: BETAS.0,
            beta2: BETAS.1,
            eps: EPS,
            weight_decay: self.settings.train.weight_decay,
            grad_scale,
            step: self.step + 1,
        };
        Ok(adamw::update_all(&config, &members(&self.parameters, &self.m, &self.v))?)
    }

    /// Scores the machine as it is now on a split, at the full sizes of training.
    ///
    /// # Errors
    /// An op that refuses.
    pub fn evaluate(&mut self, split: Split) -> anyhow::Result<Accuracy> {
        self.machine.set_beta_scale(self.settings.beta_scale_at(self.step.max(1)));
        let Settings { task, seed, train, eval, .. } = &self.settings;
        let stream = VectorStream { task: *task, split, seed: *seed, rows: train.rows };
        let total = evaluate(&self.machine, &stream, (train.least, train.most), eval.batches)?;
        Ok(Accuracy::from(&total))
    }

    /// Writes a checkpoint and removes the oldest.
    ///
    /// # Errors
    /// A parameter that is not finite, or whatever the file system refuses.
    pub fn save(&self, run_dir: &Path) -> anyhow::Result<PathBuf> {
        let state = TrainState {
            step: self.step,
            updates: self.step,
            tokens_seen: self.inputs,
            target_tokens: self.answer_bits,
            skipped_steps: 0,
            data: serde_json::json!({ "task": self.settings.task, "next": self.step }),
            config: self.settings.to_toml()?,
            tokenizer: NO_TOKENIZER.into(),
            tokenizer_fingerprint: NO_TOKENIZER.into(),
            model: serde_json::to_value(self.machine.config())?,
        };
        let contents =
            Contents { state: &state, parameters: &self.parameters, m: &self.m, v: &self.v, files: &[] };
        let path = checkpoint::save(run_dir, &contents)?;
        checkpoint::prune(run_dir, self.settings.checkpoint.keep_last, 0, &path)?;
        Ok(path)
    }
}

/// Scores a machine on the first `batches` batches of a stream.
///
/// # Errors
/// An op that refuses.
pub fn evaluate(
    machine: &Ntm,
    stream: &VectorStream,
    sizes: (usize, usize),
    batches: u64,
) -> anyhow::Result<BitScore> {
    let mut total = BitScore::default();
    for index in 0..batches {
        let batch = stream.batch(index, sizes);
        let (x, segments) = inputs(&batch, stream.task.inputs())?;
        let logits = machine.forward(&x, &segments)?.0.flatten_all()?.to_vec1::<f32>()?;
        total.add(&score(&logits, &batch.targets, &batch.answers, batch.rows));
    }
    Ok(total)
}

/// A batch as the machine reads it: every row is one sequence.
fn inputs(batch: &VectorBatch, width: usize) -> anyhow::Result<(Tensor, Segments)> {
    let x = Tensor::from_vec(batch.inputs.clone(), (batch.rows, batch.steps, width), &Device::Cpu)?;
    Ok((x, Segments::from_starts(batch.steps, vec![vec![0]; batch.rows])?))
}

fn rate(settings: &Settings, step: u64) -> f64 {
    let train = &settings.train;
    let schedule = Schedule {
        kind: ScheduleKind::Cosine,
        warmup: train.warmup,
        final_ratio: train.final_ratio,
        decay_steps: 0,
    };
    learning_rate(&schedule, train.lr, train.steps, step)
}
