//! The short convolution in plain candle operations: the definition of correct.

use candle_core::{DType, Device, Tensor};

use crate::{Result, Segments};

/// `(y [B,T,C], final state [B,W−1,C])` of `x [B,T,C]`, `weight [C,W]` and `state [B,W−1,C]` (zeros
/// when absent), of any floating-point dtype.
///
/// # Errors
/// Whatever candle refuses.
pub fn forward(
    x: &Tensor,
    weight: &Tensor,
    state: Option<&Tensor>,
    segments: &Segments,
) -> Result<(Tensor, Tensor)> {
    let (batch, tokens, channels) = x.dims3()?;
    let width = weight.dim(1)?;
    let before = match state {
        Some(state) => state.clone(),
        None => Tensor::zeros((batch, width - 1, channels), x.dtype(), x.device())?,
    };
    let inputs = Tensor::cat(&[&before, x], 1)?;
    let mut pre = x.zeros_like()?;
    for j in 0..width {
        let seen = sees(segments, width - 1 - j, x.dtype())?.narrow(1, 0, tokens)?;
        let input = inputs.narrow(1, j, tokens)?.broadcast_mul(&seen)?;
        pre = (pre + input.broadcast_mul(&weight.narrow(1, j, 1)?.squeeze(1)?)?)?;
    }
    let mut last = Vec::new();
    for j in 0..width - 1 {
        let seen = sees(segments, width - 1 - j, x.dtype())?.narrow(1, tokens, 1)?;
        last.push(inputs.narrow(1, tokens + j, 1)?.broadcast_mul(&seen)?);
    }
    Ok((pre.silu()?, Tensor::cat(&last, 1)?))
}

/// 1 where a token sees the input `back` places before it, else 0: `[B, T+1, 1]`; the last entry is
/// for the token after the row, should it go on with the row's last document.
fn sees(segments: &Segments, back: usize, dtype: DType) -> Result<Tensor> {
    let mut seen = Vec::new();
    for row in 0..segments.batch() {
        let mut next = (0, true);
        for position in segments.row_positions(row) {
            seen.push(f64::from(position.continues || position.in_row >= back));
            next = (position.in_row + 1, position.continues);
        }
        seen.push(f64::from(next.1 || next.0 >= back));
    }
    let shape = (segments.batch(), segments.tokens() + 1, 1);
    Ok(Tensor::from_vec(seen, shape, &Device::Cpu)?.to_dtype(dtype)?)
}
