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

/// Elements whose sigmoids backward computes in a loop of their own, waiting in `out`: with everything in one
/// loop, LLVM gives up on vectors. Few enough that the next loads, which miss the cache, are under way meanwhile.
const BAND: usize = 256;

/// `dx [rows, 2·width]` of `dout [rows, width]`, and `out` again.
pub(super) fn backward<T: Real>(x: &[T], dout: &[T], width: usize, dx: &mut [T], out: &mut [T]) {
    let block = (rows_per_block(2 * width) * width).max(1);
    let inputs = x.par_chunks(2 * block).zip(dout.par_chunks(block));
    let outputs = dx.par_chunks_mut(2 * block).zip(out.par_chunks_mut(block));
    outputs.zip(inputs).for_each(|((dx, out), (x, dout))| {
        vectorize!(backward_rows(x, dout, width, dx, out));
    });
}

#[inline(always)]
fn backward_rows<T: Real>(x: &[T], dout: &[T], width: usize, dx: &mut [T], out: &mut [T]) {
    let inputs = x.chunks_exact(2 * width).zip(dout.chunks_exact(width));
    let outputs = dx.chunks_exact_mut(2 * width).zip(out.chunks_exact_mut(width));
    for ((dx, out), (x, dout)) in outputs.zip(inputs) {
        let (gate, up) = x.split_at(width);
        let (dgate, dup) = dx.split_at_mut(width);
        let outputs = dgate.chunks_mut(BAND).zip(dup.chunks_mut(BAND)).zip(out.chunks_mut(BAND));
        let inputs = gate.chunks(BAND).zip(up.chunks(BAND)).zip(dout.chunks(BAND));
        for (((dgate, dup), out), ((gate, up), dout)) in outputs.zip(inputs) {
            for (open, &gate) in out.iter_mut().zip(gate) {
                *open = sigmoid(gate);
            }
            let outputs = dgate.iter_mut().zip(dup).zip(out);
            for (((dgate, dup), out), ((&gate, &up), &dout)) in outputs.zip(gate.iter().zip(up).zip(dout)) {
                let open = *out;
                let silu = gate * open;
                *out = silu * up;
                *dup = dout * silu;
                *dgate = dout * up * open * gate.mul_add(T::one() - open, T::one());
            }
        }
    }
}
