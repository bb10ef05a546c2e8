//! The unit-triangular systems of a chunk, by substitution.
//!
//! Substitution keeps all digits when addresses repeat and `β → 1`; powers of `M` over a whole chunk
//! would not. Rows go in order; the sum over earlier rows is the product that costs.

use super::{Controls, Sizes};
use crate::vector::Real;

/// `r_t ← r_t − Σ_{i<t} M_ti U_i`, `U_t = Ω_t ⊙ r_t`, for `t` ascending.
#[inline(always)]
pub(super) fn forward<T: Real>(
    c: usize,
    sizes: &Sizes,
    controls: &Controls<T>,
    m: &[T],
    r: &mut [T],
    u: &mut [T],
) {
    let entity = sizes.entity();
    for t in 0..c {
        let (known, rest) = u.split_at_mut(t * entity);
        let r = &mut r[t * entity..][..entity];
        subtract(r, &m[t * c..][..t], 1, known);
        scale(&r[..sizes.key], controls.beta_key[t], &mut rest[..sizes.key]);
        scale(&r[sizes.key..], controls.beta_value[t], &mut rest[sizes.key..entity]);
    }
}

/// `Z_t ← Z_t − Σ_{i>t} M_it dR_i`, `dR_t = Ω_t ⊙ Z_t`, for `t` descending.
#[inline(always)]
pub(super) fn backward<T: Real>(
    c: usize,
    sizes: &Sizes,
    controls: &Controls<T>,
    m: &[T],
    z: &mut [T],
    dr: &mut [T],
) {
    let entity = sizes.entity();
    for t in (0..c).rev() {
        let (rest, known) = dr[..c * entity].split_at_mut((t + 1) * entity);
        let z = &mut z[t * entity..][..entity];
        let column = if t + 1 < c { &m[(t + 1) * c + t..c * c] } else { &[] };
        subtract(z, column, c, known);
        let dr = &mut rest[t * entity..];
        scale(&z[..sizes.key], controls.beta_key[t], &mut dr[..sizes.key]);
        scale(&z[sizes.key..], controls.beta_value[t], &mut dr[sizes.key..]);
    }
}

/// Columns held in registers while the sum over known rows runs.
const TILE: usize = 64;

/// `row ← row − Σ_j factors[j·stride]·known_j`, `known` being rows as wide as `row`.
#[inline(always)]
fn subtract<T: Real>(row: &mut [T], factors: &[T], stride: usize, known: &[T]) {
    let width = row.len();
    for first in (0..width).step_by(TILE) {
        let end = (first + TILE).min(width);
        if end - first == TILE {
            let mut sums = [T::zero(); TILE];
            sums.copy_from_slice(&row[first..end]);
            for (known, &factor) in known.chunks_exact(width).zip(factors.iter().step_by(stride)) {
                let known = &known[first..end];
                for lane in 0..TILE {
                    sums[lane] = (-factor).mul_add(known[lane], sums[lane]);
                }
            }
            row[first..end].copy_from_slice(&sums);
        } else {
            for (known, &factor) in known.chunks_exact(width).zip(factors.iter().step_by(stride)) {
                for (x, &known) in row[first..end].iter_mut().zip(&known[first..end]) {
                    *x = (-factor).mul_add(known, *x);
                }
            }
        }
    }
}

#[inline(always)]
fn scale<T: Real>(row: &[T], factor: T, out: &mut [T]) {
    for (out, &x) in out.iter_mut().zip(row) {
        *out = factor * x;
    }
}
