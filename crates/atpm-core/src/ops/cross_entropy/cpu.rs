//! Projection and cross-entropy on slices: blocks of tokens one after another, each with matrix
//! products on the whole pool and its rows in parallel. Only tokens with a target are projected: where few
//! count, as in the memory suite, the loss costs little.

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
    losses.fill(T::zero());
    for_each_block(inputs, |mut block| {
        block.losses(losses, |logits, target| vectorize!(token_loss(logits, target)));
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
    let weight = Mat::dense(inputs.weight, vocabulary, width);
    let (zero, one) = (T::zero(), T::one());
    for (token, _) in inputs.targets.iter().enumerate().filter(|(_, target)| **target == IGNORE) {
        losses[token] = zero;
        dx[token * width..][..width].fill(zero);
    }
    let mut block_dx = Vec::new();
    for_each_block(inputs, |mut block| {
        block.losses(losses, |logits, target| vectorize!(token_gradient(logits, target, objective)));
        let count = block.tokens.len();
        let gradient = Mat::dense(&*block.logits, count, vocabulary);
        if block_dx.len() < count * width {
            block_dx = unset(count * width);
        }
        matmul(MatMut::dense(&mut block_dx, count, width), zero, gradient, weight, precision);
        for (&token, block_dx) in block.tokens.iter().zip(block_dx.chunks_exact(width.max(1))) {
            dx[token * width..][..width].copy_from_slice(block_dx);
        }
        let x = Mat::dense(block.x, count, width);
        let dweight = MatMut::dense(&mut *dweight, vocabulary, width);
        matmul(dweight, one, gradient.t(), x, precision);
    });
}

/// Tokens that count and what they are projected to.
struct Block<'a, T> {
    /// Their places, ascending.
    tokens: &'a [usize],
    targets: &'a [u32],
    /// `[tokens, D]`.
    x: &'a [T],
    /// `[tokens, V]`.
    logits: &'a mut [T],
}

impl<T: Real> Block<'_, T> {
    /// Writes the tokens' losses, those of `loss`, which may use the logits up.
    fn losses(&mut self, losses: &mut [T], loss: impl Fn(&mut [T], u32) -> T + Sync) {
        let vocabulary = self.logits.len() / self.tokens.len();
        let rows = self.logits.par_chunks_mut(vocabulary).zip(self.tokens);
        let mut found = unset(self.tokens.len());
        rows.zip(&mut found).for_each(|((logits, &token), found)| *found = loss(logits, self.targets[token]));
        for (&token, found) in self.tokens.iter().zip(found) {
            losses[token] = found;
        }
    }
}

/// Calls `body` for each block of the tokens that count.
fn for_each_block<T: Real>(inputs: &Inputs<'_, T>, mut body: impl FnMut(Block<'_, T>)) {
    let Sizes { width, vocabulary, .. } = inputs.sizes;
    if vocabulary == 0 {
        return;
    }
    let targets = inputs.targets;
    let counted: Vec<usize> = (0..targets.len()).filter(|&token| targets[token] != IGNORE).collect();
    let most = counted.len().min(TOKENS_PER_BLOCK);
    let (mut x, mut logits) = (unset(most * width), unset(most * vocabulary));
    let weight = Mat::dense(inputs.weight, vocabulary, width).t();
    for tokens in counted.chunks(TOKENS_PER_BLOCK) {
        let count = tokens.len();
        let (x, logits) = (&mut x[..count * width], &mut logits[..count * vocabulary]);
        for (&token, x) in tokens.iter().zip(x.chunks_exact_mut(width.max(1))) {
            x.copy_from_slice(&inputs.x[token * width..][..width]);
        }
        let product = MatMut::dense(&mut *logits, count, vocabulary);
        matmul(product, T::zero(), Mat::dense(x, count, width), weight, inputs.precision);
        body(Block { tokens, targets, x, logits });
    }
}

/// The loss of one token; the logits are used up.
#[inline(always)]
fn token_loss<T: Real>(logits: &mut [T], target: u32) -> T {
    let target_logit = logits[target as usize].wide();
    let max = maximum(logits);
    let sum = exponentiate(logits, max);
    T::of(max.wide() + sum.ln() - target_logit)
}

/// The loss of one token; its logits become their gradient.
#[inline(always)]
fn token_gradient<T: Real>(logits: &mut [T], target: u32, objective: Objective) -> T {
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
