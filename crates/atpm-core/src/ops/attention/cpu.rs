//! Attention on slices: rows in parallel, the heads of a row one after the other, scores in blocks of queries.

use rayon::prelude::*;

use crate::vector::{Mat, MatMut, Real, dot, exp, product, transpose, vectorize};

/// Queries whose scores are in the cache together.
const QUERIES: usize = 32;
/// Keys are filled up to a multiple of this, so that products have no ragged columns.
const LANES: usize = 16;
/// Base of the rotary angles.
const BASE: f64 = 10_000.0;

/// Sizes of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) tokens: usize,
    /// Tokens behind the row.
    pub(super) past: usize,
    pub(super) heads: usize,
    /// Channels of a head.
    pub(super) width: usize,
}

impl Sizes {
    pub(super) fn channels(&self) -> usize {
        self.heads * self.width
    }

    /// Tokens of the past and the row.
    fn seen(&self) -> usize {
        self.past + self.tokens
    }
}

/// What both directions read.
pub(super) struct Inputs<'a, T> {
    pub(super) sizes: Sizes,
    /// `[B,T,3C]`, queries and keys rotated.
    pub(super) rotated: &'a [T],
    /// Rotated keys and values `[B,L,C]`.
    pub(super) past: (&'a [T], &'a [T]),
    /// The first token that each token sees, `[B,T]`.
    pub(super) first: &'a [usize],
}

/// Turns queries and keys of `qkv [B,T,3C]` by their places, or back.
pub(super) fn rotate<T: Real>(sizes: &Sizes, qkv: &mut [T], back: bool) {
    let (half, channels) = (sizes.width / 2, sizes.channels());
    let mut turns = Vec::with_capacity(sizes.tokens * half);
    for token in 0..sizes.tokens {
        for index in 0..half {
            let angle = (sizes.past + token) as f64 * BASE.powf(-(index as f64) / half as f64);
            let (sin, cos) = angle.sin_cos();
            turns.push((T::of(cos), T::of(if back { -sin } else { sin })));
        }
    }
    let row = (sizes.tokens * 3 * channels).max(1);
    qkv.par_chunks_mut(row).for_each(|row| {
        vectorize!(rotate_row(&turns, sizes, row));
    });
}

#[inline(always)]
fn rotate_row<T: Real>(turns: &[(T, T)], sizes: &Sizes, row: &mut [T]) {
    let half = sizes.width / 2;
    let tokens = row.chunks_exact_mut(3 * sizes.channels()).zip(turns.chunks_exact(half));
    for (token, turns) in tokens {
        for head in token[..2 * sizes.channels()].chunks_exact_mut(sizes.width) {
            let (low, high) = head.split_at_mut(half);
            for ((low, high), &(cos, sin)) in low.iter_mut().zip(high).zip(turns) {
                (*low, *high) = (*low * cos - *high * sin, *low * sin + *high * cos);
            }
        }
    }
}

/// Writes `y [B,T,C]` and `log_sums [B,H,T]`.
pub(super) fn forward<T: Real>(inputs: &Inputs<'_, T>, y: &mut [T], log_sums: &mut [T]) {
    let Sizes { tokens, heads, .. } = inputs.sizes;
    let rows = y.par_chunks_mut((tokens * inputs.sizes.channels()).max(1));
    rows.zip(log_sums.par_chunks_mut((heads * tokens).max(1))).enumerate().for_each(
        |(row, (y, log_sums))| {
            let mut head = Head::new(inputs, row);
            for (index, log_sums) in log_sums.chunks_exact_mut(tokens).enumerate() {
                head.load(index);
                head.forward(y, log_sums);
            }
        },
    );
}

/// Writes the gradients of rotated queries and keys, and of values, to `dqkv [B,T,3C]`, which is zero.
pub(super) fn backward<T: Real>(inputs: &Inputs<'_, T>, log_sums: &[T], y: &[T], dy: &[T], dqkv: &mut [T]) {
    let Sizes { tokens, heads, .. } = inputs.sizes;
    let (sums, outputs) = (heads * tokens, tokens * inputs.sizes.channels());
    dqkv.par_chunks_mut((3 * outputs).max(1)).enumerate().for_each(|(row, dqkv)| {
        let mut head = Head::new(inputs, row);
        let (y, dy) = (&y[row * outputs..][..outputs], &dy[row * outputs..][..outputs]);
        for (index, log_sums) in log_sums[row * sums..][..sums].chunks_exact(tokens).enumerate() {
            head.load(index);
            head.backward(log_sums, y, dy, dqkv);
        }
    });
}

/// One head of one row, with room for its blocks.
struct Head<'a, T> {
    inputs: &'a Inputs<'a, T>,
    row: usize,
    index: usize,
    /// Keys and values of past and row, `[seen, D]`.
    keys: Vec<T>,
    values: Vec<T>,
    /// Their transposes `[D, padded]`.
    keys_t: Vec<T>,
    values_t: Vec<T>,
    /// `[QUERIES, padded]`.
    scores: Vec<T>,
    dscores: Vec<T>,
    padded: usize,
}

/// A block of queries: the first, how many, and how many keys the last of them sees.
#[derive(Clone, Copy)]
struct Block {
    start: usize,
    queries: usize,
    seen: usize,
    /// `seen` in whole vectors.
    columns: usize,
}

impl<'a, T: Real> Head<'a, T> {
    fn new(inputs: &'a Inputs<'a, T>, row: usize) -> Self {
        let Sizes { width, .. } = inputs.sizes;
        let padded = inputs.sizes.seen().next_multiple_of(LANES);
        let zeros = |len: usize| vec![T::zero(); len];
        Self {
            inputs,
            row,
            index: 0,
            keys: zeros(padded * width),
            values: zeros(padded * width),
            keys_t: zeros(width * padded),
            values_t: zeros(width * padded),
            scores: zeros(QUERIES * padded),
            dscores: zeros(QUERIES * padded),
            padded,
        }
    }

    /// The row's `[T,3C]`.
    fn own(&self) -> &'a [T] {
        let len = self.inputs.sizes.tokens * 3 * self.inputs.sizes.channels();
        &self.inputs.rotated[self.row * len..][..len]
    }

    /// Gathers keys and values of a head.
    fn load(&mut self, index: usize) {
        self.index = index;
        let Sizes { past, width, .. } = self.inputs.sizes;
        let (channels, own) = (self.inputs.sizes.channels(), self.own());
        for (into, before, part) in
            [(&mut self.keys, self.inputs.past.0, 1), (&mut self.values, self.inputs.past.1, 2)]
        {
            let (old, new) = into.split_at_mut(past * width);
            let before = before.chunks_exact(channels.max(1)).skip(self.row * past);
            for (into, token) in old.chunks_exact_mut(width).zip(before) {
                into.copy_from_slice(&token[index * width..][..width]);
            }
            for (into, token) in new.chunks_exact_mut(width).zip(own.chunks_exact(3 * channels)) {
                into.copy_from_slice(&token[part * channels + index * width..][..width]);
            }
        }
        transpose(&self.keys, self.padded, width, &mut self.keys_t);
        transpose(&self.values, self.padded, width, &mut self.values_t);
    }

    fn blocks(&self) -> impl Iterator<Item = Block> + use<T> {
        let Sizes { tokens, past, .. } = self.inputs.sizes;
        (0..tokens).step_by(QUERIES).map(move |start| {
            let queries = QUERIES.min(tokens - start);
            let seen = past + start + queries;
            Block { start, queries, seen, columns: seen.next_multiple_of(LANES) }
        })
    }

    /// A `[queries, D]` view of the row's queries.
    fn queries(&self, block: Block) -> Mat<'a, T> {
        let Sizes { width, .. } = self.inputs.sizes;
        let stride = 3 * self.inputs.sizes.channels();
        Mat::rows(&self.own()[block.start * stride + self.index * width..], block.queries, width, stride)
    }

    /// A `[queries, D]` view of a row's `[T,C]`.
    fn part<'b>(&self, of: &'b [T], block: Block) -> Mat<'b, T> {
        let Sizes { width, .. } = self.inputs.sizes;
        let stride = self.inputs.sizes.channels();
        Mat::rows(&of[block.start * stride + self.index * width..], block.queries, width, stride)
    }

    /// The products of a block's queries with all keys they may see.
    fn score(&mut self, block: Block) {
        let Block { queries, columns, .. } = block;
        let width = self.inputs.sizes.width;
        let (own, keys_t) = (self.queries(block), Mat::rows(&self.keys_t, width, columns, self.padded));
        product(MatMut::dense(&mut self.scores, queries, columns), T::zero(), own, keys_t);
    }

    /// The scores of a query and the range of keys it sees.
    fn lines(&self, block: Block) -> impl Iterator<Item = std::ops::Range<usize>> + 'a {
        let Sizes { tokens, past, .. } = self.inputs.sizes;
        let first = &self.inputs.first[self.row * tokens + block.start..][..block.queries];
        first.iter().enumerate().map(move |(query, &first)| first..past + block.start + query + 1)
    }

    fn weight(&self) -> T {
        T::of(1.0 / (self.inputs.sizes.width as f64).sqrt())
    }

    fn forward(&mut self, y: &mut [T], log_sums: &mut [T]) {
        let (weight, width, channels) =
            (self.weight(), self.inputs.sizes.width, self.inputs.sizes.channels());
        for block in self.blocks() {
            self.score(block);
            let Block { start, queries, seen, columns } = block;
            let ranges = self.lines(block);
            let scores = self.scores[..queries * columns].chunks_exact_mut(columns);
            for ((scores, range), log_sum) in scores.zip(ranges).zip(&mut log_sums[start..]) {
                vectorize!(*log_sum = soften(scores, range, weight));
            }
            let y = MatMut::rows(&mut y[start * channels + self.index * width..], queries, width, channels);
            let shares = Mat::rows(&self.scores, queries, seen, columns);
            product(y, T::zero(), shares, Mat::dense(&self.values, seen, width));
        }
    }

    fn backward(&mut self, log_sums: &[T], y: &[T], dy: &[T], dqkv: &mut [T]) {
        let (weight, width) = (self.weight(), self.inputs.sizes.width);
        let (channels, one) = (self.inputs.sizes.channels(), T::one());
        let stride = 3 * channels;
        for block in self.blocks() {
            self.score(block);
            let Block { start, queries, seen, columns } = block;
            let dy_block = self.part(dy, block);
            let values_t = Mat::rows(&self.values_t, width, columns, self.padded);
            product(MatMut::dense(&mut self.dscores, queries, columns), T::zero(), dy_block, values_t);
            let ranges = self.lines(block);
            let scores = self.scores.chunks_exact_mut(columns).zip(self.dscores.chunks_exact_mut(columns));
            for (query, ((scores, dscores), range)) in scores.zip(ranges).enumerate() {
                let at = (start + query) * channels + self.index * width;
                let (y, dy) = (&y[at..][..width], &dy[at..][..width]);
                vectorize!(soften_backward(
                    scores,
                    dscores,
                    range,
                    weight,
                    log_sums[start + query],
                    dot(y, dy)
                ));
            }
            let shares = Mat::rows(&self.scores, queries, seen, columns);
            let dscores = Mat::rows(&self.dscores, queries, seen, columns);
            let mut part = |part: usize, from: usize, rows: usize, keep, a, b| {
                let at = from * stride + part * channels + self.index * width;
                product(MatMut::rows(&mut dqkv[at..], rows, width, stride), keep, a, b);
            };
            part(0, start, queries, T::zero(), dscores, Mat::dense(&self.keys, seen, width));
            part(1, 0, seen, one, dscores.t(), self.queries(block));
            part(2, 0, seen, one, shares.t(), dy_block);
        }
    }
}

/// Softmax of the scores in `range`, times `weight`; zero elsewhere. Gives the logarithm of the sum.
#[inline(always)]
fn soften<T: Real>(scores: &mut [T], range: std::ops::Range<usize>, weight: T) -> T {
    scores[..range.start].fill(T::zero());
    scores[range.end..].fill(T::zero());
    let scores = &mut scores[range];
    let most = scores.iter().copied().fold(T::neg_infinity(), T::max) * weight;
    let mut sum = T::zero();
    for score in scores.iter_mut() {
        *score = exp(weight.mul_add(*score, -most));
        sum = sum + *score;
    }
    let share = T::one() / sum;
    for score in scores.iter_mut() {
        *score = *score * share;
    }
    most + sum.ln()
}

/// Shares again from scores, and the scores' gradient from that of the shares.
#[inline(always)]
fn soften_backward<T: Real>(
    scores: &mut [T],
    dscores: &mut [T],
    range: std::ops::Range<usize>,
    weight: T,
    log_sum: T,
    delta: T,
) {
    for line in [&mut *scores, &mut *dscores] {
        line[..range.start].fill(T::zero());
        line[range.end..].fill(T::zero());
    }
    for (score, dscore) in scores[range.clone()].iter_mut().zip(&mut dscores[range]) {
        *score = exp(weight.mul_add(*score, -log_sum));
        *dscore = weight * *score * (*dscore - delta);
    }
}
