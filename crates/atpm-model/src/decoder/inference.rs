//! Logits of whole rows, and token by token in constant memory.

use std::collections::BTreeMap;

use atpm_core::Segments;
use atpm_core::ops::linear;
use candle_core::{Device, Tensor};

use super::Decoder;
use crate::decode::DecodeState;
use crate::{Error, Result};

impl Decoder {
    /// The memory of `batch` sequences before their first token.
    ///
    /// # Errors
    /// A device that refuses.
    pub fn decode_state(&self, batch: usize) -> Result<DecodeState> {
        let mut tensors = Vec::new();
        for block in &self.blocks {
            tensors.extend(block.initial_state(batch)?);
        }
        Ok(DecodeState::new(batch, tensors))
    }

    /// The memory of `batch` sequences as it was saved from [`DecodeState::tensors`].
    ///
    /// # Errors
    /// A tensor that is missing, unknown, or of another shape or dtype than this model's.
    pub fn decode_state_from(&self, batch: usize, tensors: BTreeMap<String, Tensor>) -> Result<DecodeState> {
        self.decode_state(batch)?.replaced(tensors)
    }

    /// Logits `[B,T,vocab]` of `ids [B,T]` (u32), all tokens at once. With a `state`, rows go on from
    /// it and move it past their last token; without, they begin with an empty memory.
    ///
    /// # Errors
    /// Shapes that do not fit or are empty, an id outside the vocabulary, a state of another batch size.
    pub fn logits(
        &self,
        ids: &Tensor,
        segments: &Segments,
        state: Option<&mut DecodeState>,
    ) -> Result<Tensor> {
        self.compute(|| {
            let x = self.hidden(ids, segments, state)?;
            Ok(linear::forward(&self.normed(&x)?, &self.head().value, self.precision)?)
        })
    }

    /// Logits `[B,vocab]` of the last token of `ids [B,T]` only; moves `state` past the rows.
    ///
    /// # Errors
    /// As [`Decoder::logits`].
    pub fn prefill(&self, ids: &Tensor, segments: &Segments, state: &mut DecodeState) -> Result<Tensor> {
        self.compute(|| {
            let x = self.hidden(ids, segments, Some(state))?;
            let last = x.narrow(1, segments.tokens() - 1, 1)?.squeeze(1)?.contiguous()?;
            Ok(linear::forward(&self.normed(&last)?, &self.head().value, self.precision)?)
        })
    }

    /// Logits `[B,vocab]` after one more token in each row. Time and memory do not depend on how
    /// much was read before.
    ///
    /// # Errors
    /// As [`Decoder::logits`].
    pub fn step(&self, tokens: &[u32], state: &mut DecodeState) -> Result<Tensor> {
        let ids = Tensor::new(tokens, &Device::Cpu)?.unsqueeze(1)?;
        self.prefill(&ids, &Segments::continuous(tokens.len(), 1), state)
    }

    /// The last block's output `[B,T,d]`.
    fn hidden(&self, ids: &Tensor, segments: &Segments, state: Option<&mut DecodeState>) -> Result<Tensor> {
        let mut x = self.embed(ids, segments)?;
        let Some(state) = state else {
            for block in &self.blocks {
                (x, _) = block.forward(&x, segments)?;
            }
            return Ok(x);
        };
        if state.batch() != segments.batch() {
            let (kept, given) = (state.batch(), segments.batch());
            let problem = format!("it holds {kept} rows, but {given} were given");
            return Err(Error::State { problem });
        }
        for block in &self.blocks {
            x = block.resume(&x, segments, state)?;
        }
        Ok(x)
    }
}
