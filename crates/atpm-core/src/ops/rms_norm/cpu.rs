//! RMSNorm on slices: blocks of rows in parallel, each row read while it is in the first-level cache.

use rayon::prelude::*;

use crate::blocks::{add, add_partials, rows_per_block};
use crate::vector::{Real, dot, vectorize};

/// `y` of `x`, rows of `weight.len()` elements.
pub(super) fn forward<T: Real>(x: &[T], weight: &[T], eps: f64, y: &mut [T]) {
    let width = weight.len();
    let block = (rows_per_block(width) * width).max(1);
    y.par_chunks_mut(block).zip(x.par_chunks(block)).for_each(|(y, x)| {
        vectorize!(forward_rows(x, weight, eps, y));
    });
}

#[inline(always)]
fn forward_rows<T: Real>(x: &[T], weight: &[T], eps: f64, y: &mut [T]) {
    let width = weight.len();
    for (y, x) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
        let scale = inverse_rms(x, eps);
        for ((y, &x), &weight) in y.iter_mut().zip(x).zip(weight) {
            *y = scale * x * weight;
        }
    }
}

/// What [`backward`] reads: all `[rows, D]` but `weight [D]`.
pub(super) struct Backward<'a, T> {
    pub(super) x: &'a [T],
    pub(super) weight: &'a [T],
    pub(super) eps: f64,
    pub(super) dy: &'a [T],
    pub(super) residual: Option<&'a [T]>,
}

/// Writes `dx`, adds to `dweight`.
pub(super) fn backward<T: Real>(inputs: &Backward<'_, T>, dx: &mut [T], dweight: &mut [T]) {
    let width = dweight.len();
    let block = (rows_per_block(width) * width).max(1);
    let mut partials = vec![T::zero(); dx.len().div_ceil(block) * width];
    let blocks = dx.par_chunks_mut(block).zip(partials.par_chunks_mut(width.max(1)));
    blocks.enumerate().for_each(|(index, (dx, dweight))| {
        let range = index * block..index * block + dx.len();
        let part = Backward {
            x: &inputs.x[range.clone()],
            dy: &inputs.dy[range.clone()],
            residual: inputs.residual.map(|residual| &residual[range]),
            ..*inputs
        };
        vectorize!(backward_rows(&part, dx, dweight));
    });
    add_partials(&partials, dweight);
}

#[inline(always)]
fn backward_rows<T: Real>(inputs: &Backward<'_, T>, dx: &mut [T], dweight: &mut [T]) {
    let width = dweight.len();
    let weight = &inputs.weight[..width];
    let rows = inputs.x.chunks_exact(width).zip(inputs.dy.chunks_exact(width));
    for (dx, (x, dy)) in dx.chunks_exact_mut(width).zip(rows) {
        let scale = inverse_rms(x, inputs.eps);
        let columns = dx.iter_mut().zip(dweight.iter_mut()).zip(x.iter().zip(dy).zip(weight));
        for ((dx, dweight), ((&x, &dy), &weight)) in columns {
            *dx = weight * dy;
            *dweight = dy.mul_add(scale * x, *dweight);
        }
        let pull = scale * scale * scale / T::of(width as f64) * dot(dx, x);
        for (dx, &x) in dx.iter_mut().zip(x) {
            *dx = scale * *dx - pull * x;
        }
    }
    if let Some(residual) = inputs.residual {
        add(residual, dx);
    }
}

/// `1 / √(mean(x²) + ε)` of one row.
#[inline(always)]
fn inverse_rms<T: Real>(x: &[T], eps: f64) -> T {
    (dot(x, x) / T::of(x.len() as f64) + T::of(eps)).sqrt().recip()
}
