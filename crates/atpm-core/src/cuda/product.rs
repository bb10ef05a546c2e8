//! A matrix product in device memory.

use super::backend::{Buffer, Stream};
use crate::vector::Precision;
use crate::{Error, Result};

/// An f32 matrix in a buffer, row-major and dense, from one of the buffer's elements on.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    pub(crate) buffer: &'a Buffer<f32>,
    pub(crate) first: usize,
    /// Whether the factor is the transpose of what is stored.
    pub(crate) transposed: bool,
}

impl<'a> Operand<'a> {
    /// All of a buffer.
    pub(crate) fn of(buffer: &'a Buffer<f32>) -> Self {
        Self { buffer, first: 0, transposed: false }
    }
    /// The same memory from this element on.
    pub(crate) fn from(self, first: usize) -> Self {
        Self { first, ..self }
    }
    /// The transpose.
    pub(crate) fn t(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }
}

/// `C ← keep·C + A B` with `A [rows, inner]`, `B [inner, columns]` and `C [rows, columns]`.
pub(crate) struct Product<'a> {
    pub(crate) rows: usize,
    pub(crate) inner: usize,
    pub(crate) columns: usize,
    pub(crate) a: Operand<'a>,
    pub(crate) b: Operand<'a>,
    /// Row-major and dense, from element `c_first` on.
    pub(crate) c: &'a mut Buffer<f32>,
    pub(crate) c_first: usize,
    pub(crate) keep: f32,
    /// What the factors' elements are rounded to; sums are f32.
    pub(crate) precision: Precision,
}

/// A factor as cuBLAS takes it: where it begins, whether it is to be transposed, and how many elements lie between the
/// beginnings of its columns.
pub(super) type Factor = (u64, bool, i32);

impl Stream {
    /// Multiplies two matrices.
    ///
    /// # Errors
    /// Sizes past 2³¹, whatever the library reports.
    pub(crate) fn product(&self, product: Product<'_>) -> Result<()> {
        let Product { rows, inner, columns, a, b, c, c_first, keep, precision } = product;
        if rows * columns == 0 {
            return Ok(());
        }
        let number = |size: usize| {
            let problem = || format!("[{rows}, {inner}] times [{inner}, {columns}] is too large");
            i32::try_from(size).map_err(|_| Error::Argument { op: "product", problem: problem() })
        };
        let (m, n, k) = (number(columns)?, number(rows)?, number(inner)?);
        // The library stores columns one after another. What it is asked for is Cᵀ = Bᵀ Aᵀ: stored so, these are
        // C, B and A stored by rows.
        let left = (b.buffer.address_of(b.first), b.transposed, if b.transposed { k } else { m });
        let right = (a.buffer.address_of(a.first), a.transposed, if a.transposed { n } else { k });
        self.multiply([m, n, k], [left, right], keep, c.address_of(c_first), precision)
    }
}
