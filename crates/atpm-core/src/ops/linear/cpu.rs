//! The products on slices: one call each, the whole pool.

use crate::vector::{Mat, MatMut, Precision, Real, matmul};

/// Rows, inputs and outputs of one product.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) rows: usize,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
}

/// `y = x Wᵀ`.
pub(super) fn forward<T: Real>(sizes: Sizes, x: &[T], weight: &[T], y: &mut [T], precision: Precision) {
    let Sizes { rows, inputs, outputs } = sizes;
    let (x, weight) = (Mat::dense(x, rows, inputs), Mat::dense(weight, outputs, inputs));
    matmul(MatMut::dense(y, rows, outputs), T::zero(), x, weight.t(), precision);
}

/// `dx ← keep·dx + dy W`.
pub(super) fn backward_input<T: Real>(
    sizes: Sizes,
    weight: &[T],
    dy: &[T],
    dx: &mut [T],
    keep: T,
    precision: Precision,
) {
    let Sizes { rows, inputs, outputs } = sizes;
    let (dy, weight) = (Mat::dense(dy, rows, outputs), Mat::dense(weight, outputs, inputs));
    matmul(MatMut::dense(dx, rows, inputs), keep, dy, weight, precision);
}

/// `dW += dyᵀ x`.
pub(super) fn backward_weight<T: Real>(
    sizes: Sizes,
    x: &[T],
    dy: &[T],
    dweight: &mut [T],
    precision: Precision,
) {
    let Sizes { rows, inputs, outputs } = sizes;
    let (x, dy) = (Mat::dense(x, rows, inputs), Mat::dense(dy, rows, outputs));
    matmul(MatMut::dense(dweight, outputs, inputs), T::one(), dy.t(), x, precision);
}
