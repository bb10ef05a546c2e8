//! Attention in plain candle operations: the definition of correct.

use candle_core::{D, DType, Device, Tensor};

use crate::{Result, Segments};

/// `y [B,T,C]` of `qkv [B,T,3C]` with nothing behind the rows, of any floating-point dtype.
///
/// # Errors
/// Whatever candle refuses.
pub fn forward(qkv: &Tensor, heads: usize, segments: &Segments) -> Result<Tensor> {
    let (batch, tokens, triple) = qkv.dims3()?;
    let (channels, width) = (triple / 3, triple / 3 / heads);
    // [B,H,T,D].
    let part = |index: usize| -> Result<Tensor> {
        let part = qkv.narrow(2, index * channels, channels)?.reshape((batch, tokens, heads, width))?;
        Ok(part.transpose(1, 2)?.contiguous()?)
    };
    let (q, k, v) = (rotated(&part(0)?)?, rotated(&part(1)?)?, part(2)?);
    let scores = (q.matmul(&k.t()?.contiguous()?)? * (1.0 / (width as f64).sqrt()))?;
    let scores = scores.broadcast_add(&mask(segments)?.to_dtype(qkv.dtype())?)?;
    let exps = scores.broadcast_sub(&scores.max_keepdim(D::Minus1)?.detach())?.exp()?;
    let shares = exps.broadcast_div(&exps.sum_keepdim(D::Minus1)?)?;
    Ok(shares.matmul(&v)?.transpose(1, 2)?.reshape((batch, tokens, channels))?)
}

/// `[B,H,T,D]` turned by the tokens' places.
fn rotated(x: &Tensor) -> Result<Tensor> {
    let (tokens, half) = (x.dim(2)?, x.dim(3)? / 2);
    let angle = |token: usize, index: usize| token as f64 * 10_000f64.powf(-(index as f64) / half as f64);
    let angles: Vec<f64> = (0..tokens).flat_map(|t| (0..half).map(move |i| angle(t, i))).collect();
    let angles = Tensor::from_vec(angles, (tokens, half), &Device::Cpu)?;
    let (cos, sin) = (angles.cos()?.to_dtype(x.dtype())?, angles.sin()?.to_dtype(x.dtype())?);
    let (low, high) = (x.narrow(3, 0, half)?, x.narrow(3, half, half)?);
    let turned_low = (low.broadcast_mul(&cos)? - high.broadcast_mul(&sin)?)?;
    let turned_high = (low.broadcast_mul(&sin)? + high.broadcast_mul(&cos)?)?;
    Ok(Tensor::cat(&[turned_low, turned_high], 3)?)
}

/// 0 where a token sees another, far below everything where not: `[B,1,T,T]`.
fn mask(segments: &Segments) -> Result<Tensor> {
    let tokens = segments.tokens();
    let mut mask = Vec::new();
    for row in 0..segments.batch() {
        for (token, position) in segments.row_positions(row).enumerate() {
            let first = token - position.in_row;
            mask.extend((0..tokens).map(|seen| if (first..=token).contains(&seen) { 0.0 } else { -1e30 }));
        }
    }
    Ok(Tensor::from_vec(mask, (segments.batch(), 1, tokens, tokens), &Device::Cpu)?.to_dtype(DType::F64)?)
}
