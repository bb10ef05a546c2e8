//! AdamW in plain candle operations: the definition of correct.

use candle_core::Tensor;

use super::Config;
use crate::Result;

/// The next `(parameter, m, v)`, as new tensors of any floating-point dtype.
///
/// # Errors
/// Whatever candle refuses.
pub fn update(
    config: &Config,
    parameter: &Tensor,
    m: &Tensor,
    v: &Tensor,
    gradient: &Tensor,
) -> Result<(Tensor, Tensor, Tensor)> {
    let (correction1, correction2) = config.bias_corrections();
    let g = (gradient * config.grad_scale)?;
    let m = ((m * config.beta1)? + (&g * (1.0 - config.beta1))?)?;
    let v = ((v * config.beta2)? + (g.sqr()? * (1.0 - config.beta2))?)?;
    let direction = ((&m / correction1)? / ((&v / correction2)?.sqrt()? + config.eps)?)?;
    let decayed = (parameter - (parameter * (config.lr * config.weight_decay))?)?;
    Ok(((decayed - (direction * config.lr)?)?, m, v))
}
