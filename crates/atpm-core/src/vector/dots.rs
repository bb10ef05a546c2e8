//! Products of few rows, as decoding needs them: every element is the dot product of a row of `A` and a column of
//! `B`, both contiguous (a weight `[N, K]` read along its rows, `B = Wᵀ`).
//!
//! Such a product takes as long as reading `B` does, so nothing is packed: `B` is read once, front to back, and a few of its
//! columns are multiplied by all rows while they are in the core's cache.
//!
//! ```text
//! for task (columns that fill 128 KiB):                all threads
//!     for tile of 4 columns:                           first-level cache
//!         for tile of rows: 4 × rows sums of 16 lanes, k runs (registers)
//! ```
//!
//! An element is [`dot`](super::dot) of its two vectors to the bit, on every instruction set and however the columns are
//! divided among threads.

use pulp::Simd;
use rayon::prelude::*;

use super::matrix::{Mat, MatMut};
use super::{LANES, arch, fold, unset};

/// Columns of a tile: each word of a row that is loaded serves so many sums.
const TILE_COLUMNS: usize = 4;

/// Elements of `B` that a task reads: 128 KiB. Smaller ones cost more to hand out than they even out.
const TASK_ELEMENTS: usize = 32_768;

/// Whether `B`'s columns and `A`'s rows are contiguous, as [`product`] needs them.
pub(super) fn fits(a: &Mat<'_, f32>, b: &Mat<'_, f32>) -> bool {
    a.column_stride == 1 && b.row_stride == 1
}

/// `C ← keep·C + A·B`; shapes were checked, and [`fits`] holds. With `keep = 0` what `C` held is not read.
pub(super) fn product(c: &mut MatMut<'_, f32>, keep: f32, a: Mat<'_, f32>, b: Mat<'_, f32>) {
    let columns = (TASK_ELEMENTS / b.rows.max(1)).next_multiple_of(TILE_COLUMNS);
    // Transposed, `[columns, rows]`: what a task writes is then one piece of memory.
    let mut products = unset::<f32>(c.columns * c.rows);
    products.par_chunks_mut(columns * c.rows).enumerate().with_max_len(1).for_each(|(task, out)| {
        arch().dispatch(Task { a, b, first: task * columns, out });
    });
    for row in 0..c.rows {
        let out = &mut c.data[row * c.row_stride..][..c.columns];
        for (c, products) in out.iter_mut().zip(products.chunks_exact(c.rows)) {
            *c = if keep == 0.0 { products[row] } else { keep.mul_add(*c, products[row]) };
        }
    }
}

/// The products of all rows with the columns from `first` on, as `out` has room for: `[columns, rows]`.
struct Task<'a, 'o> {
    a: Mat<'a, f32>,
    b: Mat<'a, f32>,
    first: usize,
    out: &'o mut [f32],
}

impl pulp::WithSimd for Task<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { a, b, first, out } = self;
        let columns = b.t();
        let mut next = first;
        let mut tiles = out.chunks_exact_mut(TILE_COLUMNS * a.rows);
        for out in &mut tiles {
            rows::<S, TILE_COLUMNS>(simd, a, columns, next, out);
            next += TILE_COLUMNS;
        }
        for out in tiles.into_remainder().chunks_exact_mut(a.rows) {
            rows::<S, 1>(simd, a, columns, next, out);
            next += 1;
        }
    }
}

/// All rows by `N` columns from `column` on: `out [N, rows]`.
#[inline(always)]
fn rows<S: Simd, const N: usize>(
    simd: S,
    a: Mat<'_, f32>,
    columns: Mat<'_, f32>,
    column: usize,
    out: &mut [f32],
) {
    // The first row brings the columns into the cache one after another, which memory is fastest at; the other rows
    // find them there.
    for (n, out) in out.chunks_exact_mut(a.rows).enumerate() {
        tile::<S, 1, 1>(simd, a, 0, columns, column + n, out);
    }
    let mut row = 1;
    while row < a.rows {
        // Sums and columns together fill the registers: 32 of AVX-512, 16 of AVX2.
        row += match a.rows - row {
            6.. if S::F32_LANES == LANES => tile::<S, 6, N>(simd, a, row, columns, column, out),
            4.. if S::F32_LANES == LANES => tile::<S, 4, N>(simd, a, row, columns, column, out),
            2.. => tile::<S, 2, N>(simd, a, row, columns, column, out),
            _ => tile::<S, 1, N>(simd, a, row, columns, column, out),
        };
    }
}

/// `M` rows from `row` on by `N` columns from `column` on; gives `M`.
#[inline(always)]
fn tile<S: Simd, const M: usize, const N: usize>(
    simd: S,
    a: Mat<'_, f32>,
    row: usize,
    columns: Mat<'_, f32>,
    column: usize,
    out: &mut [f32],
) -> usize {
    let (rows, columns) = (lines::<M>(a, row), lines::<N>(columns, column));
    let whole = a.columns / LANES * LANES;
    let mut lanes = [[[0.0; LANES]; M]; N];
    // Sixteen lanes are one vector of AVX-512. Where they are several, each is summed in a pass of its own, the
    // later ones over what the first brought into the cache.
    let parts = LANES / S::F32_LANES;
    for part in 0..parts {
        let rows = rows.map(|row| &S::as_simd_f32s(row).0[..whole / S::F32_LANES]);
        let columns = columns.map(|column| &S::as_simd_f32s(column).0[..whole / S::F32_LANES]);
        let mut sums = [[simd.splat_f32s(0.0); M]; N];
        let mut at = part;
        while at < whole / S::F32_LANES {
            for (sums, column) in sums.iter_mut().zip(&columns) {
                for (sum, row) in sums.iter_mut().zip(&rows) {
                    *sum = simd.mul_add_f32s(row[at], column[at], *sum);
                }
            }
            at += parts;
        }
        for (lanes, sums) in lanes.iter_mut().zip(&sums) {
            for (lanes, sum) in lanes.iter_mut().zip(sums) {
                S::as_mut_simd_f32s(lanes).0[part] = *sum;
            }
        }
    }
    for (n, (lanes, column)) in lanes.iter().zip(columns).enumerate() {
        for (m, (lanes, line)) in lanes.iter().zip(rows).enumerate() {
            let tail: f32 = line[whole..].iter().zip(&column[whole..]).map(|(&x, &y)| x * y).sum();
            out[n * a.rows + row + m] = fold(*lanes) + tail;
        }
    }
    M
}

/// `N` rows from `first` on. A loop, since `array::from_fn` may stay a call, which costs as much as a dot product.
#[inline(always)]
fn lines<const N: usize>(matrix: Mat<'_, f32>, first: usize) -> [&[f32]; N] {
    let mut lines: [&[f32]; N] = [&[]; N];
    for (n, line) in lines.iter_mut().enumerate() {
        *line = matrix.line(first + n);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use crate::vector::{dot, vectorize};

    fn numbers(random: &mut Random, len: usize) -> Vec<f32> {
        (0..len).map(|_| (random.unit() - 0.5) as f32).collect()
    }

    // Over every remainder of rows, columns and lanes, several tasks among them.
    #[test]
    fn every_element_is_the_dot_product_of_its_vectors() {
        let mut random = Random::new(5);
        for rows in [1, 2, 3, 5, 7, 12] {
            for (columns, depth) in [(1, 1), (3, 15), (4, 16), (5, 17), (70, 100), (33, 9000), (300, 512)] {
                let a = numbers(&mut random, rows * (depth + 3));
                let b = numbers(&mut random, columns * (depth + 1));
                let start = numbers(&mut random, rows * (columns + 2));
                let a_row = |m: usize| &a[m * (depth + 3)..][..depth];
                let b_column = |n: usize| &b[n * (depth + 1)..][..depth];
                for keep in [0.0, 1.0, 0.25] {
                    let mut got = start.clone();
                    let (a, b) =
                        (Mat::rows(&a, rows, depth, depth + 3), Mat::rows(&b, columns, depth, depth + 1));
                    product(&mut MatMut::rows(&mut got, rows, columns, columns + 2), keep, a, b.t());
                    let mut want = start.clone();
                    for m in 0..rows {
                        for (n, want) in want[m * (columns + 2)..][..columns].iter_mut().enumerate() {
                            let product = vectorize!(dot(a_row(m), b_column(n)));
                            *want = if keep == 0.0 { product } else { keep.mul_add(*want, product) };
                        }
                    }
                    assert_eq!(got, want, "{rows}×{columns}, k {depth}, keep {keep}");
                }
            }
        }
    }

    #[test]
    fn keep_zero_does_not_read_what_was_there() {
        let mut c = vec![f32::NAN; 3 * 5];
        let (a, b) = ([1.0f32; 3 * 40], [2.0f32; 5 * 40]);
        product(&mut MatMut::dense(&mut c, 3, 5), 0.0, Mat::dense(&a, 3, 40), Mat::dense(&b, 5, 40).t());
        assert_eq!(c, [80.0; 3 * 5]);
    }
}
