//! The embedding in plain candle operations: the definition of correct.

use candle_core::Tensor;

use crate::Result;

/// `y [.., D]` of `ids [..]` (u32) and `table [V, D]`, of any floating-point dtype.
///
/// # Errors
/// Whatever candle refuses.
pub fn forward(ids: &Tensor, table: &Tensor) -> Result<Tensor> {
    let mut shape = ids.dims().to_vec();
    shape.push(table.dim(1)?);
    Ok(table.index_select(&ids.flatten_all()?, 0)?.reshape(shape)?)
}
