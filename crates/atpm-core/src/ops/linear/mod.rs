//! `y = x Wᵀ`, without bias: matrix products with strides and accumulation.
//!
//! Shapes: `x [.., K]`, `W [N, K]`, `y [.., N]`; leading dimensions are rows. dtype f32 (f64 in
//! tests), accumulated in the same.
//!
//!     y  = x Wᵀ        dx = dy W        dW += dyᵀ x
//!
//! Saved for backward: nothing but `x` and `W` themselves.

use candle_core::Tensor;

use crate::Result;

/// `y [.., N] = x [.., K] · Wᵀ`, `W [N, K]`.
///
/// # Errors
/// Shapes or dtypes that do not fit, a device without an implementation.
pub fn forward(_x: &Tensor, _weight: &Tensor) -> Result<Tensor> {
    todo!()
}

/// The input's gradient `dx [.., K] = dy [.., N] · W`.
///
/// # Errors
/// As [`forward`].
pub fn backward_input(_weight: &Tensor, _dy: &Tensor) -> Result<Tensor> {
    todo!()
}

/// Adds `dy · W` to an existing input gradient `dx [.., K]`, in place: for inputs that several
/// projections read.
///
/// # Errors
/// As [`forward`].
pub fn backward_input_add(_weight: &Tensor, _dy: &Tensor, _dx: &Tensor) -> Result<()> {
    todo!()
}

/// Adds the weight's gradient `dyᵀ x` to `dweight [N, K]`, in place.
///
/// # Errors
/// As [`forward`].
pub fn backward_weight(_x: &Tensor, _dy: &Tensor, _dweight: &Tensor) -> Result<()> {
    todo!()
}
