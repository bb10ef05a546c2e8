//! RMSNorm: `y = x / √(mean(x²) + ε) ⊙ w`.
use crate::Result;
use candle_core::Tensor;
/// `y [.., D]` of `x [.., D]`, `weight [D]`.
///
/// # Errors
/// Shapes or dtypes that do not fit, a device without an implementation.
pub fn forward(_x: &Tensor, _weight: &Tensor, _eps: f64) -> Result<Tensor> {
    todo!()
}
/// `dx [.., D]`, with `residual [.., D]` (the gradient that bypasses the norm) added to it when given;
/// adds to `dweight [D]`.
///
/// # Errors
/// As [`forward`].
pub fn backward(
    _x: &Tensor,
    _weight: &Tensor,
    _eps: f64,
    _dy: &Tensor,
    _residual: Option<&Tensor>,
    _dweight: &Tensor,
) -> Result<Tensor> {
    todo!()
}
