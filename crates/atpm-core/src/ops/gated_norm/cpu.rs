//! The gated norm on slices. Heads are rows of `weight.len()` elements, dealt in blocks to threads.

use rayon::prelude::*;

use crate::blocks::{add_partials, rows_per_block};
use crate::vector::{Real, dot, sigmoid, vectorize};

/// `out` of `y` and `gate`, rows of `weight.len()` elements.
pub(super) fn forward<T: Real>(y: &[T], gate: &[T], weight: &[T], eps: f64, out: &mut [T]) {
    let width = weight.len();
    let block = rows_per_block(width) * width;
    let inputs = y.par_chunks(block).zip(gate.par_chunks(block));
    out.par_chunks_mut(block).zip(inputs).for_each(|(out, (y, gate))| {
        vectorize!(forward_rows(y, gate, weight, eps, out));
    });
}

#[inline(always)]
fn forward_rows<T: Real>(y: &[T], gate: &[T], weight: &[T], eps: f64, out: &mut [T]) {
    let width = weight.len();
    let inputs = y.chunks_exact(width).zip(gate.chunks_exact(width));
    for (out, (y, gate)) in out.chunks_exact_mut(width).zip(inputs) {
        let scale = inverse_rms(y, eps);
        for ((out, &y), (&gate, &weight)) in out.iter_mut().zip(y).zip(gate.iter().zip(weight)) {
            *out = scale * y * weight * (gate * sigmoid(gate));
        }
    }
}

/// What [`backward`] reads: all `[rows, D]` but `weight [D]`.
pub(super) struct Backward<'a, T> {
    pub(super) y: &'a [T],
    pub(super) gate: &'a [T],
    pub(super) weight: &'a [T],
    pub(super) eps: f64,
    pub(super) dout: &'a [T],
}

/// What [`backward`] writes, all `[rows, D]`.
pub(super) struct Outputs<'a, T> {
    pub(super) dy: &'a mut [T],
    pub(super) dgate: &'a mut [T],
    pub(super) out: &'a mut [T],
}

/// Writes `dy`, `dgate` and `out`, adds to `dweight`.
pub(super) fn backward<T: Real>(inputs: &Backward<'_, T>, outputs: Outputs<'_, T>, dweight: &mut [T]) {
    let width = dweight.len();
    let block = rows_per_block(width) * width;
    let Outputs { dy, dgate, out } = outputs;
    let mut partials = vec![T::zero(); dy.len().div_ceil(block) * width];
    dy.par_chunks_mut(block)
        .zip(dgate.par_chunks_mut(block))
        .zip(out.par_chunks_mut(block))
        .zip(partials.par_chunks_mut(width))
        .enumerate()
        .for_each(|(index, (((dy, dgate), out), dweight))| {
            let range = index * block..index * block + dy.len();
            let part = Backward {
                y: &inputs.y[range.clone()],
                gate: &inputs.gate[range.clone()],
                dout: &inputs.dout[range],
                ..*inputs
            };
            vectorize!(backward_rows(&part, Outputs { dy, dgate, out }, dweight));
        });
    add_partials(&partials, dweight);
}

#[inline(always)]
fn backward_rows<T: Real>(inputs: &Backward<'_, T>, outputs: Outputs<'_, T>, dweight: &mut [T]) {
    let width = dweight.len();
    let weight = &inputs.weight[..width];
    let rows = inputs.y.chunks_exact(width).zip(inputs.gate.chunks_exact(width));
    let Outputs { dy, dgate, out } = outputs;
    let outputs =
        dy.chunks_exact_mut(width).zip(dgate.chunks_exact_mut(width)).zip(out.chunks_exact_mut(width));
    for (((y, gate), dout), ((dy, dgate), out)) in rows.zip(inputs.dout.chunks_exact(width)).zip(outputs) {
        let scale = inverse_rms(y, inputs.eps);
        let outputs = dy.iter_mut().zip(dgate).zip(out).zip(dweight.iter_mut());
        let columns = y.iter().zip(gate).zip(dout).zip(weight);
        for ((((&y, &gate), &dout), &weight), (((dy, dgate), out), dweight)) in columns.zip(outputs) {
            let open = sigmoid(gate);
            let silu = gate * open;
            let normalized = scale * y;
            *out = normalized * weight * silu;
            *dy = weight * silu * dout;
            *dgate = dout * normalized * weight * open * gate.mul_add(T::one() - open, T::one());
            *dweight = (normalized * silu).mul_add(dout, *dweight);
        }
        let pull = scale * scale * scale / T::of(width as f64) * dot(dy, y);
        for (dy, &y) in dy.iter_mut().zip(y) {
            *dy = scale * *dy - pull * y;
        }
    }
}

/// `1 / √(mean(y²) + ε)` of one head.
#[inline(always)]
fn inverse_rms<T: Real>(y: &[T], eps: f64) -> T {
    (dot(y, y) / T::of(y.len() as f64) + T::of(eps)).sqrt().recip()
}
