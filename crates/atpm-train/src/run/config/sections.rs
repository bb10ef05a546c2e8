//! The settings of a run as types, one struct a section. Meaning, unit and default of each key are in
//! [`super::keys`].

use std::path::PathBuf;

use atpm_core::Precision;
use atpm_data::DataConfig;
use atpm_model::ModelConfig;
use serde::{Deserialize, Serialize};

/// All settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sections {
    pub(super) seed: u64,
    pub(super) device: String,
    pub(super) threads: usize,
    pub(super) run_dir: PathBuf,
    pub(super) model: ModelConfig,
    pub(super) data: DataConfig,
    pub(super) train: Train,
    pub(super) optimizer: Optimizer,
    pub(super) schedule: Schedule,
    pub(super) eval: Eval,
    pub(super) checkpoint: Checkpoint,
    pub(super) report: Report,
}

/// `[train]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// Steps that the schedule spans.
    pub steps: u64,
    /// The step to end after, if not the last.
    pub stop_after: Option<u64>,
    /// Rows of a micro-batch.
    pub rows: usize,
    /// Tokens of a row.
    pub tokens: usize,
    /// Micro-batches of a step.
    pub accumulate: usize,
    /// Weight of the squared log-partition.
    pub z_loss: f64,
    /// Skipped steps in a row that are borne.
    pub max_skipped: u64,
    /// What the operands of matrix products are rounded to: `f32` (not at all) or `bf16`.
    pub dtype: String,
}

impl Train {
    /// The precision of matrix products that was asked for.
    pub fn precision(&self) -> Precision {
        precision(&self.dtype)
    }

    /// The step after which this run ends.
    pub fn last_step(&self) -> u64 {
        self.stop_after.unwrap_or(self.steps).min(self.steps)
    }

    /// Input tokens of a step.
    pub fn tokens_per_step(&self) -> u64 {
        (self.rows * self.tokens * self.accumulate) as u64
    }
}

/// The precision that a checked `dtype`, `f32` or `bf16`, stands for.
pub fn precision(dtype: &str) -> Precision {
    if dtype == "bf16" { Precision::Bf16 } else { Precision::F32 }
}

/// `[optimizer]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Optimizer {
    /// Peak learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Largest gradient norm; 0 = no clipping.
    pub clip: f64,
}

/// `[schedule]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// How the rate falls.
    pub kind: ScheduleKind,
    /// Steps of linear warm-up.
    pub warmup: u64,
    /// The last rate, as a share of the peak.
    pub final_ratio: f64,
    /// Steps of the decay (wsd).
    pub decay_steps: u64,
}

/// How the learning rate falls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScheduleKind {
    /// Along half a cosine.
    Cosine,
    /// Held at the peak, then linearly (warmup, stable, decay).
    Wsd,
}

/// `[eval]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Eval {
    /// Steps between evaluations; 0 = never.
    pub every: u64,
    /// Batches of an evaluation; 0 = the whole set.
    pub batches: u64,
    /// Rows of a batch.
    pub rows: usize,
}

/// `[checkpoint]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Steps between checkpoints; 0 = only at the end.
    pub every: u64,
    /// Newest ones kept.
    pub keep_last: u64,
    /// Steps whose multiples are kept for good; 0 = none.
    pub keep_every: u64,
}

/// `[report]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Steps between plain progress lines.
    pub log_every: u64,
    /// Steps between telemetry records; 0 = never.
    pub telemetry_every: u64,
}
