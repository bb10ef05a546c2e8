//! The LSTM on slices: blocks of rows in parallel, each through all of time on one thread.

use rayon::prelude::*;

use crate::blocks::add;
use crate::vector::{Mat, MatMut, Precision, Real, matmul, product, sigmoid, vectorize};

/// Rows that go through time together: enough to use a weight that was fetched, few enough for two threads to
/// share a batch of 64.
const ROWS: usize = 32;
/// Each gate is filled up to a multiple of this, so that products have no ragged columns.
const LANES: usize = 16;

/// Sizes of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) tokens: usize,
    /// `d`.
    pub(super) width: usize,
}

impl Sizes {
    /// Elements of a row of `[B,T,n·d]`.
    fn row(&self, n: usize) -> usize {
        self.tokens * n * self.width
    }

    /// Rows of a block, in elements of `[B,T,n·d]`; at least one element, so that nothing can be dealt out too.
    fn block(&self, n: usize) -> usize {
        (ROWS * self.row(n)).max(1)
    }

    fn padded(&self) -> usize {
        self.width.next_multiple_of(LANES)
    }
}

/// What forward reads.
pub(super) struct Inputs<'a, T> {
    pub(super) sizes: Sizes,
    pub(super) x: &'a [T],
    pub(super) weight: &'a [T],
    pub(super) bias: &'a [T],
    pub(super) state: (&'a [T], &'a [T]),
    /// 1 where a document begins, `[B,T]`.
    pub(super) starts: &'a [u8],
}

/// Writes gates `[B,T,4d]`, cells and outputs `[B,T,d]`.
pub(super) fn forward<T: Real>(inputs: &Inputs<'_, T>, gates: &mut [T], cells: &mut [T], out: &mut [T]) {
    let sizes = inputs.sizes;
    let weight_t = padded_transpose(inputs.weight, sizes);
    let blocks = gates
        .par_chunks_mut(sizes.block(4))
        .zip(cells.par_chunks_mut(sizes.block(1)))
        .zip(out.par_chunks_mut(sizes.block(1)));
    blocks.enumerate().for_each(|(block, ((gates, cells), out))| {
        forward_block(inputs, &weight_t, block * ROWS, gates, cells, out);
    });
}

/// `[d, 4·padded]`: column `g·padded + j` holds the weights of element `j` of gate `g`.
fn padded_transpose<T: Real>(weight: &[T], sizes: Sizes) -> Vec<T> {
    let (width, padded) = (sizes.width, sizes.padded());
    let mut out = vec![T::zero(); width * 4 * padded];
    for (gate, weights) in weight.chunks_exact((width * width).max(1)).enumerate() {
        for (element, weights) in weights.chunks_exact(width).enumerate() {
            for (k, &weight) in weights.iter().enumerate() {
                out[k * 4 * padded + gate * padded + element] = weight;
            }
        }
    }
    out
}

fn forward_block<T: Real>(
    inputs: &Inputs<'_, T>,
    weight_t: &[T],
    first: usize,
    gates: &mut [T],
    cells: &mut [T],
    out: &mut [T],
) {
    let Sizes { tokens, width, .. } = inputs.sizes;
    let (padded, rows) = (inputs.sizes.padded(), out.len() / inputs.sizes.row(1).max(1));
    let part = |of: &[T]| of[first * width..(first + rows) * width].to_vec();
    let (mut h, mut c) = (part(inputs.state.0), part(inputs.state.1));
    let mut z = vec![T::zero(); rows * 4 * padded];
    for token in 0..tokens {
        for row in 0..rows {
            if inputs.starts[(first + row) * tokens + token] == 1 {
                h[row * width..][..width].fill(T::zero());
                c[row * width..][..width].fill(T::zero());
            }
        }
        let h_before = Mat::dense(&h, rows, width);
        product(
            MatMut::dense(&mut z, rows, 4 * padded),
            T::zero(),
            h_before,
            Mat::dense(weight_t, width, 4 * padded),
        );
        for row in 0..rows {
            let (at, given) = (row * tokens + token, (first + row) * tokens + token);
            let step = Step {
                x: &inputs.x[given * 4 * width..][..4 * width],
                bias: inputs.bias,
                z: &z[row * 4 * padded..][..4 * padded],
                width,
                padded,
            };
            let gates = &mut gates[at * 4 * width..][..4 * width];
            let (h, c) = (&mut h[row * width..][..width], &mut c[row * width..][..width]);
            vectorize!(step.run(gates, h, c));
            out[at * width..][..width].copy_from_slice(h);
            cells[at * width..][..width].copy_from_slice(c);
        }
    }
}

/// What one row's step reads.
struct Step<'a, T> {
    x: &'a [T],
    bias: &'a [T],
    /// `W h`, each gate padded.
    z: &'a [T],
    width: usize,
    padded: usize,
}

impl<T: Real> Step<'_, T> {
    #[inline(always)]
    fn run(&self, gates: &mut [T], h: &mut [T], c: &mut [T]) {
        let width = self.width;
        for (gate, out) in gates.chunks_exact_mut(width).enumerate() {
            let x = &self.x[gate * width..][..width];
            let bias = &self.bias[gate * width..][..width];
            let z = &self.z[gate * self.padded..][..width];
            for (((out, &x), &bias), &z) in out.iter_mut().zip(x).zip(bias).zip(z) {
                let z = x + bias + z;
                *out = if gate == 2 { tanh(z) } else { sigmoid(z) };
            }
        }
        let (i, rest) = gates.split_at(width);
        let (f, rest) = rest.split_at(width);
        let (g, o) = rest.split_at(width);
        for n in 0..width {
            c[n] = f[n].mul_add(c[n], i[n] * g[n]);
            h[n] = o[n] * tanh(c[n]);
        }
    }
}

/// `tanh x = 2σ(2x) − 1`, which vectorises.
#[inline(always)]
fn tanh<T: Real>(x: T) -> T {
    let two = T::of(2.0);
    two * sigmoid(two * x) - T::one()
}

/// What backward reads.
pub(super) struct Backward<'a, T> {
    pub(super) sizes: Sizes,
    pub(super) gates: &'a [T],
    pub(super) cells: &'a [T],
    pub(super) h: &'a [T],
    pub(super) weight: &'a [T],
    pub(super) dh: &'a [T],
    pub(super) starts: &'a [u8],
}

/// Writes `dx [B,T,4d]`.
pub(super) fn backward<T: Real>(inputs: &Backward<'_, T>, dx: &mut [T]) {
    let (width, padded) = (inputs.sizes.width, inputs.sizes.padded());
    let mut weight = vec![T::zero(); 4 * width * padded];
    for (out, row) in weight.chunks_exact_mut(padded.max(1)).zip(inputs.weight.chunks_exact(width.max(1))) {
        out[..width].copy_from_slice(row);
    }
    dx.par_chunks_mut(inputs.sizes.block(4)).enumerate().for_each(|(block, dx)| {
        backward_block(inputs, &weight, block * ROWS, dx);
    });
}

fn backward_block<T: Real>(inputs: &Backward<'_, T>, weight: &[T], first: usize, dx: &mut [T]) {
    let Sizes { tokens, width, .. } = inputs.sizes;
    let (padded, rows) = (inputs.sizes.padded(), dx.len() / inputs.sizes.row(4).max(1));
    let mut dh = vec![T::zero(); rows * padded];
    let mut dc = vec![T::zero(); rows * width];
    let mut dz = vec![T::zero(); rows * 4 * width];
    let zeros = vec![T::zero(); width];
    for token in (0..tokens).rev() {
        for row in 0..rows {
            let at = (first + row) * tokens + token;
            let is_first = token == 0 || inputs.starts[at] == 1;
            let step = StepBack {
                gates: &inputs.gates[at * 4 * width..][..4 * width],
                c: &inputs.cells[at * width..][..width],
                c_before: if is_first { &zeros } else { &inputs.cells[(at - 1) * width..][..width] },
                dh: &inputs.dh[at * width..][..width],
                dh_later: &dh[row * padded..][..width],
            };
            let dz = &mut dz[row * 4 * width..][..4 * width];
            let dc = &mut dc[row * width..][..width];
            vectorize!(step.run(dz, dc));
            dx[(row * tokens + token) * 4 * width..][..4 * width].copy_from_slice(dz);
            if is_first {
                dc.fill(T::zero());
            }
        }
        let dz = Mat::dense(&dz, rows, 4 * width);
        product(MatMut::dense(&mut dh, rows, padded), T::zero(), dz, Mat::dense(weight, 4 * width, padded));
        for row in 0..rows {
            if inputs.starts[(first + row) * tokens + token] == 1 {
                dh[row * padded..][..padded].fill(T::zero());
            }
        }
    }
}

/// What one row's step back reads.
struct StepBack<'a, T> {
    gates: &'a [T],
    c: &'a [T],
    c_before: &'a [T],
    /// From the output, and from the next step.
    dh: &'a [T],
    dh_later: &'a [T],
}

impl<T: Real> StepBack<'_, T> {
    /// Writes `dz [4d]`; takes the cell's gradient one step back.
    #[inline(always)]
    fn run(&self, dz: &mut [T], dc: &mut [T]) {
        let (width, one) = (dc.len(), T::one());
        let (i, rest) = self.gates.split_at(width);
        let (f, rest) = rest.split_at(width);
        let (g, o) = rest.split_at(width);
        let (di, rest) = dz.split_at_mut(width);
        let (df, rest) = rest.split_at_mut(width);
        let (dg, d_o) = rest.split_at_mut(width);
        for n in 0..width {
            let (dh, t) = (self.dh[n] + self.dh_later[n], tanh(self.c[n]));
            let dcell = dc[n] + dh * o[n] * (one - t * t);
            d_o[n] = dh * t * o[n] * (one - o[n]);
            di[n] = dcell * g[n] * i[n] * (one - i[n]);
            df[n] = dcell * self.c_before[n] * f[n] * (one - f[n]);
            dg[n] = dcell * i[n] * (one - g[n] * g[n]);
            dc[n] = dcell * f[n];
        }
    }
}

/// `dbias += Σ dz`, in the order of rows and steps.
pub(super) fn add_bias_gradient<T: Real>(sizes: Sizes, dx: &[T], dbias: &mut [T]) {
    vectorize!({
        for dz in dx.chunks_exact((4 * sizes.width).max(1)) {
            add(dz, dbias);
        }
    });
}

/// `dW += Σ dz_t h_{t−1}ᵀ`.
pub(super) fn add_weight_gradient<T: Real>(inputs: &Backward<'_, T>, dx: &[T], dweight: &mut [T]) {
    let Sizes { batch, tokens, width } = inputs.sizes;
    let all = batch * tokens;
    let mut before = vec![T::zero(); all * width];
    for (at, before) in before.chunks_exact_mut(width.max(1)).enumerate() {
        if !at.is_multiple_of(tokens) && inputs.starts[at] == 0 {
            before.copy_from_slice(&inputs.h[(at - 1) * width..][..width]);
        }
    }
    matmul(
        MatMut::dense(dweight, 4 * width, width),
        T::one(),
        Mat::dense(dx, all, 4 * width).t(),
        Mat::dense(&before, all, width),
        Precision::F32,
    );
}
