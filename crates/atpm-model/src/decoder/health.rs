//! What every layer's memory does: how it fares on a batch, and every value that moved it.

use atpm_core::Segments;
use candle_core::Tensor;

use super::Decoder;
use crate::telemetry::Seen;
use crate::{LayerTelemetry, MemoryHealth, MemoryTrace, Result};

impl Decoder {
    /// How the memory of every layer fares on the rows `ids [B,T]` (u32). Layers without a memory
    /// are left out.
    ///
    /// # Errors
    /// Shapes that do not fit, or an id outside the vocabulary.
    pub fn telemetry(&self, ids: &Tensor, segments: &Segments) -> Result<Vec<LayerTelemetry>> {
        self.watch(ids, segments, |layer, seen| Ok(LayerTelemetry { layer, memory: MemoryHealth::of(seen)? }))
    }

    /// What moved the memory of every layer at every token of the one row `ids [1,T]` (u32), layer by layer. Empty for a
    /// model without an ATPM memory.
    ///
    /// # Errors
    /// As [`Decoder::telemetry`], or more rows than one.
    pub fn trace(&self, ids: &Tensor, segments: &Segments) -> Result<Vec<MemoryTrace>> {
        self.watch(ids, segments, |_, seen| MemoryTrace::of(seen))
    }

    /// What `look` makes of each memory, with the index of its layer.
    fn watch<T>(
        &self,
        ids: &Tensor,
        segments: &Segments,
        look: impl Fn(usize, &Seen<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        let mut x = self.embed(ids, segments)?;
        let mut list = Vec::new();
        for (layer, block) in self.blocks.iter().enumerate() {
            x = block.observe(&x, segments, &mut |seen| {
                list.push(look(layer, seen)?);
                Ok(())
            })?;
        }
        Ok(list)
    }
}
