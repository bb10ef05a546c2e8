//! Projection and cross-entropy on slices: blocks of tokens one after another, each with matrix
//! products on the whole pool and its rows in parallel.

use rayon::prelude::*;

use super::{IGNORE, Sizes};
use crate::vector::{LANES, Mat, MatMut, Precision, Real, exp, fold, matmul, unset, vectorize};

/// Tokens of one block. Each block reads the weight twice and its gradient once more, so fewer
/// tokens make the products wait for memory; more make the block's logits outgrow the cache.
pub const TOKENS_PER_BLOCK: usize = 1024;

/// Logits between two additions to the f64 sum of exponentials.
const SUM_BLOCK: usize = 1024;

/// What both passes read.
pub(super) struct Inputs<'a, T> {
    /// `[N, D]`.
    pub(super) x: &'a [T],
    /// `[V, D]`.
    pub(super) weight: &'a [T],
    /// `[N]`, each below `V` or [`IGNORE`].
    pub(super) targets: &'a [u32],
    pub(super) sizes: Sizes,
    /// Of the three matrix products.
    pub(super) precision: Precision,
}

/// What is differentiated: `scale · Σ_tokens (loss + z_loss·lse²)`.
#[derive(Clone, Copy)]
pub(super) struct Objective {
    pub(super) scale: f64,
    pub(super) z_loss: f64,
}

/// Writes the token losses.
pub(super) fn forward<T: Real>(inputs: &Inputs<'_, T>, losses: &mut [T]) {
    let vocabulary = inputs.sizes.vocabulary;
    for_each_block(inputs, |start, logits| {
        let rows = logits.par_chunks_mut(vocabulary).zip(&mut losses[start..]);
        rows.zip(&inputs.targets[start..]).for_each(|((logits, loss), &target)| {
            *loss = vectorize!(token_loss(logits, target));
        });
    });
}

/// Writes the token losses and `dx`, adds to `dweight`.
pub(super) fn forward_backward<T: Real>(
    inputs: &Inputs<'_, T>,
    objective: Objective,
    losses: &mut [T],
    dx: &mut [T],
    dweight: &mut [T],
) {
    let Inputs { sizes: Sizes { width, vocabulary, .. }, precision, .. } = *inputs;
    for_each_block(inputs, |start, logits| {
        let tokens = logits.len() / vocabulary;
        let rows = logits.par_chunks_mut(vocabulary).zip(&mut losses[start..]);
        rows.zip(&inputs.targets[start..]).for_each(|((logits, loss), &target)| {
            *loss = vectorize!(token_gradient(logits, target, objective));
        });
        let block = start * width..(start + tokens) * width;
        let gradient = Mat::dense(&*logits, tokens, vocabulary);
        let weight = Mat::dense(inputs.weight, vocabulary, width);
        let (zero, one) = (T::zero(), T::one());
        let dx = MatMut::dense(&mut dx[block.clone()], tokens, width);
        matmul(dx, zero, gradient, weight, precision);
        let x = Mat::dense(&inputs.x[block], tokens, width);
        let dweight = MatMut::dense(&mut *dweight, vocabulary, width);
        matmul(dweight, one, gradient.t(), x, precision);
    });
}

/// Calls `body` with the first token and the logits `[tokens, V]` of each block.
fn for_each_block<T: Real>(inputs: &Inputs<'_, T>, mut body: impl FnMut(usize, &mut [T])) {
    let Sizes { tokens, width, vocabulary } = inputs.sizes;
    if vocabulary == 0 {
        return;
    }
    let mut logits = unset(tokens.min(TOKENS_PER_BLOCK) * vocabulary);
    let weight = Mat::dense(inputs.weight, vocabulary, width).t();
    for start in (0..tokens).step_by(TOKENS_PER_BLOCK) {
        let count = TOKENS_PER_BLOCK.min(tokens - start);
        let logits = &mut logits[..count * vocabulary];
        let x = Mat::dense(&inputs.x[start * width..(start + count) * width], count, width);
        let product = MatMut::dense(&mut *logits, count, vocabulary);
        matmul(product, T::zero(), x, weight, inputs.precision);
        body(start, logits);
    }
}

/// The loss of one token; the logits are used up.
#[inline(always)]
fn token_loss<T: Real>(logits: &mut [T], target: u32) -> T {
    if target == IGNORE {
        return T::zero();
    }
    let target_logit = logits[target as usize].wide();
    let max = maximum(logits);
    let sum = exponentiate(logits, max);
    T::of(max.wide() + sum.ln() - target_logit)
}

/// The loss of one token; its logits become their gradient.
#[inline(always)]
fn token_gradient<T: Real>(logits: &mut [T], target: u32, objective: Objective) -> T {
    if target == IGNORE {
        logits.fill(T::zero());
        return T::zero();
    }
    let target_logit = logits[target as usize].wide();
    let max = maximum(logits);
    let sum = exponentiate(logits, max);
    let lse = max.wide() + sum.ln();
    let Objective { scale, z_loss } = objective;
    let factor = T::of(scale * (1.0 + 2.0 * z_loss * lse) / sum);
    for logit in logits.iter_mut() {
        *logit = *logit * factor;
    }
    logits[target as usize] = logits[target as usize] - T::of(scale);
    T::of(lse - target_logit)
}

/// The largest logit; lanes keep the comparison vectorised, and a NaN comes out in the sum.
#[inline(always)]
fn maximum<T: Real>(logits: &[T]) -> T {
    let larger = |a: T, b: T| if b > a { b } else { a };
    let mut lanes = [T::neg_infinity(); LANES];
    let blocks = logits.chunks_exact(LANES);
    let tail = blocks.remainder().iter().fold(T::neg_infinity(), |max, &logit| larger(max, logit));
    for block in blocks {
        for (lane, &logit) in lanes.iter_mut().zip(block) {
            *lane = larger(*lane, logit);
        }
    }
    lanes.into_iter().fold(tail, larger)
}

/// `logit ← exp(logit − max)`; the sum of these, in f64 over blocks.
#[inline(always)]
fn exponentiate<T: Real>(logits: &mut [T], max: T) -> f64 {
    let mut sum = 0.0;
    for block in logits.chunks_mut(SUM_BLOCK) {
        let mut lanes = [T::zero(); LANES];
        let mut groups = block.chunks_exact_mut(LANES);
        for group in &mut groups {
            for (lane, logit) in lanes.iter_mut().zip(group) {
                *logit = exp(*logit - max);
                *lane = *lane + *logit;
            }
        }
        for logit in groups.into_remainder() {
            *logit = exp(*logit - max);
            sum += logit.wide();
        }
        sum += fold(lanes).wide();
    }
    sum
}
