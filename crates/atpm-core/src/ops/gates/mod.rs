//! From gate logits to the mixer's controls.
//!
//! `log α = −exp(A_log)·softplus(x_α + dt_bias)`, `β_K, β_V, ρ, λ = sigmoid(x + bias)`; any controller can be pinned.
use crate::Result;
use candle_core::Tensor;
/// Controllers held at a constant instead of learned; `None` is learned.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pins {
    /// ρ, the strength of transport, in [0, 1].
    pub rho: Option<f64>,
    /// λ, the strength of the recall correction, in [0, 1].
    pub lambda: Option<f64>,
    /// β_V follows β_K: one write strength for the whole entity.
    pub tie_beta: bool,
}
/// Controls `[B,T,5,H]` in the order (log α, β_K, β_V, ρ, λ) of `logits [B,T,5,H]` in the same order, `a_log [H]`,
/// `dt_bias [H]`, `bias [4,H]` (β_K, β_V, ρ, λ).
///
/// # Errors
/// Shapes or dtypes that do not fit, a device without an implementation.
pub fn forward(
    _logits: &Tensor,
    _a_log: &Tensor,
    _dt_bias: &Tensor,
    _bias: &Tensor,
    _pins: Pins,
) -> Result<Tensor> {
    todo!()
}
/// `dlogits [B,T,5,H]`; adds to `da_log`, `ddt_bias`, `dbias`.
///
/// # Errors
/// As [`forward`].
#[expect(clippy::too_many_arguments, reason = "one argument a tensor of the equation")]
pub fn backward(
    _logits: &Tensor,
    _a_log: &Tensor,
    _dt_bias: &Tensor,
    _bias: &Tensor,
    _pins: Pins,
    _dcontrols: &Tensor,
    _da_log: &Tensor,
    _ddt_bias: &Tensor,
    _dbias: &Tensor,
) -> Result<Tensor> {
    todo!()
}
