//! A matrix product in device memory.

use std::marker::PhantomData;

use super::backend::{Buffer, Stream};
use super::launch::Activation;
use crate::vector::Precision;
use crate::{Error, Result};

/// What a matrix is stored in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stored {
    F32,
    Bf16,
}

/// A row-major matrix in a buffer, from one of the buffer's elements on.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    address: u64,
    stored: Stored,
    /// Whether the factor is the transpose of what is stored.
    transposed: bool,
    /// Elements from one row to the next; the rows are dense where there is none.
    pitch: Option<usize>,
    buffer: PhantomData<&'a ()>,
}

impl<'a> Operand<'a> {
    /// All of a buffer.
    pub(crate) fn of<T: Activation>(buffer: &'a Buffer<T>) -> Self {
        Self::from(buffer, 0)
    }
    /// The buffer from this element on.
    pub(crate) fn from<T: Activation>(buffer: &'a Buffer<T>, first: usize) -> Self {
        let stored = T::choose(Stored::F32, Stored::Bf16);
        Self {
            address: buffer.address_of(first),
            stored,
            transposed: false,
            pitch: None,
            buffer: PhantomData,
        }
    }
    /// bf16 rows in memory of f32: each begins where the f32 row of `columns` would.
    pub(crate) fn rounded_in_place(buffer: &'a Buffer<f32>, columns: usize) -> Self {
        Self { stored: Stored::Bf16, pitch: Some(2 * columns), ..Self::of(buffer) }
    }
    /// The transpose.
    pub(crate) fn t(self) -> Self {
        Self { transposed: !self.transposed, ..self }
    }
}

/// Where a product goes: dense rows in a buffer, from one of its elements on.
pub(crate) struct Target<'a> {
    address: u64,
    stored: Stored,
    buffer: PhantomData<&'a mut ()>,
}

impl<'a> Target<'a> {
    /// All of a buffer.
    pub(crate) fn of<T: Activation>(buffer: &'a mut Buffer<T>) -> Self {
        Self::from(buffer, 0)
    }
    /// The buffer from this element on.
    pub(crate) fn from<T: Activation>(buffer: &'a mut Buffer<T>, first: usize) -> Self {
        let stored = T::choose(Stored::F32, Stored::Bf16);
        Self { address: buffer.address_of(first), stored, buffer: PhantomData }
    }
}

/// `C ← keep·C + A B` with `A [rows, inner]`, `B [inner, columns]` and `C [rows, columns]`. Both factors are stored alike;
/// sums are f32.
pub(crate) struct Product<'a> {
    pub(crate) rows: usize,
    pub(crate) inner: usize,
    pub(crate) columns: usize,
    pub(crate) a: Operand<'a>,
    pub(crate) b: Operand<'a>,
    pub(crate) c: Target<'a>,
    pub(crate) keep: f32,
    /// What elements of f32 factors are rounded to.
    pub(crate) precision: Precision,
}

/// A factor as cuBLAS takes it: where it begins, whether it is to be transposed, and how many elements lie between the
/// beginnings of its columns.
pub(super) type Factor = (u64, bool, i32);

impl Stream {
    /// Multiplies two matrices.
    ///
    /// # Errors
    /// Sizes past 2³¹, factors that are not stored alike, whatever the library reports.
    pub(crate) fn product(&self, product: Product<'_>) -> Result<()> {
        let Product { rows, inner, columns, a, b, c, keep, precision } = product;
        if rows * columns == 0 {
            return Ok(());
        }
        let refusal = |problem: String| Error::Argument { op: "product", problem };
        if a.stored != b.stored {
            return Err(refusal(format!("a factor in {:?} and one in {:?}", a.stored, b.stored)));
        }
        let number = |size: usize| {
            let problem = || format!("[{rows}, {inner}] times [{inner}, {columns}] is too large");
            i32::try_from(size).map_err(|_| refusal(problem()))
        };
        let (m, n, k) = (number(columns)?, number(rows)?, number(inner)?);
        // The library stores columns one after another. What it is asked for is Cᵀ = Bᵀ Aᵀ: stored so, these are
        // C, B and A stored by rows.
        let factor = |operand: Operand<'_>, dense: i32| {
            let pitch = operand.pitch.map_or(Ok(dense), number)?;
            Ok::<Factor, Error>((operand.address, operand.transposed, pitch))
        };
        let left = factor(b, if b.transposed { k } else { m })?;
        let right = factor(a, if a.transposed { n } else { k })?;
        self.multiply([m, n, k], [left, right], keep, c.address, [a.stored, c.stored], precision)
    }
}
