//! Matrix products: checked views over slices, what their operands are rounded to, and the `gemm` crate.
#![expect(unsafe_code, reason = "gemm takes raw pointers; the views below check what it may touch")]

use std::ops::Range;

use super::Real;

/// What the operands of a matrix product are rounded to before they are multiplied. Sums are f32
/// either way (f64 for f64 matrices, which are never rounded).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// Not at all.
    #[default]
    F32,
    /// To bf16, nearest even, where the processor multiplies it ([`Precision::supported`]); elsewhere not.
    Bf16,
}

impl Precision {
    /// Whether this processor multiplies in this precision.
    #[must_use]
    pub fn supported(self) -> bool {
        self == Self::F32 || super::bf16_products()
    }
}

/// A matrix read from a slice: element `(i, j)` is at `i·row_stride + j·column_stride`.
#[derive(Clone, Copy)]
pub struct Mat<'a, T> {
    pub(super) data: &'a [T],
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) row_stride: usize,
    pub(super) column_stride: usize,
}

impl<'a, T> Mat<'a, T> {
    /// A row-major matrix whose rows lie `row_stride` elements apart.
    ///
    /// # Panics
    /// If the slice is too short for the last row.
    #[track_caller]
    pub fn rows(data: &'a [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        check_extent(data.len(), rows, columns, row_stride);
        Self { data, rows, columns, row_stride, column_stride: 1 }
    }

    /// A dense row-major matrix.
    #[track_caller]
    pub fn dense(data: &'a [T], rows: usize, columns: usize) -> Self {
        Self::rows(data, rows, columns, columns)
    }

    /// Rows.
    #[must_use]
    pub fn row_count(&self) -> usize {
        self.rows
    }

    /// Columns.
    #[must_use]
    pub fn column_count(&self) -> usize {
        self.columns
    }

    /// The rows and columns in these ranges, no copy.
    ///
    /// # Panics
    /// If a range goes past the end.
    #[must_use]
    #[track_caller]
    pub fn block(self, rows: Range<usize>, columns: Range<usize>) -> Self {
        assert!(rows.end <= self.rows && columns.end <= self.columns, "a block past the end of its matrix");
        let start = rows.start * self.row_stride + columns.start * self.column_stride;
        // An empty block may start past the last element.
        let data = self.data.get(start..).unwrap_or_default();
        Self { data, rows: rows.len(), columns: columns.len(), ..self }
    }

    /// One row, of a view whose rows are contiguous.
    #[inline(always)]
    pub(super) fn line(&self, row: usize) -> &'a [T] {
        debug_assert_eq!(self.column_stride, 1, "lines are contiguous");
        &self.data[row * self.row_stride..][..self.columns]
    }

    /// The transpose: the same elements, no copy.
    #[must_use]
    pub fn t(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// A row-major matrix to be written, its rows `row_stride` elements apart.
pub struct MatMut<'a, T> {
    pub(super) data: &'a mut [T],
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) row_stride: usize,
}

impl<'a, T> MatMut<'a, T> {
    /// A row-major matrix whose rows lie `row_stride` elements apart.
    ///
    /// # Panics
    /// If the slice is too short for the last row, or rows would overlap.
    #[track_caller]
    pub fn rows(data: &'a mut [T], rows: usize, columns: usize, row_stride: usize) -> Self {
        check_extent(data.len(), rows, columns, row_stride);
        Self { data, rows, columns, row_stride }
    }

    /// A dense row-major matrix.
    #[track_caller]
    pub fn dense(data: &'a mut [T], rows: usize, columns: usize) -> Self {
        Self::rows(data, rows, columns, columns)
    }

    /// The rows and columns in these ranges, to be written.
    ///
    /// # Panics
    /// If a range goes past the end.
    #[must_use]
    #[track_caller]
    pub fn block(&mut self, rows: Range<usize>, columns: Range<usize>) -> MatMut<'_, T> {
        assert!(rows.end <= self.rows && columns.end <= self.columns, "a block past the end of its matrix");
        let start = rows.start * self.row_stride + columns.start;
        let data = self.data.get_mut(start..).unwrap_or_default();
        MatMut { data, rows: rows.len(), columns: columns.len(), row_stride: self.row_stride }
    }
}

#[track_caller]
fn check_extent(len: usize, rows: usize, columns: usize, row_stride: usize) {
    assert!(row_stride >= columns || rows <= 1, "rows overlap: {columns} columns, stride {row_stride}");
    let needed = if rows == 0 || columns == 0 { 0 } else { (rows - 1) * row_stride + columns };
    assert!(
        needed <= len,
        "a {rows}×{columns} matrix of stride {row_stride} needs {needed} elements, got {len}"
    );
}

/// `C ← keep·C + A·B` on the whole pool; with `keep = 0` what `C` held is not read.
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
pub fn matmul<T: Real>(mut c: MatMut<'_, T>, keep: T, a: Mat<'_, T>, b: Mat<'_, T>, precision: Precision) {
    assert_eq!((c.rows, c.columns, a.columns), (a.rows, b.columns, b.rows), "matmul shapes (m, n, k)");
    if c.rows > 0 && c.columns > 0 {
        T::matmul(&mut c, keep, a, b, precision);
    }
}

/// The product by the `gemm` crate.
pub(super) fn general<T: Real>(c: &mut MatMut<'_, T>, keep: T, a: Mat<'_, T>, b: Mat<'_, T>) {
    let stride = |n: usize| n.cast_signed();
    // SAFETY: the views were checked against their slices when they were made, so every address
    // gemm reads or writes lies inside one of them; `c` is borrowed mutably, so it aliases neither
    // `a` nor `b`. T is f32 or f64, both of which gemm implements.
    unsafe {
        gemm::gemm(
            c.rows,
            c.columns,
            a.columns,
            c.data.as_mut_ptr(),
            1,
            stride(c.row_stride),
            keep != T::zero(),
            a.data.as_ptr(),
            stride(a.column_stride),
            stride(a.row_stride),
            b.data.as_ptr(),
            stride(b.column_stride),
            stride(b.row_stride),
            keep,
            T::one(),
            false,
            false,
            false,
            gemm::Parallelism::Rayon(rayon::current_num_threads()),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_strided_and_transposed_views() {
        let a: Vec<f64> = (0..20).map(f64::from).collect();
        let b: Vec<f64> = (0..12).map(|i| f64::from(i) - 5.0).collect();
        // A is 3×4 with stride 6, B is the transpose of a dense 2×4.
        let a_at = |i: usize, k: usize| a[i * 6 + k];
        let b_at = |k: usize, j: usize| b[j * 4 + k];
        let mut c = vec![1.0; 3 * 5];
        let (a_view, b_view) = (Mat::rows(&a, 3, 4, 6), Mat::dense(&b, 2, 4).t());
        matmul(MatMut::rows(&mut c, 3, 2, 5), 2.0, a_view, b_view, Precision::F32);
        for i in 0..3 {
            for j in 0..2 {
                let product: f64 = (0..4).map(|k| a_at(i, k) * b_at(k, j)).sum();
                assert!((c[i * 5 + j] - (2.0 + product)).abs() < 1e-12);
            }
            assert_eq!(c[i * 5 + 2], 1.0, "beyond the columns nothing is written");
        }
    }

    #[test]
    fn keep_zero_does_not_read_what_was_there() {
        let mut c = vec![f32::NAN; 4];
        let id = [1.0f32, 0.0, 0.0, 1.0];
        matmul(
            MatMut::dense(&mut c, 2, 2),
            0.0,
            Mat::dense(&id, 2, 2),
            Mat::dense(&id, 2, 2),
            Precision::F32,
        );
        assert_eq!(c, id);
    }

    #[test]
    #[should_panic(expected = "needs 10 elements")]
    fn a_view_longer_than_its_slice_is_refused() {
        let _ = Mat::dense(&[0.0f32; 9], 2, 5);
    }
}
