//! `y = x Wᵀ` in candle operations.

use candle_core::Tensor;

/// The definition; differentiable by candle's autograd.
///
/// # Errors
/// Shapes that do not fit.
pub fn forward(x: &Tensor, weight: &Tensor) -> candle_core::Result<Tensor> {
    x.broadcast_matmul(&weight.t()?)
}
