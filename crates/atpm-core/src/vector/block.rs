//! Products of small matrices that lie in the core's cache, as a chunk of the mixer needs them.
//!
//! Nothing is packed: a tile of `C` stays in registers while `k` runs. Every element is one chain of
//! fused multiply-adds in the order of `k`, whatever the instruction set, so all machines agree to
//! the bit. That is what it is for: on blocks of 64 the `gemm` crate is the faster one so far, by the
//! figures in docs/results.md.
#![expect(unsafe_code, reason = "the inner loop reads through pointers whose extent was checked once")]

use pulp::Simd;

use super::matrix::{Mat, MatMut};
use super::{Real, arch};

/// Rows of `C` that stay in registers together: with two vectors each, twelve accumulators.
const TILE_ROWS: usize = 6;

/// `C ← keep·C + A·B` on the caller's thread; with `keep = 0` what `C` held is not read.
/// `B`'s rows must be contiguous; `A` may be a transposed view.
///
/// # Panics
/// If the shapes do not fit, or `B` is a transposed view.
#[track_caller]
pub fn product<T: Real>(mut c: MatMut<'_, T>, keep: T, a: Mat<'_, T>, b: Mat<'_, T>) {
    assert_eq!((c.rows, c.columns, a.columns), (a.rows, b.columns, b.rows), "product shapes (m, n, k)");
    assert_eq!(b.column_stride, 1, "the right operand's rows must be contiguous");
    T::block_product(&mut c, keep, a, b);
}

/// The f32 kernel, on the best instruction set.
pub(super) fn product_f32(c: &mut MatMut<'_, f32>, keep: f32, a: Mat<'_, f32>, b: Mat<'_, f32>) {
    arch().dispatch(Product { c, keep, a, b });
}

/// A struct and not a closure, because only a method can be forced inline, and a kernel of this size
/// that is not inlined into the dispatch calls a function for every vector instruction.
struct Product<'a, 'c> {
    c: &'a mut MatMut<'c, f32>,
    keep: f32,
    a: Mat<'a, f32>,
    b: Mat<'a, f32>,
}

impl pulp::WithSimd for Product<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        columns(simd, self.c, self.keep, self.a, self.b);
    }
}

/// The same value without vectors: f64, other machines, and the twin that the kernel is tested against.
#[inline(always)]
pub(super) fn product_plain<T: Real>(c: &mut MatMut<'_, T>, keep: T, a: Mat<'_, T>, b: Mat<'_, T>) {
    for row in 0..c.rows {
        for column in 0..c.columns {
            let mut sum = T::zero();
            for k in 0..a.columns {
                let a = a.data[row * a.row_stride + k * a.column_stride];
                sum = a.mul_add(b.data[k * b.row_stride + column], sum);
            }
            let out = &mut c.data[row * c.row_stride + column];
            *out = if keep == T::zero() { sum } else { keep.mul_add(*out, sum) };
        }
    }
}

#[inline(always)]
fn columns<S: Simd>(simd: S, c: &mut MatMut<'_, f32>, keep: f32, a: Mat<'_, f32>, b: Mat<'_, f32>) {
    let lanes = S::F32_LANES;
    let mut column = 0;
    while column + 2 * lanes <= c.columns {
        rows::<S, 2, false>(simd, c, column, keep, a, b);
        column += 2 * lanes;
    }
    if column + lanes <= c.columns {
        rows::<S, 1, false>(simd, c, column, keep, a, b);
        column += lanes;
    }
    if column < c.columns {
        rows::<S, 1, true>(simd, c, column, keep, a, b);
    }
}

/// `N` vectors of columns, all rows; `RAGGED`: one vector, of which only the lanes up to the last column count.
#[inline(always)]
fn rows<S: Simd, const N: usize, const RAGGED: bool>(
    simd: S,
    c: &mut MatMut<'_, f32>,
    column: usize,
    keep: f32,
    a: Mat<'_, f32>,
    b: Mat<'_, f32>,
) {
    let mut row = 0;
    while row + TILE_ROWS <= c.rows {
        tile::<S, TILE_ROWS, N, RAGGED>(simd, c, row, column, keep, a, b);
        row += TILE_ROWS;
    }
    match c.rows - row {
        5 => tile::<S, 5, N, RAGGED>(simd, c, row, column, keep, a, b),
        4 => tile::<S, 4, N, RAGGED>(simd, c, row, column, keep, a, b),
        3 => tile::<S, 3, N, RAGGED>(simd, c, row, column, keep, a, b),
        2 => tile::<S, 2, N, RAGGED>(simd, c, row, column, keep, a, b),
        1 => tile::<S, 1, N, RAGGED>(simd, c, row, column, keep, a, b),
        _ => {}
    }
}

/// `M` rows by `N` vectors of `C` from `(row, column)` on.
#[inline(always)]
fn tile<S: Simd, const M: usize, const N: usize, const RAGGED: bool>(
    simd: S,
    c: &mut MatMut<'_, f32>,
    row: usize,
    column: usize,
    keep: f32,
    a: Mat<'_, f32>,
    b: Mat<'_, f32>,
) {
    let mut sums = [[simd.splat_f32s(0.0); N]; M];
    let lanes = S::F32_LANES;
    let mask = simd.mask_between_m32s(0, if RAGGED { c.columns - column } else { lanes } as u32);
    // SAFETY: the views were checked against their slices when they were made: `A` holds `(i, k)` for
    // all `i < c.rows` and `k < a.columns`, `B` and `C` hold their rows up to `c.columns`. The callers
    // keep `row + M ≤ c.rows` and `column + N·lanes ≤ c.columns`, or read and write no lane past the last
    // column. Vectors are read and written unaligned, and f32 vectors are plain data.
    unsafe {
        let read = |at: *const f32| {
            if RAGGED { simd.mask_load_ptr_f32s(mask, at) } else { at.cast::<S::f32s>().read_unaligned() }
        };
        let a_start = a.data.as_ptr().add(row * a.row_stride);
        let b_start = b.data.as_ptr().add(column);
        for k in 0..a.columns {
            let b_row = b_start.add(k * b.row_stride);
            let b_row: [S::f32s; N] = std::array::from_fn(|n| read(b_row.add(n * lanes)));
            let a_column = a_start.add(k * a.column_stride);
            for (m, sums) in sums.iter_mut().enumerate() {
                let a = simd.splat_f32s(*a_column.add(m * a.row_stride));
                for (sum, &b) in sums.iter_mut().zip(&b_row) {
                    *sum = simd.mul_add_f32s(a, b, *sum);
                }
            }
        }
        let c_start = c.data.as_mut_ptr().add(row * c.row_stride + column);
        let kept = simd.splat_f32s(keep);
        for (m, sums) in sums.iter().enumerate() {
            let c_row = c_start.add(m * c.row_stride);
            for (n, &sum) in sums.iter().enumerate() {
                let out = c_row.add(n * lanes);
                let value = if keep == 0.0 { sum } else { simd.mul_add_f32s(kept, read(out), sum) };
                if RAGGED {
                    simd.mask_store_ptr_f32s(mask, out, value);
                } else {
                    out.cast::<S::f32s>().write_unaligned(value);
                }
            }
        }
    }
}

/// `out [columns, rows]` ← the transpose of `matrix [rows, columns]`, both dense.
#[inline(always)]
pub fn transpose<T: Copy>(matrix: &[T], rows: usize, columns: usize, out: &mut [T]) {
    const BLOCK: usize = 16;
    for first_row in (0..rows).step_by(BLOCK) {
        for column in 0..columns {
            let last_row = (first_row + BLOCK).min(rows);
            let out = &mut out[column * rows + first_row..column * rows + last_row];
            for (out, row) in out.iter_mut().zip(first_row..) {
                *out = matrix[row * columns + column];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn numbers(random: &mut Random, len: usize) -> Vec<f32> {
        (0..len).map(|_| (random.unit() - 0.5) as f32).collect()
    }

    // The kernel against its plain twin, to the bit, over every remainder of rows and columns.
    #[test]
    fn every_tile_equals_the_plain_twin() {
        let mut random = Random::new(3);
        for rows in 1..=13 {
            for columns in [1, 7, 8, 15, 16, 17, 31, 32, 33, 48, 64, 70] {
                for (inner, keep, transposed) in [(1, 0.0, false), (5, 1.0, true), (64, 0.25, false)] {
                    let a = numbers(&mut random, rows * inner);
                    let b = numbers(&mut random, inner * (columns + 3));
                    let start = numbers(&mut random, rows * (columns + 2));
                    let a = if transposed {
                        Mat::dense(&a, inner, rows).t()
                    } else {
                        Mat::dense(&a, rows, inner)
                    };
                    let b = Mat::rows(&b, inner, columns, columns + 3);
                    let (mut got, mut want) = (start.clone(), start);
                    product(MatMut::rows(&mut got, rows, columns, columns + 2), keep, a, b);
                    let mut twin = MatMut::rows(&mut want, rows, columns, columns + 2);
                    product_plain(&mut twin, keep, a, b);
                    assert_eq!(got, want, "{rows}×{columns}, k {inner}");
                }
            }
        }
    }

    #[test]
    fn keep_zero_does_not_read_what_was_there() {
        let mut c = vec![f32::NAN; 4 * 40];
        let (a, b) = ([1.0f32; 4], [2.0f32; 40]);
        product(MatMut::dense(&mut c, 4, 40), 0.0, Mat::dense(&a, 4, 1), Mat::dense(&b, 1, 40));
        assert!(c.iter().all(|&x| x == 2.0));
    }

    #[test]
    fn transposes_of_any_size() {
        for (rows, columns) in [(1, 1), (3, 40), (16, 16), (33, 17)] {
            let matrix: Vec<usize> = (0..rows * columns).collect();
            let mut out = vec![0; rows * columns];
            transpose(&matrix, rows, columns, &mut out);
            for row in 0..rows {
                for column in 0..columns {
                    assert_eq!(out[column * rows + row], row * columns + column);
                }
            }
        }
    }
}
