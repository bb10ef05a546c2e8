//! The decoder: embedding, blocks of ATPM mixer and SwiGLU, head with loss.
//!
//! The backward is written, not taped: a model is a chain of [`Layer`]s. Shapes: `B` rows, `T` tokens,
//! `d` model width.

use candle_core::Tensor;

mod error;
pub use error::{Error, Result};

/// One trainable tensor. Clones share storage, so a layer and the optimiser see the same numbers.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// Its name in checkpoints and exports, such as `blocks.3.mixer.out.weight`.
    pub name: String,
    /// f32 master value.
    pub value: Tensor,
    /// f32 gradient of the same shape; backward passes add into it.
    pub gradient: Tensor,
    /// Whether weight decay applies.
    pub decay: bool,
}

/// What a layer keeps between its forward and its backward pass.
pub struct Saved(Box<dyn std::any::Any + Send>);

/// A differentiable map `[B,T,d] → [B,T,d]` with its own parameters.
pub trait Layer: Send + Sync {
    /// The output, and what backward needs.
    ///
    /// # Errors
    /// Whatever its ops refuse.
    fn forward(&self, x: &Tensor, segments: &atpm_core::Segments) -> Result<(Tensor, Saved)>;
    /// The input's gradient; adds parameter gradients into their buffers.
    ///
    /// # Errors
    /// Whatever its ops refuse, or a `saved` of another layer.
    fn backward(&self, saved: Saved, dy: &Tensor, segments: &atpm_core::Segments) -> Result<Tensor>;
    /// The layer's parameters, in a fixed order.
    fn parameters(&self) -> Vec<Parameter>;
}
