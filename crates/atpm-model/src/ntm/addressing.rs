//! One head's address in one row: content, interpolation, shift, sharpening. Equations in the module above.

use atpm_core::vector::{Real, dot, log1p_exp, sigmoid};

use super::controller::tanh;
use super::layout::{KEPT_CONTROLS, SHIFTS};

/// Added to squared norms: an empty slot is similar to nothing, and its gradient stays finite.
pub(super) const EPSILON: f64 = 1e-6;
/// Added to a weight before its logarithm.
const DELTA: f64 = 1e-12;

/// What an address was made of, `[N]` each: kept for backward.
pub(super) struct Focus<'a, T> {
    /// `z`.
    pub(super) cosine: &'a [T],
    /// `u`.
    pub(super) content: &'a [T],
    /// `ln(v + δ)`.
    pub(super) log_shifted: &'a [T],
    /// `w`.
    pub(super) weights: &'a [T],
}

/// Parts of [`Focus`].
pub(super) const FOCUS_PARTS: usize = 4;

impl<'a, T> Focus<'a, T> {
    /// From `[4, N]`.
    pub(super) fn of(kept: &'a [T], slots: usize) -> Self {
        let part = |n: usize| &kept[n * slots..(n + 1) * slots];
        Self { cosine: part(0), content: part(1), log_shifted: part(2), weights: part(3) }
    }
}

/// A head's controls after their activations.
#[derive(Clone, Copy)]
pub(super) struct Controls<T> {
    pub(super) beta: T,
    pub(super) gate: T,
    /// For the shifts −1, 0, +1.
    pub(super) shifts: [T; SHIFTS],
    pub(super) gamma: T,
    /// `1 / √(k·k + ε)`.
    pub(super) inverse_key_norm: T,
}

impl<T: Real> Controls<T> {
    /// Activates key and controls; `key [W]` is written.
    #[inline(always)]
    pub(super) fn activate(raw: &[T], anneal: T, key: &mut [T]) -> Self {
        let (raw_key, controls) = raw.split_at(key.len());
        let mut square = T::of(EPSILON);
        for (key, &raw) in key.iter_mut().zip(raw_key) {
            *key = tanh(raw);
            square = key.mul_add(*key, square);
        }
        let most = controls[2].max(controls[3]).max(controls[4]);
        let powers = [2, 3, 4].map(|at: usize| (controls[at] - most).fast_exp());
        let sum = powers[0] + powers[1] + powers[2];
        Self {
            beta: anneal * log1p_exp(controls[0]),
            gate: sigmoid(controls[1]),
            shifts: powers.map(|power| power / sum),
            gamma: T::one() + log1p_exp(controls[5]),
            inverse_key_norm: square.sqrt().recip(),
        }
    }

    pub(super) fn kept(&self) -> [T; KEPT_CONTROLS] {
        let [back, stay, on] = self.shifts;
        [self.beta, self.gate, back, stay, on, self.gamma, self.inverse_key_norm]
    }

    pub(super) fn of(kept: &[T]) -> Self {
        Self {
            beta: kept[0],
            gate: kept[1],
            shifts: [kept[2], kept[3], kept[4]],
            gamma: kept[5],
            inverse_key_norm: kept[6],
        }
    }
}

/// `1/√(M_i·M_i + ε)` of every slot, from `memory [W, N]`.
#[inline(always)]
pub(super) fn inverse_norms<T: Real>(memory: &[T], norms: &mut [T]) {
    norms.fill(T::of(EPSILON));
    for line in memory.chunks_exact(norms.len()) {
        for (norm, &m) in norms.iter_mut().zip(line) {
            *norm = m.mul_add(m, *norm);
        }
    }
    for norm in norms.iter_mut() {
        *norm = norm.sqrt().recip();
    }
}

/// The address of one head: `weights` holds those of the step before and gets the new ones; `kept [4, N]` gets
/// what backward needs. `mixed [N]` is scratch.
#[inline(always)]
pub(super) fn address<T: Real>(
    controls: &Controls<T>,
    key: &[T],
    memory: &[T],
    norms: &[T],
    weights: &mut [T],
    kept: &mut [T],
    mixed: &mut [T],
) {
    let slots = norms.len();
    let (cosine, rest) = kept.split_at_mut(slots);
    let (content, rest) = rest.split_at_mut(slots);
    let (log_shifted, new) = rest.split_at_mut(slots);

    cosine.fill(T::zero());
    for (line, &k) in memory.chunks_exact(slots).zip(key) {
        for (sum, &m) in cosine.iter_mut().zip(line) {
            *sum = k.mul_add(m, *sum);
        }
    }
    for (z, &norm) in cosine.iter_mut().zip(norms) {
        *z = *z * controls.inverse_key_norm * norm;
    }
    softmax(cosine, controls.beta, content);
    interpolate(controls.gate, content, weights, mixed);
    shift(controls.shifts, mixed, log_shifted);
    for value in log_shifted.iter_mut() {
        *value = (*value + T::of(DELTA)).ln();
    }
    softmax(log_shifted, controls.gamma, new);
    weights.copy_from_slice(new);
}

/// `out = softmax(scale · x)`, `scale ≥ 0`.
#[inline(always)]
fn softmax<T: Real>(x: &[T], scale: T, out: &mut [T]) {
    let most = largest(x);
    for (out, &x) in out.iter_mut().zip(x) {
        *out = (scale * (x - most)).fast_exp();
    }
    let total = sum(out).recip();
    for out in out.iter_mut() {
        *out = *out * total;
    }
}

/// The largest number, by sixteen running ones, so that it vectorises.
#[inline(always)]
fn largest<T: Real>(x: &[T]) -> T {
    let mut most = [T::neg_infinity(); 16];
    let blocks = x.chunks_exact(16);
    let tail = blocks.remainder();
    for block in blocks {
        for lane in 0..16 {
            most[lane] = if block[lane] > most[lane] { block[lane] } else { most[lane] };
        }
    }
    let more = |most: T, &x: &T| if x > most { x } else { most };
    tail.iter().fold(most.iter().fold(T::neg_infinity(), more), more)
}

/// The sum in a fixed order, sixteen partial sums.
#[inline(always)]
fn sum<T: Real>(x: &[T]) -> T {
    let mut sums = [T::zero(); 16];
    let blocks = x.chunks_exact(16);
    let tail = blocks.remainder().iter().fold(T::zero(), |sum, &x| sum + x);
    for block in blocks {
        for lane in 0..16 {
            sums[lane] = sums[lane] + block[lane];
        }
    }
    atpm_core::vector::fold(sums) + tail
}

/// `d = g u + (1 − g) w'`.
#[inline(always)]
fn interpolate<T: Real>(gate: T, content: &[T], before: &[T], mixed: &mut [T]) {
    for ((mixed, &u), &w) in mixed.iter_mut().zip(content).zip(before) {
        *mixed = gate.mul_add(u, (T::one() - gate) * w);
    }
}

/// `v_i = s₋₁ d_{i+1} + s₀ d_i + s₊₁ d_{i−1}`, around the ring.
#[inline(always)]
fn shift<T: Real>([back, stay, on]: [T; SHIFTS], d: &[T], v: &mut [T]) {
    let last = d.len() - 1;
    let at = |before: T, here: T, after: T| on.mul_add(before, stay.mul_add(here, back * after));
    let (inner, befores, heres, afters) = (&mut v[1..last], &d[..last - 1], &d[1..last], &d[2..=last]);
    for (((v, &before), &here), &after) in inner.iter_mut().zip(befores).zip(heres).zip(afters) {
        *v = at(before, here, after);
    }
    v[0] = at(d[last], d[0], d[1]);
    v[last] = at(d[last - 1], d[last], d[0]);
}

/// Scratch of [`address_backward`], `[N]` each.
pub(super) struct Scratch<T> {
    mixed: Vec<T>,
    shifted: Vec<T>,
    rolled: Vec<T>,
}

impl<T: Real> Scratch<T> {
    pub(super) fn new(slots: usize) -> Self {
        let zeros = || vec![T::zero(); slots];
        Self { mixed: zeros(), shifted: zeros(), rolled: zeros() }
    }
}

/// What reaches a head's key beside its similarity: the gradients of its controls before their activations.
pub(super) struct ControlGradients<T> {
    /// `β`, `g`, the shifts, `γ`.
    pub(super) raw: [T; 6],
    /// Factor on the key that comes through its norm.
    pub(super) key_scale: T,
}

/// Backward of [`address`]: `d_weights` holds the gradient of the new weights and gets that of the weights before.
/// `d_products [N]` gets the gradient of `k·M'_i`, and `d_norms [N]` the factor on `M'_i` that comes through slot norms is added.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the equation's own letters")]
pub(super) fn address_backward<T: Real>(
    controls: &Controls<T>,
    raw: &[T],
    anneal: T,
    focus: &Focus<'_, T>,
    norms: &[T],
    before: &[T],
    d_weights: &mut [T],
    d_products: &mut [T],
    d_norms: &mut [T],
    scratch: &mut Scratch<T>,
) -> ControlGradients<T> {
    let one = T::one();
    let Scratch { mixed, shifted, rolled } = scratch;

    // w = softmax(γ ln(v + δ))
    let mean = dot(d_weights, focus.weights);
    for ((d, &dw), &w) in shifted.iter_mut().zip(d_weights.iter()).zip(focus.weights) {
        *d = w * (dw - mean);
    }
    let d_gamma = dot(shifted, focus.log_shifted);
    for (d, &log) in shifted.iter_mut().zip(focus.log_shifted) {
        // 1/(v + δ) is the exponential of what was kept.
        *d = controls.gamma * *d * (-log).fast_exp();
    }

    // v = s * d: the transpose shifts the other way.
    interpolate(controls.gate, focus.content, before, mixed);
    let [back, stay, on] = controls.shifts;
    let d_stay = dot(shifted, mixed);
    roll(mixed, 1, rolled);
    let d_on = dot(shifted, rolled);
    roll(mixed, -1, rolled);
    let d_back = dot(shifted, rolled);
    let mean = back.mul_add(d_back, stay.mul_add(d_stay, on * d_on));
    let d_shifts = [back * (d_back - mean), stay * (d_stay - mean), on * (d_on - mean)];
    shift([on, stay, back], shifted, rolled);

    // d = g u + (1 − g) w'
    let d_mixed = rolled;
    let d_gate = dot(d_mixed, focus.content) - dot(d_mixed, before);
    for (out, &d) in d_weights.iter_mut().zip(d_mixed.iter()) {
        *out = (one - controls.gate) * d;
    }

    // u = softmax(β z)
    let mean = dot(d_mixed, focus.content);
    for ((out, &d), &u) in d_products.iter_mut().zip(d_mixed.iter()).zip(focus.content) {
        *out = controls.gate * u * (d - mean);
    }
    let d_beta = dot(d_products, focus.cosine);

    // z = k·M / (|k| |M|)
    for out in d_products.iter_mut() {
        *out = *out * controls.beta;
    }
    let through_norm = dot(d_products, focus.cosine);
    let scale = controls.inverse_key_norm;
    for (((d, &z), &norm), d_norm) in
        d_products.iter_mut().zip(focus.cosine).zip(norms).zip(d_norms.iter_mut())
    {
        *d_norm = *d_norm - *d * z * norm * norm;
        *d = *d * scale * norm;
    }
    let raw_controls = &raw[raw.len() - 6..];
    ControlGradients {
        raw: [
            anneal * d_beta * sigmoid(raw_controls[0]),
            d_gate * controls.gate * (one - controls.gate),
            d_shifts[0],
            d_shifts[1],
            d_shifts[2],
            d_gamma * sigmoid(raw_controls[5]),
        ],
        key_scale: -through_norm * scale * scale,
    }
}

/// `out_i = x_{i − by}` around the ring, `by` 1 or −1.
#[inline(always)]
fn roll<T: Copy>(x: &[T], by: isize, out: &mut [T]) {
    let last = x.len() - 1;
    if by > 0 {
        out[1..].copy_from_slice(&x[..last]);
        out[0] = x[last];
    } else {
        out[..last].copy_from_slice(&x[1..]);
        out[last] = x[0];
    }
}
