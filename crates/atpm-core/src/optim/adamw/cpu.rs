//! AdamW on slices: blocks in parallel, every element read and written once.

use rayon::prelude::*;

use super::{Config, Constants};
use crate::vector::{LANES, fold, vectorize};

/// Elements of one block: three arrays written and one read fit the second-level cache.
const BLOCK: usize = 16_384;

/// Updates `parameter`, `m` and `v` from `gradient`.
pub(super) fn update(config: &Config, parameter: &mut [f32], m: &mut [f32], v: &mut [f32], gradient: &[f32]) {
    let constants = Constants::new(config);
    let moments = m.par_chunks_mut(BLOCK).zip(v.par_chunks_mut(BLOCK));
    let blocks = parameter.par_chunks_mut(BLOCK).zip(moments).zip(gradient.par_chunks(BLOCK));
    blocks.for_each(|((parameter, (m, v)), gradient)| {
        vectorize!(update_block(constants, parameter, m, v, gradient));
    });
}

#[inline(always)]
fn update_block(c: Constants, parameter: &mut [f32], m: &mut [f32], v: &mut [f32], gradient: &[f32]) {
    let moments = m.iter_mut().zip(v);
    for ((p, (m, v)), &gradient) in parameter.iter_mut().zip(moments).zip(gradient) {
        let g = gradient * c.grad_scale;
        *m = c.beta1.mul_add(*m, c.one_minus_beta1 * g);
        *v = c.beta2.mul_add(*v, c.one_minus_beta2 * g * g);
        let root = (*v * c.correction2).sqrt();
        *p = c.decay.mul_add(-*p, *p) - c.rate * *m / (root + c.eps);
    }
}

/// `Σ g²` in f64: lanes in a block, then blocks in order.
pub(super) fn squared_norm(gradient: &[f32]) -> f64 {
    let sums: Vec<f64> =
        gradient.par_chunks(BLOCK).map(|block| vectorize!(squared_norm_of_block(block))).collect();
    sums.iter().sum()
}

#[inline(always)]
fn squared_norm_of_block(gradient: &[f32]) -> f64 {
    let mut lanes = [0.0f64; LANES];
    let groups = gradient.chunks_exact(LANES);
    let tail: f64 = groups.remainder().iter().map(|&g| f64::from(g) * f64::from(g)).sum();
    for group in groups {
        for (lane, &g) in lanes.iter_mut().zip(group) {
            *lane = f64::from(g).mul_add(f64::from(g), *lane);
        }
    }
    fold(lanes) + tail
}
