//! From a batch of plain integers to what the model reads.

use atpm_core::Segments;
use atpm_data::{Batch, IGNORE};
use candle_core::{Device, Tensor};

/// One micro-batch. Ids, targets and document starts are on the host for every device: there they are checked.
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
    /// Copies a batch.
    ///
    /// # Errors
    /// Document starts that make no sense.
    pub fn of(batch: &Batch) -> anyhow::Result<Self> {
        let shape = (batch.rows, batch.tokens);
        Ok(Self {
            ids: Tensor::from_slice(&batch.ids, shape, &Device::Cpu)?,
            targets: Tensor::from_slice(&batch.targets, shape, &Device::Cpu)?,
            segments: Segments::from_starts(batch.tokens, batch.starts.clone())?,
        })
    }
}

/// Targets of a batch that count.
pub fn target_tokens(batch: &Batch) -> u64 {
    batch.targets.iter().filter(|&&target| target != IGNORE).count() as u64
}
