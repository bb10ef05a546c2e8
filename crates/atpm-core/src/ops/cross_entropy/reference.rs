//! Projection and cross-entropy in plain candle operations: the definition of correct.

use candle_core::Tensor;

use super::IGNORE;
use crate::Result;

/// Token losses `[N]` and `lse² [N]`, both 0 where the target is [`IGNORE`], of `x [N, D]`,
/// `weight [V, D]` and `targets [N]` (u32), of any floating-point dtype.
///
/// # Errors
/// Whatever candle refuses.
pub fn forward(x: &Tensor, weight: &Tensor, targets: &Tensor) -> Result<(Tensor, Tensor)> {
    let logits = x.matmul(&weight.t()?)?;
    let counts = targets.ne(IGNORE)?;
    let lse = logits.log_sum_exp(1)?;
    let index = counts.where_cond(targets, &targets.zeros_like()?)?;
    let target_logits = logits.gather(&index.unsqueeze(1)?, 1)?.squeeze(1)?;
    let mask = counts.to_dtype(x.dtype())?;
    Ok((((&lse - target_logits)? * &mask)?, (lse.sqr()? * &mask)?))
}
