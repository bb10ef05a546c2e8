//! The gated norm in plain candle operations: the definition of correct.

use candle_core::{D, Tensor};

use crate::Result;

/// `out [.., H·D]` of `y [.., H·D]`, `gate [.., H·D]`, `weight [D]`, of any floating-point dtype.
///
/// # Errors
/// Whatever candle refuses.
pub fn forward(y: &Tensor, gate: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let heads = y.reshape(((), weight.dim(0)?))?;
    let mean_square = heads.sqr()?.mean_keepdim(D::Minus1)?;
    let normalized = heads.broadcast_div(&(mean_square + eps)?.sqrt()?)?;
    let weighted = normalized.broadcast_mul(weight)?.reshape(y.shape())?;
    Ok((weighted * gate.silu()?)?)
}
