//! The seam that models are chains of: a map with a written backward.
//!
//! Shapes: `B` rows, `T` tokens, `d` model width.

use std::any::Any;

use atpm_core::{Precision, Segments};
use candle_core::Tensor;

use crate::decode::DecodeState;
use crate::telemetry::See;
use crate::{Error, Parameter, Result};

/// A differentiable map `[B,T,d] → [B,T,d]` with its own parameters.
pub trait Layer: Send + Sync {
    /// The output, and what backward needs besides `x`.
    ///
    /// # Errors
    /// Whatever its ops refuse.
    fn forward(&self, x: &Tensor, segments: &Segments) -> Result<(Tensor, Saved)>;

    /// The input's gradient; adds parameter gradients into their buffers. The caller has kept `x`,
    /// so that no tensor is saved twice and recomputation can start from it.
    ///
    /// # Errors
    /// Whatever its ops refuse, or a `saved` of another layer.
    fn backward(&self, x: &Tensor, saved: Saved, dy: &Tensor, segments: &Segments) -> Result<Tensor>;

    /// What the operands of the layer's matrix products are rounded to from now on; f32 until then. A layer
    /// without such products, or with its own idea of them, has nothing to do.
    fn set_precision(&mut self, _precision: Precision) {}

    /// The layer's parameters, in a fixed order.
    fn parameters(&self) -> Vec<Parameter>;

    /// What the layer remembers before the first token of `batch` rows, by full name. Empty for a
    /// layer that looks at one token at a time.
    ///
    /// # Errors
    /// A device that refuses.
    fn initial_state(&self, _batch: usize) -> Result<Vec<(String, Tensor)>> {
        Ok(Vec::new())
    }

    /// The output for tokens that go on from `state`, which is moved past them. Nothing is saved.
    ///
    /// # Errors
    /// A layer without a decode path, or whatever its ops refuse.
    fn resume(&self, x: &Tensor, segments: &Segments, state: &mut DecodeState) -> Result<Tensor>;

    /// The output; if the layer has a memory, `see` is shown what happened to it.
    ///
    /// # Errors
    /// As [`Layer::forward`], or whatever `see` refuses.
    fn observe(&self, x: &Tensor, segments: &Segments, _see: See<'_>) -> Result<Tensor> {
        Ok(self.forward(x, segments)?.0)
    }
}

/// What a layer keeps between its forward and its backward pass.
pub struct Saved {
    kept: Box<dyn Any + Send>,
    bytes: usize,
}

impl Saved {
    /// Keeps `kept`, whose tensors hold `bytes` bytes.
    pub fn new(kept: impl Any + Send, bytes: usize) -> Self {
        Self { kept: Box::new(kept), bytes }
    }

    /// Bytes of all tensors that are kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What `layer` kept.
    ///
    /// # Errors
    /// It was another layer that kept this.
    pub fn take<T: Any>(self, layer: &'static str) -> Result<T> {
        self.kept.downcast().map(|kept| *kept).map_err(|_| Error::ForeignSaved { layer })
    }
}

/// Bytes of a few tensors.
pub fn bytes<'a>(tensors: impl IntoIterator<Item = &'a Tensor>) -> usize {
    tensors.into_iter().map(|tensor| tensor.elem_count() * tensor.dtype().size_in_bytes()).sum()
}

/// Activation checkpointing: saves nothing, and runs the inner layer's forward again in backward.
pub struct Checkpointed(pub Box<dyn Layer>);

impl Layer for Checkpointed {
    fn forward(&self, x: &Tensor, segments: &Segments) -> Result<(Tensor, Saved)> {
        Ok((self.0.forward(x, segments)?.0, Saved::new((), 0)))
    }

    fn backward(&self, x: &Tensor, saved: Saved, dy: &Tensor, segments: &Segments) -> Result<Tensor> {
        saved.take::<()>("checkpointed")?;
        let (_, saved) = self.0.forward(x, segments)?;
        self.0.backward(x, saved, dy, segments)
    }

    fn set_precision(&mut self, precision: Precision) {
        self.0.set_precision(precision);
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.0.parameters()
    }

    fn initial_state(&self, batch: usize) -> Result<Vec<(String, Tensor)>> {
        self.0.initial_state(batch)
    }

    fn resume(&self, x: &Tensor, segments: &Segments, state: &mut DecodeState) -> Result<Tensor> {
        self.0.resume(x, segments, state)
    }

    fn observe(&self, x: &Tensor, segments: &Segments, see: See<'_>) -> Result<Tensor> {
        self.0.observe(x, segments, see)
    }
}
