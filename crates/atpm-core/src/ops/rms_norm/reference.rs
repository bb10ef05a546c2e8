//! RMSNorm in plain candle operations: the definition of correct.

use candle_core::{D, Tensor};

use crate::Result;

/// `y [.., D]` of `x [.., D]`, `weight [D]`, of any floating-point dtype.
///
/// # Errors
/// Whatever candle refuses.
pub fn forward(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let mean_square = x.sqr()?.mean_keepdim(D::Minus1)?;
    let normalized = x.broadcast_div(&(mean_square + eps)?.sqrt()?)?;
    Ok(normalized.broadcast_mul(weight)?)
}
