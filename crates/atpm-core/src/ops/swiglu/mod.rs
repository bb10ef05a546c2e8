//! SwiGLU on one packed projection: `out = silu(x[.., :F]) ⊙ x[.., F:]`.
use crate::Result;
use candle_core::Tensor;
/// `out [.., F]` of `x [.., 2F]` (gate first, then up).
///
/// # Errors
/// Shapes or dtypes that do not fit, a device without an implementation.
pub fn forward(_x: &Tensor) -> Result<Tensor> {
    todo!()
}
/// `dx [.., 2F]` of `dout [.., F]`.
///
/// # Errors
/// As [`forward`].
pub fn backward(_x: &Tensor, _dout: &Tensor) -> Result<Tensor> {
    todo!()
}
