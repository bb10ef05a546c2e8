//! Everything that training changes: parameters, moments and counters.

use anyhow::Context;
use atpm_core::cuda;
use atpm_model::{Decoder, Parameter};
use candle_core::{Device, Tensor};

use super::step::zero_moments;
use crate::checkpoint::{Loaded, TrainState};
use crate::dist::{Collective, Single};
use crate::run::config::Run;

/// A model in training. [`Self::step`] is in the module of that name.
pub struct Trainer {
    pub(super) run: Run,
    pub(super) model: Decoder,
    pub(super) parameters: Vec<Parameter>,
    /// First moments, in the order of the parameters.
    pub(super) m: Vec<Tensor>,
    /// Second moments.
    pub(super) v: Vec<Tensor>,
    pub(super) collective: Box<dyn Collective>,
    pub(super) counters: Counters,
    pub(super) skipped_in_a_row: u64,
}

/// How far a run is; saved with every checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Steps finished, skipped ones included.
    pub step: u64,
    /// Updates made.
    pub updates: u64,
    /// Input tokens read.
    pub tokens_seen: u64,
    /// Target tokens that counted in a loss.
    pub target_tokens: u64,
    /// Steps that changed nothing.
    pub skipped_steps: u64,
}

impl Trainer {
    /// A freshly initialised model with zero moments. The run's vocabulary must be resolved.
    ///
    /// # Errors
    /// A model that cannot be built.
    pub fn new(run: &Run, device: &Device) -> anyhow::Result<Self> {
        let model = Decoder::new(run.model(), run.seed(), device)?.with_precision(run.train().precision());
        if !run.train().precision().supported() && !cuda::is_gpu(device) {
            tracing::warn!(
                "train.dtype = \"bf16\": this processor has no AVX-512 BF16; the products are f32"
            );
        }
        let parameters = model.parameters();
        Ok(Self {
            run: run.clone(),
            m: zero_moments(&parameters)?,
            v: zero_moments(&parameters)?,
            model,
            parameters,
            collective: Box::new(Single),
            counters: Counters::default(),
            skipped_in_a_row: 0,
        })
    }

    /// Takes parameters, moments and counters from a checkpoint.
    ///
    /// # Errors
    /// Tensors that do not fit.
    pub fn restore(&mut self, loaded: &Loaded) -> anyhow::Result<()> {
        loaded.restore(&self.parameters, &self.m, &self.v)?;
        let TrainState { step, updates, tokens_seen, target_tokens, skipped_steps, .. } = loaded.state;
        self.counters = Counters { step, updates, tokens_seen, target_tokens, skipped_steps };
        Ok(())
    }

    /// The model.
    pub fn model(&self) -> &Decoder {
        &self.model
    }

    /// Its parameters.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// First and second moments, in the order of the parameters.
    pub fn moments(&self) -> (&[Tensor], &[Tensor]) {
        (&self.m, &self.v)
    }

    /// How far the run is.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What a checkpoint says besides its tensors, without data position and tokenizer.
    ///
    /// # Errors
    /// Settings that cannot be written.
    pub fn state(&self) -> anyhow::Result<TrainState> {
        let Counters { step, updates, tokens_seen, target_tokens, skipped_steps } = self.counters;
        Ok(TrainState {
            step,
            updates,
            tokens_seen,
            target_tokens,
            skipped_steps,
            data: serde_json::Value::Null,
            config: self.run.to_toml()?,
            tokenizer: String::new(),
            tokenizer_fingerprint: String::new(),
            model: serde_json::to_value(self.run.model()).context("cannot write the model's settings")?,
        })
    }
}
