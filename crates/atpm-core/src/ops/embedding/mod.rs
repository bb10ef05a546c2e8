//! Rows of a table by id.
use crate::Result;
use candle_core::Tensor;
/// `y [.., D]` of `ids [..]` (u32) and `table [V, D]`.
///
/// # Errors
/// An id ≥ V (with its position), shapes or dtypes that do not fit, a device without an implementation.
pub fn forward(_ids: &Tensor, _table: &Tensor) -> Result<Tensor> {
    todo!()
}
/// Adds `dy [.., D]` to the rows of `dtable [V, D]`, each row in token order (deterministic).
///
/// # Errors
/// As [`forward`].
pub fn backward(_ids: &Tensor, _dy: &Tensor, _dtable: &Tensor) -> Result<()> {
    todo!()
}
