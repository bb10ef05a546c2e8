//! SwiGLU on slices: blocks of rows in parallel, one pass.

use rayon::prelude::*;

use crate::blocks::rows_per_block;
use crate::vector::{Real, sigmoid, vectorize};

/// `out [rows, width]` of `x [rows, 2·width]`.
pub(super) fn forward<T: Real>(x: &[T], width: usize, out: &mut [T]) {
    let block = (rows_per_block(2 * width) * width).max(1);
    out.par_chunks_mut(block).zip(x.par_chunks(2 * block)).for_each(|(out, x)| {
        vectorize!(forward_rows(x, width, out));
    });
}

#[inline(always)]
fn forward_rows<T: Real>(x: &[T], width: usize, out: &mut [T]) {
    for (out, x) in out.chunks_exact_mut(width).zip(x.chunks_exact(2 * width)) {
        let (gate, up) = x.split_at(width);
        for ((out, &gate), &up) in out.iter_mut().zip(gate).zip(up) {
            *out = gate * sigmoid(gate) * up;
        }
    }
}

/// `dx [rows, 2·width]` of `dout [rows, width]`.
pub(super) fn backward<T: Real>(x: &[T], dout: &[T], width: usize, dx: &mut [T]) {
    let block = (rows_per_block(2 * width) * width).max(1);
    let inputs = x.par_chunks(2 * block).zip(dout.par_chunks(block));
    dx.par_chunks_mut(2 * block).zip(inputs).for_each(|(dx, (x, dout))| {
        vectorize!(backward_rows(x, dout, width, dx));
    });
}

#[inline(always)]
fn backward_rows<T: Real>(x: &[T], dout: &[T], width: usize, dx: &mut [T]) {
    let inputs = x.chunks_exact(2 * width).zip(dout.chunks_exact(width));
    for (dx, (x, dout)) in dx.chunks_exact_mut(2 * width).zip(inputs) {
        let (gate, up) = x.split_at(width);
        let (dgate, dup) = dx.split_at_mut(width);
        // Two loops, the sigmoid waiting in `dgate` between them: with everything in one, LLVM gives up on
        // vectors. The row is in the first-level cache, so the second costs little.
        for (open, &gate) in dgate.iter_mut().zip(gate) {
            *open = sigmoid(gate);
        }
        let outputs = dgate.iter_mut().zip(dup);
        for ((dgate, dup), ((&gate, &up), &dout)) in outputs.zip(gate.iter().zip(up).zip(dout)) {
            let open = *dgate;
            *dgate = dout * up * open * gate.mul_add(T::one() - open, T::one());
            *dup = dout * gate * open;
        }
    }
}
