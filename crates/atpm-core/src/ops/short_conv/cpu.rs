//! The short convolution on slices: blocks of tokens in parallel, channels vectorised.
//!
//! Whatever a token may not see is a row of zeros, so that all tokens take the same inner loop.

use std::array;

use rayon::prelude::*;

use super::{MAX_WIDTH, Sizes};
use crate::Segments;
use crate::blocks::{add, add_partials};
use crate::vector::{Real, arch, sigmoid, unset, vectorize};

/// Tokens of one block; backward computes `W − 1` tokens beyond it once more.
const TOKENS_PER_BLOCK: usize = 128;

/// What both passes read.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a, T> {
    /// `[B,T,C]`.
    pub(super) x: &'a [T],
    /// `[C,W]`.
    pub(super) weight: &'a [T],
    /// `[B,W−1,C]`.
    pub(super) state: Option<&'a [T]>,
    pub(super) segments: &'a Segments,
    pub(super) sizes: Sizes,
}

/// What backward reads besides.
#[derive(Clone, Copy)]
pub(super) struct OutputGradients<'a, T> {
    /// `[B,T,C]`.
    pub(super) dy: &'a [T],
    /// `[B,W−1,C]`.
    pub(super) dfinal: Option<&'a [T]>,
}

/// Runs the body with the constant `W` standing for the width, which the caller has checked.
macro_rules! with_width {
    ($width:expr, $W:ident => $body:expr) => {
        with_width!($width, $W => $body; 2 3 4 5 6 7)
    };
    ($width:expr, $W:ident => $body:expr; $($below:literal)*) => {
        match $width {
            $($below => {
                const $W: usize = $below;
                $body
            })*
            _ => {
                const $W: usize = MAX_WIDTH;
                $body
            }
        }
    };
}

/// Writes `y` and the final state `last`.
pub(super) fn forward<T: Real>(inputs: &Inputs<'_, T>, y: &mut [T], last: &mut [T]) {
    with_width!(inputs.sizes.width, W => forward_width::<T, W>(inputs, y, last));
}

/// Writes `dx` and `dstate`, adds to `dweight [C,W]`.
pub(super) fn backward<T: Real>(
    inputs: &Inputs<'_, T>,
    gradients: &OutputGradients<'_, T>,
    dx: &mut [T],
    dstate: &mut [T],
    dweight: &mut [T],
) {
    with_width!(inputs.sizes.width, W => {
        backward_width::<T, W>(inputs, gradients, dx, dweight);
        if inputs.state.is_some() {
            backward_state::<T, W>(inputs, gradients, dstate);
        } else {
            dstate.fill(T::zero());
        }
    });
}

fn forward_width<T: Real, const W: usize>(inputs: &Inputs<'_, T>, y: &mut [T], last: &mut [T]) {
    let Sizes { tokens, channels, .. } = inputs.sizes;
    if channels == 0 {
        return;
    }
    let (weight, zeros) = (by_tap(inputs), vec![T::zero(); channels]);
    let weight = rows::<T, W>(&weight, channels);
    y.par_chunks_mut((tokens * channels).max(1)).enumerate().for_each(|(row, y)| {
        let row = Row::<T, W>::new(inputs, row, &zeros);
        y.par_chunks_mut(TOKENS_PER_BLOCK * channels).enumerate().for_each(|(block, y)| {
            arch().dispatch(ForwardBlock { row: &row, weight, first: block * TOKENS_PER_BLOCK, y });
        });
    });
    for (row, last) in last.chunks_exact_mut((W - 1) * channels).enumerate() {
        let next = Row::<T, W>::new(inputs, row, &zeros).window(tokens);
        for (last, seen) in last.chunks_exact_mut(channels).zip(next) {
            last.copy_from_slice(seen);
        }
    }
}

/// The outputs `y` of the tokens from `first` on. A struct, since LLVM does not inline this loop as a
/// closure, and what is not inlined into the dispatch stays scalar.
struct ForwardBlock<'a, 'y, T, const W: usize> {
    row: &'a Row<'a, T, W>,
    weight: [&'a [T]; W],
    first: usize,
    y: &'y mut [T],
}

impl<T: Real, const W: usize> pulp::WithSimd for ForwardBlock<'_, '_, T, W> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) {
        let channels = self.row.zeros.len();
        for (token, y) in self.y.chunks_exact_mut(channels).enumerate() {
            convolve(self.weight, self.row.window(self.first + token), y);
        }
    }
}

fn backward_width<T: Real, const W: usize>(
    inputs: &Inputs<'_, T>,
    gradients: &OutputGradients<'_, T>,
    dx: &mut [T],
    dweight: &mut [T],
) {
    let Sizes { batch, tokens, channels, .. } = inputs.sizes;
    if channels == 0 || tokens == 0 {
        return;
    }
    let (weight, zeros) = (by_tap(inputs), vec![T::zero(); channels]);
    let weight = rows::<T, W>(&weight, channels);
    let blocks = tokens.div_ceil(TOKENS_PER_BLOCK);
    let mut partials = vec![T::zero(); batch * blocks * W * channels];
    let rows = dx.par_chunks_mut(tokens * channels).zip(partials.par_chunks_mut(blocks * W * channels));
    rows.enumerate().for_each(|(row, (dx, partials))| {
        let row = Row::<T, W>::new(inputs, row, &zeros);
        let blocks = dx.par_chunks_mut(TOKENS_PER_BLOCK * channels);
        blocks.zip(partials.par_chunks_mut(W * channels)).enumerate().for_each(|(block, (dx, dweight))| {
            let first = block * TOKENS_PER_BLOCK;
            vectorize!(backward_block(&row, weight, gradients, first, dx, dweight));
        });
    });
    let mut sums = vec![T::zero(); W * channels];
    add_partials(&partials, &mut sums);
    for (channel, dweight) in dweight.chunks_exact_mut(W).enumerate() {
        for (tap, dweight) in dweight.iter_mut().enumerate() {
            *dweight = *dweight + sums[tap * channels + channel];
        }
    }
}

/// `dx` of the tokens from `first` on, and their share of `dweight [W,C]`.
#[inline(always)]
fn backward_block<T: Real, const W: usize>(
    row: &Row<'_, T, W>,
    weight: [&[T]; W],
    gradients: &OutputGradients<'_, T>,
    first: usize,
    dx: &mut [T],
    dweight: &mut [T],
) {
    let channels = row.zeros.len();
    let past = first + dx.len() / channels;
    // Token t's dpre is in slot t mod W: the W of them that one dx needs are there together.
    let mut ring = unset::<T>(W * channels);
    let mut next = first;
    for (index, dx) in dx.chunks_exact_mut(channels).enumerate() {
        let token = first + index;
        while next < (token + W).min(row.tokens) {
            let window = row.window(next);
            let dpre = &mut ring[next % W * channels..][..channels];
            preactivation_gradient(weight, window, row.of(gradients.dy, next), dpre);
            if next < past {
                accumulate(dpre, window, dweight);
            }
            next += 1;
        }
        let limit = row.end_of_document(token);
        let reached = array::from_fn(|tap| {
            let at = token + W - 1 - tap;
            if at < limit { &ring[at % W * channels..][..channels] } else { &row.zeros[..channels] }
        });
        for (channel, dx) in dx.iter_mut().enumerate() {
            *dx = weighted_sum(weight, reached, channel);
        }
        if let Some(dfinal) = gradients.dfinal
            && limit == row.tokens
            && token + W > row.tokens
        {
            add(row.slot(dfinal, token + W - 1 - row.tokens), dx);
        }
    }
}

/// Writes the gradient of the state that came before each row.
fn backward_state<T: Real, const W: usize>(
    inputs: &Inputs<'_, T>,
    gradients: &OutputGradients<'_, T>,
    dstate: &mut [T],
) {
    let channels = inputs.sizes.channels;
    if channels == 0 {
        return;
    }
    let (weight, zeros) = (by_tap(inputs), vec![T::zero(); channels]);
    let weight = rows::<T, W>(&weight, channels);
    dstate.par_chunks_mut((W - 1) * channels).enumerate().for_each(|(row, dstate)| {
        dstate.fill(T::zero());
        let row = Row::<T, W>::new(inputs, row, &zeros);
        let mut dpre = unset::<T>(channels);
        for token in 0..row.starts.first().copied().unwrap_or(row.tokens).min(W - 1) {
            preactivation_gradient(weight, row.window(token), row.of(gradients.dy, token), &mut dpre);
            for (slot, dstate) in dstate.chunks_exact_mut(channels).enumerate().skip(token) {
                for ((dstate, &dpre), &weight) in dstate.iter_mut().zip(&dpre).zip(weight[slot - token]) {
                    *dstate = dpre.mul_add(weight, *dstate);
                }
            }
        }
        // In a row shorter than the state, the rest of the state passes through to the final one.
        if let Some(dfinal) = gradients.dfinal
            && row.starts.is_empty()
        {
            for (slot, dstate) in dstate.chunks_exact_mut(channels).enumerate().skip(row.tokens) {
                add(row.slot(dfinal, slot - row.tokens), dstate);
            }
        }
    });
}

/// One row of the batch.
#[derive(Clone, Copy)]
struct Row<'a, T, const W: usize> {
    index: usize,
    tokens: usize,
    /// `[T,C]`.
    x: &'a [T],
    /// `[W−1,C]`.
    state: Option<&'a [T]>,
    starts: &'a [usize],
    /// `[C]`, what is seen of other documents.
    zeros: &'a [T],
}

impl<'a, T: Real, const W: usize> Row<'a, T, W> {
    fn new(inputs: &Inputs<'a, T>, row: usize, zeros: &'a [T]) -> Self {
        let Sizes { tokens, channels, .. } = inputs.sizes;
        Self {
            index: row,
            tokens,
            x: &inputs.x[row * tokens * channels..][..tokens * channels],
            state: inputs.state.map(|state| &state[row * (W - 1) * channels..][..(W - 1) * channels]),
            starts: inputs.segments.row(row),
            zeros,
        }
    }

    /// The `W` inputs that a token sees, oldest first; the token after the row counts as going on
    /// with its last document.
    #[inline(always)]
    fn window(&self, token: usize) -> [&'a [T]; W] {
        let channels = self.zeros.len();
        let begun = self.starts.partition_point(|&start| start <= token);
        let seen = if begun == 0 { usize::MAX } else { token - self.starts[begun - 1] };
        array::from_fn(|tap| {
            let back = W - 1 - tap;
            if back > seen || (back == 0 && token == self.tokens) {
                self.zeros
            } else if back <= token {
                &self.x[(token - back) * channels..][..channels]
            } else {
                self.state.map_or(self.zeros, |state| &state[(token + tap) * channels..][..channels])
            }
        })
    }

    /// The first token after this one's document, or the row's end.
    #[inline(always)]
    fn end_of_document(&self, token: usize) -> usize {
        let begun = self.starts.partition_point(|&start| start <= token);
        self.starts.get(begun).copied().unwrap_or(self.tokens)
    }

    /// This row's token of a `[B,T,C]` array.
    #[inline(always)]
    fn of<'b>(&self, array: &'b [T], token: usize) -> &'b [T] {
        let channels = self.zeros.len();
        &array[(self.index * self.tokens + token) * channels..][..channels]
    }

    /// This row's slot of a `[B,W−1,C]` array.
    #[inline(always)]
    fn slot<'b>(&self, array: &'b [T], slot: usize) -> &'b [T] {
        let channels = self.zeros.len();
        &array[(self.index * (W - 1) + slot) * channels..][..channels]
    }
}

/// The weight as `[W,C]`, so that channels lie side by side.
fn by_tap<T: Real>(inputs: &Inputs<'_, T>) -> Vec<T> {
    let Sizes { channels, width, .. } = inputs.sizes;
    let mut weight = unset(width * channels);
    for (channel, taps) in inputs.weight.chunks_exact(width).enumerate() {
        for (tap, &value) in taps.iter().enumerate() {
            weight[tap * channels + channel] = value;
        }
    }
    weight
}

fn rows<T, const W: usize>(array: &[T], width: usize) -> [&[T]; W] {
    array::from_fn(|row| &array[row * width..][..width])
}

/// `y = silu(Σ_j w_j ⊙ x_j)`.
#[inline(always)]
fn convolve<T: Real, const W: usize>(weight: [&[T]; W], window: [&[T]; W], y: &mut [T]) {
    let (weight, window) = (weight.map(|w| &w[..y.len()]), window.map(|x| &x[..y.len()]));
    for (channel, y) in y.iter_mut().enumerate() {
        let sum = weighted_sum(weight, window, channel);
        *y = sum * sigmoid(sum);
    }
}

/// `dpre = dy ⊙ silu′(Σ_j w_j ⊙ x_j)`.
#[inline(always)]
fn preactivation_gradient<T: Real, const W: usize>(
    weight: [&[T]; W],
    window: [&[T]; W],
    dy: &[T],
    dpre: &mut [T],
) {
    let channels = dpre.len();
    let (weight, window) = (weight.map(|w| &w[..channels]), window.map(|x| &x[..channels]));
    for ((channel, dpre), &dy) in dpre.iter_mut().enumerate().zip(dy) {
        let sum = weighted_sum(weight, window, channel);
        let open = sigmoid(sum);
        *dpre = dy * open * sum.mul_add(T::one() - open, T::one());
    }
}

/// `Σ_j w_j x_j` of one channel. In one loop with what is made of it, so that loads that miss the cache
/// overlap with the exponentials of the channels before.
#[inline(always)]
fn weighted_sum<T: Real, const W: usize>(weight: [&[T]; W], terms: [&[T]; W], channel: usize) -> T {
    let mut sum = weight[0][channel] * terms[0][channel];
    for tap in 1..W {
        sum = weight[tap][channel].mul_add(terms[tap][channel], sum);
    }
    sum
}

/// `dweight_j += dpre ⊙ x_j`.
#[inline(always)]
fn accumulate<T: Real, const W: usize>(dpre: &[T], window: [&[T]; W], dweight: &mut [T]) {
    for (dweight, x) in dweight.chunks_exact_mut(dpre.len()).zip(window) {
        for ((dweight, &dpre), &x) in dweight.iter_mut().zip(dpre).zip(x) {
            *dweight = dpre.mul_add(x, *dweight);
        }
    }
}
