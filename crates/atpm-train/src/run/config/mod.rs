//! Settings of a run: a TOML file and `--set` overrides in, a validated [`Run`] out.
//!
//! [`keys`] lists every key with its default; a file is laid over that list, checked key by key, and read
//! into one struct a section. A [`Run`] cannot be changed, only made anew with overrides, so that what was
//! validated stays so.

pub mod changes;
mod check;
pub mod keys;
mod load;
mod resolve;
mod sections;
#[cfg(test)]
mod tests;
mod tokenizer;

use std::path::Path;

use anyhow::Context;
use atpm_data::{DataConfig, TextConfig};
use atpm_model::ModelConfig;

pub use load::load;
pub use sections::{Checkpoint, Eval, Optimizer, Report, Schedule, ScheduleKind, Train, precision};
pub use tokenizer::TokenizerSpec;

use sections::Sections;

/// The validated settings of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    sections: Sections,
}

impl Run {
    /// Reads settings from TOML text, such as a checkpoint's or a run folder's `config.toml`; `origin` is
    /// named in messages.
    ///
    /// # Errors
    /// A mistake in the text, named with section and key.
    pub fn from_toml(text: &str, origin: &str) -> anyhow::Result<Self> {
        load::from_text::<&str>(text, origin, None, &[])
    }

    /// The same run with `key=value` overrides, validated again.
    ///
    /// # Errors
    /// As [`Self::from_toml`].
    pub fn with<S: AsRef<str>>(&self, overrides: &[S]) -> anyhow::Result<Self> {
        load::from_text(&self.to_toml()?, "the run's settings", None, overrides)
    }

    /// All settings as TOML; reads back to the same run.
    ///
    /// # Errors
    /// A path that is not UTF-8.
    pub fn to_toml(&self) -> anyhow::Result<String> {
        toml::to_string(&self.sections).context("cannot write the settings as TOML")
    }

    /// Seed of initialisation and data order.
    pub fn seed(&self) -> u64 {
        self.sections.seed
    }

    /// `auto` or a device's name.
    pub fn device(&self) -> &str {
        &self.sections.device
    }

    /// CPU threads; 0 = all cores.
    pub fn threads(&self) -> usize {
        self.sections.threads
    }

    /// The run's folder.
    pub fn run_dir(&self) -> &Path {
        &self.sections.run_dir
    }

    /// `[model]`; `vocab` may still be 0, see [`Self::with_vocab_for`].
    pub fn model(&self) -> &ModelConfig {
        &self.sections.model
    }

    /// `[data]`.
    pub fn data(&self) -> &DataConfig {
        &self.sections.data
    }

    /// `[train]`.
    pub fn train(&self) -> &Train {
        &self.sections.train
    }

    /// `[optimizer]`.
    pub fn optimizer(&self) -> &Optimizer {
        &self.sections.optimizer
    }

    /// `[schedule]`.
    pub fn schedule(&self) -> &Schedule {
        &self.sections.schedule
    }

    /// `[eval]`.
    pub fn eval(&self) -> &Eval {
        &self.sections.eval
    }

    /// `[checkpoint]`.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.sections.checkpoint
    }

    /// `[report]`.
    pub fn report(&self) -> &Report {
        &self.sections.report
    }

    /// What the training stream needs to know.
    pub fn train_text(&self) -> TextConfig {
        TextConfig::new(self.data().clone(), self.seed(), self.train().rows, self.train().tokens)
    }

    /// What a validation pass needs to know.
    pub fn eval_text(&self) -> TextConfig {
        TextConfig::new(self.data().clone(), self.seed(), self.eval().rows, self.train().tokens)
    }
}
