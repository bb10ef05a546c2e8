//! Products with the lower triangles of a chunk, block by block: what lies above the diagonal's blocks
//! is neither computed nor read, three eighths of a product of 64 tokens.
//!
//! In the diagonal's blocks, a triangle has zeros above the diagonal. Each element is the same chain
//! of fused multiply-adds as in a whole product, less the zeros.

use std::ops::Range;

use crate::vector::{Mat, MatMut, Real, product};

/// Rows and columns of a block.
const BLOCK: usize = 16;

/// Elements of row `t` that are stored, of a triangle with `c` rows: up to the end of its diagonal block.
pub(super) fn row_width(t: usize, c: usize) -> usize {
    ((t / BLOCK + 1) * BLOCK).min(c)
}

/// The rows of each block, of `c` in all.
fn blocks(c: usize) -> impl Iterator<Item = Range<usize>> {
    (0..c).step_by(BLOCK).map(move |first| first..(first + BLOCK).min(c))
}

/// `L ← A·B` on and below the diagonal blocks of `L [c,c]`; the rest keeps what it held.
pub(super) fn lower_of_product<T: Real>(mut l: MatMut<'_, T>, a: Mat<'_, T>, b: Mat<'_, T>) {
    for rows in blocks(a.row_count()) {
        let columns = 0..rows.end;
        let (a, b) = (a.block(rows.clone(), 0..a.column_count()), b.block(0..b.row_count(), columns.clone()));
        product(l.block(rows, columns), T::zero(), a, b);
    }
}

/// `C ← C + L·B` with a lower triangle `L [c,c]`.
pub(super) fn lower_times<T: Real>(mut c: MatMut<'_, T>, l: Mat<'_, T>, b: Mat<'_, T>) {
    let width = b.column_count();
    for rows in blocks(l.row_count()) {
        let k = 0..rows.end;
        product(c.block(rows.clone(), 0..width), T::one(), l.block(rows, k.clone()), b.block(k, 0..width));
    }
}

/// `C ← C + U·B` with an upper triangle `U [c,c]`, the transpose of a stored lower one.
pub(super) fn upper_times<T: Real>(mut c: MatMut<'_, T>, u: Mat<'_, T>, b: Mat<'_, T>) {
    let (width, last) = (b.column_count(), u.column_count());
    for rows in blocks(u.row_count()) {
        let k = rows.start..last;
        product(c.block(rows.clone(), 0..width), T::one(), u.block(rows, k.clone()), b.block(k, 0..width));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    // Against whole products of a triangle with its zeros written out, at sizes with every kind of last
    // block; NaN wherever a triangle is not stored.
    #[test]
    fn triangles_equal_whole_products() {
        let mut random = Random::new(5);
        let width = 33;
        for c in [1, 15, 16, 17, 40, 64] {
            let mut numbers = |len: usize| (0..len).map(|_| random.unit() - 0.5).collect::<Vec<f64>>();
            let (a, b, start) = (numbers(c * c), numbers(c * width), numbers(c * width));
            let element = |t: usize, i: usize| if i <= t { a[t * c + i] } else { 0.0 };
            let stored = |t: usize, i: usize| if i < row_width(t, c) { element(t, i) } else { f64::NAN };
            let fill = |of: &dyn Fn(usize, usize) -> f64| {
                (0..c * c).map(|at| of(at / c, at % c)).collect::<Vec<f64>>()
            };
            let (whole, stored) = (fill(&element), fill(&stored));
            let (whole, stored) = (Mat::dense(&whole, c, c), Mat::dense(&stored, c, c));
            let right = Mat::dense(&b, c, width);

            let (mut got, mut want) = (start.clone(), start.clone());
            lower_times(MatMut::dense(&mut got, c, width), stored, right);
            product(MatMut::dense(&mut want, c, width), 1.0, whole, right);
            assert_eq!(got, want, "lower, {c}");
            let (mut got, mut want) = (start.clone(), start);
            upper_times(MatMut::dense(&mut got, c, width), stored.t(), right);
            product(MatMut::dense(&mut want, c, width), 1.0, whole.t(), right);
            assert_eq!(got, want, "upper, {c}");

            let (mut got, mut want) = (vec![f64::NAN; c * c], vec![0.0; c * c]);
            let columns: Vec<f64> = (0..width * c).map(|at| b[at % c * width + at / c]).collect();
            let columns = Mat::dense(&columns, width, c);
            lower_of_product(MatMut::dense(&mut got, c, c), right, columns);
            product(MatMut::dense(&mut want, c, c), 0.0, right, columns);
            for at in 0..c * c {
                let below = at % c < row_width(at / c, c);
                assert!(if below { got[at] == want[at] } else { got[at].is_nan() }, "product, {c}: {at}");
            }
        }
    }
}
