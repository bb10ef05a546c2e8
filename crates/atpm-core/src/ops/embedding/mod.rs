//! Rows of a table by id.
//!
//! Shapes: `ids [..]` (u32), `table [V, D]`, `y [.., D]`. dtype f32 (f64 in tests).
//!
//! ```text
//! y_t = table[id_t]        dtable[v] += Σ_{t : id_t = v} dy_t, in the order of t
//! ```
//!
//! Saved for backward: nothing but the ids, which are on the host for every device.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{DType, Tensor};
use half::bf16;

use crate::cuda::{stream_of, with_activation};
use crate::elements::{Element, expect_shape, read, real_dtype, tensor, update, with_real};
use crate::vector::{Precision, unset};
use crate::{Error, Result};

const OP: &str = "embedding";

/// `y [.., D]` of `ids [..]` (u32) and `table [V, D]`. On CUDA, `y` is stored in what `precision` names, on the CPU in
/// the table's dtype.
///
/// # Errors
/// An id ≥ V (with its position), shapes or dtypes that do not fit, a device without an implementation.
pub fn forward(ids: &Tensor, table: &Tensor, precision: Precision) -> Result<Tensor> {
    let (rows, width) = check(ids, table, "table")?;
    read(OP, ids, |ids: &[u32]| check_ids(ids, rows))?;
    if let Some(stream) = stream_of(table)? {
        return match precision {
            Precision::F32 => cuda::forward::<f32>(&stream, ids, table, width),
            Precision::Bf16 => cuda::forward::<bf16>(&stream, ids, table, width),
        };
    }
    with_real!(real_dtype(OP, &[table])?, T => forward_as::<T>(ids, table, width))
}

fn forward_as<T: Element>(ids: &Tensor, table: &Tensor, width: usize) -> Result<Tensor> {
    let mut y = unset::<T>(ids.elem_count() * width);
    read(OP, ids, |ids: &[u32]| {
        read(OP, table, |table| {
            cpu::forward(ids, table, width, &mut y);
            Ok(())
        })
    })?;
    tensor(y, with_width(ids, width))
}

/// Adds `dy [.., D]` to the rows of `dtable [V, D]`, each row in token order (deterministic).
///
/// # Errors
/// As [`forward`].
pub fn backward(ids: &Tensor, dy: &Tensor, dtable: &Tensor) -> Result<()> {
    let (rows, width) = check(ids, dtable, "dtable")?;
    expect_shape(OP, "dy", dy, &with_width(ids, width), "[.., D]")?;
    read(OP, ids, |ids: &[u32]| check_ids(ids, rows))?;
    if let Some(stream) = stream_of(dtable)? {
        return with_activation!(OP, dy, T => cuda::backward::<T>(&stream, ids, dy, dtable, width));
    }
    with_real!(real_dtype(OP, &[dy, dtable])?, T => backward_as::<T>(ids, dy, dtable, width))
}

fn backward_as<T: Element>(ids: &Tensor, dy: &Tensor, dtable: &Tensor, width: usize) -> Result<()> {
    read(OP, ids, |ids: &[u32]| {
        read(OP, dy, |dy: &[T]| {
            update(OP, dtable, |dtable| {
                cpu::backward(ids, dy, width, dtable);
                Ok(())
            })
        })
    })
}

/// `(V, D)`.
fn check(ids: &Tensor, table: &Tensor, argument: &'static str) -> Result<(usize, usize)> {
    if ids.dtype() != DType::U32 {
        return Err(Error::Dtype { op: OP, got: format!("{:?}", ids.dtype()), expected: "u32 ids" });
    }
    table.dims2().map_err(|_| Error::Shape {
        op: OP,
        argument,
        got: table.dims().to_vec(),
        expected: "[V, D]".into(),
    })
}

fn check_ids(ids: &[u32], rows: usize) -> Result<()> {
    match ids.iter().position(|&id| id as usize >= rows) {
        Some(position) => Err(Error::IdOutOfRange { op: OP, id: ids[position], position, rows }),
        None => Ok(()),
    }
}

fn with_width(ids: &Tensor, width: usize) -> Vec<usize> {
    let mut shape = ids.dims().to_vec();
    shape.push(width);
    shape
}
