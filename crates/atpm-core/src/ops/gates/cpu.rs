//! The gates on slices: tokens in blocks, heads side by side.

use rayon::prelude::*;

use super::{MAX_DECAY, Pins};
use crate::blocks::{add_partials, rows_per_block};
use crate::vector::{Real, exp, log1p_exp, sigmoid, vectorize};

/// Below this, `softplus(u)` is `e^u` to the last bit of f64, and the decay one exponential.
const EXPONENTIAL_TAIL: f64 = -40.0;

/// What both passes read.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a, T> {
    /// `[tokens, 5, H]`.
    pub(super) logits: &'a [T],
    /// `[H]`.
    pub(super) a_log: &'a [T],
    /// `[H]`.
    pub(super) dt_bias: &'a [T],
    /// `[4, H]`.
    pub(super) bias: &'a [T],
    pub(super) pins: Pins,
}

/// Where the value of β_K, β_V, ρ or λ comes from.
#[derive(Clone, Copy)]
enum Source<T> {
    /// The sigmoid of this logit, counted from β_K.
    Logit(usize),
    /// A constant.
    Pinned(T),
}

fn sources<T: Real>(pins: Pins) -> [Source<T>; 4] {
    let pinned =
        |pin: Option<f64>, index| pin.map_or(Source::Logit(index), |value| Source::Pinned(T::of(value)));
    let beta_value = Source::Logit(usize::from(!pins.tie_beta));
    [Source::Logit(0), beta_value, pinned(pins.rho, 2), pinned(pins.lambda, 3)]
}

/// Writes the controls `[tokens, 5, H]`.
pub(super) fn forward<T: Real>(inputs: &Inputs<'_, T>, controls: &mut [T]) {
    let width = 5 * inputs.a_log.len();
    let block = (rows_per_block(width) * width).max(1);
    controls.par_chunks_mut(block).zip(inputs.logits.par_chunks(block)).for_each(|(controls, logits)| {
        vectorize!(forward_rows(&Inputs { logits, ..*inputs }, controls));
    });
}

#[inline(always)]
fn forward_rows<T: Real>(inputs: &Inputs<'_, T>, controls: &mut [T]) {
    let heads = inputs.a_log.len();
    let sources = sources(inputs.pins);
    for (controls, logits) in controls.chunks_exact_mut(5 * heads).zip(inputs.logits.chunks_exact(5 * heads))
    {
        let (log_alpha, strengths) = controls.split_at_mut(heads);
        let (x_alpha, logits) = logits.split_at(heads);
        for (head, (log_alpha, &x)) in log_alpha.iter_mut().zip(x_alpha).enumerate() {
            *log_alpha = -Decay::new(x + inputs.dt_bias[head], inputs.a_log[head]).value;
        }
        for (strengths, source) in strengths.chunks_exact_mut(heads).zip(sources) {
            match source {
                Source::Pinned(value) => strengths.fill(value),
                Source::Logit(index) => {
                    let logits = &logits[index * heads..(index + 1) * heads];
                    let bias = &inputs.bias[index * heads..(index + 1) * heads];
                    for ((strength, &logit), &bias) in strengths.iter_mut().zip(logits).zip(bias) {
                        *strength = sigmoid(logit + bias);
                    }
                }
            }
        }
    }
}

/// Writes `dlogits`; returns the sums `[6, H]` for A_log, dt_bias and the four rows of bias.
pub(super) fn backward<T: Real>(inputs: &Inputs<'_, T>, dcontrols: &[T], dlogits: &mut [T]) -> Vec<T> {
    let heads = inputs.a_log.len();
    let width = 5 * heads;
    let block = (rows_per_block(width) * width).max(1);
    let mut sums = vec![T::zero(); 6 * heads];
    let mut partials = vec![T::zero(); dlogits.len().div_ceil(block) * 6 * heads];
    let reads = inputs.logits.par_chunks(block).zip(dcontrols.par_chunks(block));
    let writes = dlogits.par_chunks_mut(block).zip(partials.par_chunks_mut((6 * heads).max(1)));
    writes.zip(reads).for_each(|((dlogits, sums), (logits, dcontrols))| {
        vectorize!(backward_rows(&Inputs { logits, ..*inputs }, dcontrols, dlogits, sums));
    });
    add_partials(&partials, &mut sums);
    sums
}

#[inline(always)]
fn backward_rows<T: Real>(inputs: &Inputs<'_, T>, dcontrols: &[T], dlogits: &mut [T], sums: &mut [T]) {
    let heads = inputs.a_log.len();
    let sources = sources::<T>(inputs.pins);
    let (da_log, sums) = sums.split_at_mut(heads);
    let (ddt_bias, dbias) = sums.split_at_mut(heads);
    let reads = inputs.logits.chunks_exact(5 * heads).zip(dcontrols.chunks_exact(5 * heads));
    for (dlogits, (logits, dcontrols)) in dlogits.chunks_exact_mut(5 * heads).zip(reads) {
        for head in 0..heads {
            let decay = Decay::new(logits[head] + inputs.dt_bias[head], inputs.a_log[head]);
            let dx = -decay.slope * dcontrols[head];
            dlogits[head] = dx;
            ddt_bias[head] = ddt_bias[head] + dx;
            da_log[head] = da_log[head] - decay.log_slope * dcontrols[head];
        }
        let (logits, dlogits) = (&logits[heads..], &mut dlogits[heads..]);
        dlogits.fill(T::zero());
        for (dstrengths, source) in dcontrols[heads..].chunks_exact(heads).zip(sources) {
            let Source::Logit(index) = source else { continue };
            let row = index * heads..(index + 1) * heads;
            let reads = dstrengths.iter().zip(&logits[row.clone()]).zip(&inputs.bias[row.clone()]);
            let writes = dlogits[row.clone()].iter_mut().zip(&mut dbias[row]);
            for (((&dstrength, &logit), &bias), (dlogit, dbias)) in reads.zip(writes) {
                let u = logit + bias;
                // 1 − σ(u) is σ(−u), which keeps its digits where σ(u) is near 1.
                let dx = sigmoid(u) * sigmoid(-u) * dstrength;
                *dlogit = *dlogit + dx;
                *dbias = *dbias + dx;
            }
        }
    }
}

/// `m = exp(a)·softplus(u)` bounded by [`MAX_DECAY`], with its slopes.
struct Decay<T> {
    value: T,
    /// `∂/∂u`.
    slope: T,
    /// `∂/∂a`.
    log_slope: T,
}

impl<T: Real> Decay<T> {
    /// No product here is `∞·0`: where `softplus(u)` could vanish, the exponents are added instead,
    /// and a product past the bound is dropped before it meets anything else.
    #[inline(always)]
    fn new(u: T, a_log: T) -> Self {
        let bound = T::of(MAX_DECAY);
        let tail = u < T::of(EXPONENTIAL_TAIL);
        let rate = exp(if tail { a_log + u } else { a_log });
        let value = if tail { rate } else { rate * log1p_exp(u) };
        if value > bound {
            return Self { value: bound, slope: T::zero(), log_slope: T::zero() };
        }
        Self { value, slope: if tail { value } else { rate * sigmoid(u) }, log_slope: value }
    }
}
