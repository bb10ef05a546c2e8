//! RMSNorm per head times a SiLU gate: `out = y / √(mean_head(y²) + ε) ⊙ w ⊙ silu(z)`.
use crate::Result;
use candle_core::Tensor;
/// `out [.., H·D]` of `y [.., H·D]`, `gate [.., H·D]`, `weight [D]` (shared by the heads).
///
/// # Errors
/// Shapes or dtypes that do not fit, a device without an implementation.
pub fn forward(_y: &Tensor, _gate: &Tensor, _weight: &Tensor, _eps: f64) -> Result<Tensor> {
    todo!()
}
/// `(dy, dgate)`; adds to `dweight [D]`.
///
/// # Errors
/// As [`forward`].
pub fn backward(
    _y: &Tensor,
    _gate: &Tensor,
    _weight: &Tensor,
    _eps: f64,
    _dout: &Tensor,
    _dweight: &Tensor,
) -> Result<(Tensor, Tensor)> {
    todo!()
}
