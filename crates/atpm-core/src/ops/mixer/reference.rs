//! The mixer token by token in candle operations, differentiable by candle's autograd.
//!
//! One line an equation, in the order of the table in this op's module page. Slow and plain: the
//! definition that the chunked path is held to.

use candle_core::{D, Device, Tensor};

use super::{Inputs, NORM_EPS, Shape};
use crate::{Result, Segments};

/// `(y [B,T,H·D], E_T [B,H,S,D])` of the inputs, in their dtype.
///
/// # Errors
/// Shapes that do not fit.
pub fn forward(shape: &Shape, inputs: &Inputs<'_>) -> Result<(Tensor, Tensor)> {
    let mut ys = Vec::with_capacity(inputs.segments.tokens());
    let state = walk(shape, inputs, |step| ys.push(step.y))?;
    Ok((Tensor::cat(&ys, 1)?, state))
}

/// What each token found in memory that differs from its own entity: `r = e − αE₋ᵀs`, `[B,T,H,D]`, in the inputs' dtype.
///
/// # Errors
/// Shapes that do not fit.
pub fn residuals(shape: &Shape, inputs: &Inputs<'_>) -> Result<Tensor> {
    let mut residuals = Vec::with_capacity(inputs.segments.tokens());
    walk(shape, inputs, |step| residuals.push(step.residual))?;
    Ok(Tensor::stack(&residuals, 1)?)
}

/// What one token gives.
struct Step {
    /// `[B,1,H·D]`.
    y: Tensor,
    /// `[B,H,D]`.
    residual: Tensor,
}

/// Takes the tokens one after the other; the state after the last, `[B,H,S,D]`.
fn walk(shape: &Shape, inputs: &Inputs<'_>, mut take: impl FnMut(Step)) -> Result<Tensor> {
    let (batch, tokens, _) = inputs.x.dims3()?;
    let Shape { heads, address, key, value, .. } = *shape;
    let x = inputs.x.reshape((batch, tokens, heads, shape.channels()))?;
    let mut state = match inputs.state {
        Some(state) => state.clone(),
        None => Tensor::zeros((batch, heads, address, shape.entity()), inputs.x.dtype(), inputs.x.device())?,
    };
    for t in 0..tokens {
        let row = x.narrow(1, t, 1)?.squeeze(1)?;
        let control = |index: usize| -> candle_core::Result<Tensor> {
            inputs.controls.narrow(1, t, 1)?.squeeze(1)?.narrow(1, index, 1)?.squeeze(1)?.unsqueeze(D::Minus1)
        };
        let (k, v) = (row.narrow(2, 2 * address, key)?, row.narrow(2, 2 * address + key, value)?);
        let s = normalize(&row.narrow(2, address, address)?, 1.0)?;
        let q0 = row.narrow(2, 0, address)?;
        let q0 = if shape.query_norm { normalize(&q0, 1.0)? } else { q0 };

        let transport = inputs.transport;
        let z_key = apply(&transport.a_key, &normalize(&k, key as f64)?)?;
        let z_value = apply(&transport.a_value, &normalize(&v, value as f64)?)?;
        let c = (apply(&transport.c, &(z_key * z_value)?)? / (shape.rank as f64).sqrt())?;
        let b = c.broadcast_div(&(inner(&c, &c)? + 1.0)?.sqrt()?)?;
        let tau = (&b - s.broadcast_mul(&inner(&s, &b)?)?)?;
        let d = (&s + tau.broadcast_mul(&control(3)?)?)?;

        let keep = not_a_start(inputs.segments, t, inputs.x)?;
        let alpha = control(0)?.exp()?.broadcast_mul(&keep)?;
        let decayed = state.broadcast_mul(&alpha.unsqueeze(D::Minus1)?)?;
        let e = Tensor::cat(&[&k, &v], 2)?;
        let residual = (e - read(&decayed, &s)?)?;
        let omega = Tensor::cat(
            &[
                control(1)?.broadcast_as((batch, heads, key))?,
                control(2)?.broadcast_as((batch, heads, value))?,
            ],
            2,
        )?;
        let write = (omega * &residual)?.unsqueeze(2)?;
        state = (decayed + d.unsqueeze(3)?.broadcast_mul(&write)?)?;

        let a = direction(&d)?;
        let gap = inner(&q0, &a)?.affine(-1.0, 1.0)?;
        let q = (q0 + a.broadcast_mul(&(control(4)? * gap)?)?)?;
        take(Step { y: read(&state, &q)?.reshape((batch, 1, heads * shape.entity()))?, residual });
    }
    Ok(state)
}

/// `x/√(Σx²/n + ε)`.
fn normalize(x: &Tensor, n: f64) -> candle_core::Result<Tensor> {
    x.broadcast_div(&((inner(x, x)? / n)? + NORM_EPS)?.sqrt()?)
}

/// `x/‖x‖`; 0, with gradient 0, where `‖x‖ = 0`.
fn direction(x: &Tensor) -> candle_core::Result<Tensor> {
    let square = inner(x, x)?;
    let has_length = square.detach().ne(0.0)?;
    // Without a length the root is taken of 1: that of 0 has no gradient, and ∞·0 would be none either.
    let length = has_length.where_cond(&square, &square.ones_like()?)?.sqrt()?;
    x.broadcast_mul(&has_length.to_dtype(x.dtype())?)?.broadcast_div(&length)
}

/// `xᵀy` over the last dimension, kept as 1.
fn inner(x: &Tensor, y: &Tensor) -> candle_core::Result<Tensor> {
    (x * y)?.sum_keepdim(D::Minus1)
}

/// One weight `[H,N,M]` a head, applied to `x [B,H,M]`.
fn apply(weight: &Tensor, x: &Tensor) -> candle_core::Result<Tensor> {
    weight.unsqueeze(0)?.broadcast_matmul(&x.unsqueeze(3)?)?.squeeze(3)
}

/// `Eᵀq` of `E [B,H,S,D]`, `q [B,H,S]`.
fn read(state: &Tensor, q: &Tensor) -> candle_core::Result<Tensor> {
    q.unsqueeze(2)?.matmul(state)?.squeeze(2)
}

/// `[B,1,1]`: 0 for rows in which a document begins at this token, 1 for the others.
fn not_a_start(segments: &Segments, token: usize, like: &Tensor) -> candle_core::Result<Tensor> {
    let keep: Vec<f64> =
        (0..segments.batch()).map(|row| if segments.is_start(row, token) { 0.0 } else { 1.0 }).collect();
    Tensor::new(keep, &Device::Cpu)?.to_dtype(like.dtype())?.reshape(((), 1, 1))
}
