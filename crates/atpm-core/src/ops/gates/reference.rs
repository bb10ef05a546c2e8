//! The gates in plain candle operations: the definition of correct.

use candle_core::Tensor;

use super::{MAX_DECAY, Pins};
use crate::Result;

/// Controls `[B,T,5,H]` of `logits [B,T,5,H]`, `a_log [H]`, `dt_bias [H]`, `bias [4,H]`, of any
/// floating-point dtype. Differentiable where `exp(a_log)` is finite.
///
/// # Errors
/// Whatever candle refuses.
pub fn forward(
    logits: &Tensor,
    a_log: &Tensor,
    dt_bias: &Tensor,
    bias: &Tensor,
    pins: Pins,
) -> Result<Tensor> {
    let u = logits.narrow(2, 0, 1)?.broadcast_add(dt_bias)?;
    let decay = softplus(&u)?.broadcast_mul(&a_log.exp()?)?;
    let log_alpha = decay.clamp(0.0, MAX_DECAY)?.neg()?;

    let strengths = candle_nn::ops::sigmoid(&logits.narrow(2, 1, 4)?.broadcast_add(bias)?)?;
    let strength = |index: usize, pin: Option<f64>| -> Result<Tensor> {
        let learned = strengths.narrow(2, index, 1)?;
        Ok(match pin {
            Some(value) => learned.ones_like()?.affine(value, 0.0)?,
            None => learned,
        })
    };
    let beta_key = strength(0, None)?;
    let beta_value = if pins.tie_beta { beta_key.clone() } else { strength(1, None)? };
    let (rho, lambda) = (strength(2, pins.rho)?, strength(3, pins.lambda)?);
    Ok(Tensor::cat(&[log_alpha, beta_key, beta_value, rho, lambda], 2)?)
}

/// `ln(1 + e^u)`, which is `u` itself to the last bit of f64 from 40 on.
fn softplus(u: &Tensor) -> Result<Tensor> {
    let small = (u.minimum(40.0)?.exp()? + 1.0)?.log()?;
    Ok(u.ge(40.0)?.where_cond(u, &small)?)
}
