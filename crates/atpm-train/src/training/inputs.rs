//! From a batch of plain integers to what the model reads.

use atpm_core::Segments;
use atpm_data::{Batch, IGNORE};
use candle_core::{Device, Tensor};

/// One micro-batch on the run's device.
#[derive(Debug)]
pub struct Inputs {
    /// `[rows, tokens]`, u32.
    pub ids: Tensor,
    /// `[rows, tokens]`, u32, [`IGNORE`] where nothing is to be predicted.
    pub targets: Tensor,
    /// Where documents begin.
    pub segments: Segments,
}

impl Inputs {
    /// Copies a batch to the device.
    ///
    /// # Errors
    /// A device that refuses, or document starts that make no sense.
    pub fn of(batch: &Batch, device: &Device) -> anyhow::Result<Self> {
        let shape = (batch.rows, batch.tokens);
        Ok(Self {
            ids: Tensor::from_slice(&batch.ids, shape, device)?,
            targets: Tensor::from_slice(&batch.targets, shape, device)?,
            segments: Segments::from_starts(batch.tokens, batch.starts.clone())?,
        })
    }
}

/// Targets of a batch that count.
pub fn target_tokens(batch: &Batch) -> u64 {
    batch.targets.iter().filter(|&&target| target != IGNORE).count() as u64
}
