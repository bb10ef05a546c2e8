//! How the memory of every layer fares on a batch.

use atpm_core::Segments;
use candle_core::Tensor;

use super::Decoder;
use crate::{LayerTelemetry, Result};

impl Decoder {
    /// How the memory of every layer fares on the rows `ids [B,T]` (u32). Layers without a memory
    /// are left out.
    ///
    /// # Errors
    /// Shapes that do not fit, or an id outside the vocabulary.
    pub fn telemetry(&self, ids: &Tensor, segments: &Segments) -> Result<Vec<LayerTelemetry>> {
        let mut x = self.embed(ids, segments)?;
        let mut list = Vec::new();
        for (layer, block) in self.blocks.iter().enumerate() {
            let (y, memory) = block.observe(&x, segments)?;
            list.extend(memory.map(|memory| LayerTelemetry { layer, memory }));
            x = y;
        }
        Ok(list)
    }
}
