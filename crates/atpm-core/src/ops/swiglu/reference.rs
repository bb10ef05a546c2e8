//! SwiGLU in plain candle operations: the definition of correct.

use candle_core::{D, Tensor};

use crate::Result;

/// `out [.., F]` of `x [.., 2F]`, of any floating-point dtype.
///
/// # Errors
/// Whatever candle refuses.
pub fn forward(x: &Tensor) -> Result<Tensor> {
    let width = x.dim(D::Minus1)? / 2;
    let gate = x.narrow(D::Minus1, 0, width)?;
    let up = x.narrow(D::Minus1, width, width)?;
    Ok((gate.silu()? * up)?)
}
