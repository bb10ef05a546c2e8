//! Initial values, drawn on the host by one generator of fixed definition.
//!
//! Each parameter has its own random stream, chosen by its **name**: adding a parameter moves no
//! other. Within a stream every block of elements has its own place, so the values depend neither
//! on the number of threads nor on the device that the model then lives on.

use std::fmt;

use atpm_core::vector::Real;
use candle_core::{DType, Device, Tensor};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rayon::prelude::*;

use crate::{Error, Result};

/// Standard deviation of matrices and embeddings.
pub const STD: f64 = 0.02;

/// Standard deviation of the matrices that write into the residual stream, `0.02 / √(2·layers)`:
/// two of them a block add up to the same variance at any depth.
pub fn output_std(layers: usize) -> f64 {
    STD / (2.0 * layers as f64).sqrt()
}

/// Elements drawn from one place of a stream.
const BLOCK: usize = 1 << 16;
/// Words of the stream set aside for a block; a normal pair, the dearest draw, takes four.
const WORDS_PER_BLOCK: u128 = 1 << 20;
/// Range of the decay rate `A`.
const MAX_RATE: f64 = 16.0;
/// Range of the step size `dt`, log-uniform.
const STEP: (f64, f64) = (1e-3, 0.1);

/// How a parameter starts.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Init {
    /// All zero.
    Zeros,
    /// All one.
    Ones,
    /// Normal around 0 with this standard deviation.
    Normal(f64),
    /// The first `rows` rows normal around 0 with deviation `std`, the others zero.
    NormalRows {
        /// Standard deviation.
        std: f64,
        /// Rows that are drawn.
        rows: usize,
    },
    /// Uniform between minus and plus this bound.
    Uniform(f64),
    /// One constant a row.
    Rows(Vec<f64>),
    /// `ln A` with `A` uniform in (0, 16]: the decay rate of a memory head.
    LogRate,
    /// `softplus⁻¹(dt)` with `dt` log-uniform in \[0.001, 0.1\]: the bias of a memory head's step.
    StepBias,
}

impl fmt::Display for Init {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zeros => write!(f, "zeros"),
            Self::Ones => write!(f, "ones"),
            Self::Normal(std) => write!(f, "N(0, {std:.4})"),
            Self::NormalRows { std, rows } => write!(f, "N(0, {std:.4}) in rows 0..{rows}, then zeros"),
            Self::Uniform(bound) => write!(f, "U(±{bound:.4})"),
            Self::Rows(values) => write!(f, "rows of {values:?}"),
            Self::LogRate => write!(f, "ln U(0, {MAX_RATE})"),
            Self::StepBias => write!(f, "softplus⁻¹ of log-uniform [{}, {}]", STEP.0, STEP.1),
        }
    }
}

/// A tensor of this shape with the initial values of the parameter `name` under `seed`.
///
/// # Errors
/// A dtype other than f32 and f64, or a device that refuses the tensor.
pub fn tensor(
    init: &Init,
    shape: &[usize],
    name: &str,
    seed: u64,
    dtype: DType,
    device: &Device,
) -> Result<Tensor> {
    match dtype {
        DType::F32 => Ok(Tensor::from_vec(values::<f32>(init, shape, name, seed), shape, device)?),
        DType::F64 => Ok(Tensor::from_vec(values::<f64>(init, shape, name, seed), shape, device)?),
        other => Err(Error::Parameter {
            name: name.into(),
            problem: format!("masters are f32 (f64 in tests), not {other:?}"),
        }),
    }
}

fn values<T: Real>(init: &Init, shape: &[usize], name: &str, seed: u64) -> Vec<T> {
    let row = shape.iter().skip(1).product::<usize>().max(1);
    let mut elements = vec![T::zero(); shape.iter().product()];
    elements.par_chunks_mut(BLOCK).enumerate().for_each(|(block, elements)| {
        let mut stream = ChaCha8Rng::seed_from_u64(seed);
        stream.set_stream(hash(name));
        stream.set_word_pos(block as u128 * WORDS_PER_BLOCK);
        fill(init, elements, block * BLOCK, row, &mut stream);
    });
    elements
}

/// Fills the elements from `start` on of a parameter with rows of `row` elements.
fn fill<T: Real>(init: &Init, elements: &mut [T], start: usize, row: usize, stream: &mut ChaCha8Rng) {
    match init {
        Init::Zeros => {}
        Init::Ones => elements.fill(T::one()),
        Init::Normal(std) => normal(elements, *std, stream),
        Init::NormalRows { std, rows } => {
            let drawn = (rows * row).saturating_sub(start).min(elements.len());
            normal(&mut elements[..drawn], *std, stream);
        }
        Init::Uniform(bound) => {
            elements.fill_with(|| T::of((2.0 * uniform(stream) - 1.0) * bound));
        }
        Init::Rows(values) => {
            for (index, element) in elements.iter_mut().enumerate() {
                *element = T::of(values[(start + index) / row]);
            }
        }
        // 1 − u lies in (0, 1], so that the logarithm is finite.
        Init::LogRate => elements.fill_with(|| T::of((MAX_RATE * (1.0 - uniform(stream))).ln())),
        Init::StepBias => elements.fill_with(|| {
            let (low, high) = (STEP.0.ln(), STEP.1.ln());
            let dt = (low + (high - low) * uniform(stream)).exp();
            T::of(dt.exp_m1().ln())
        }),
    }
}

/// Box–Muller, two values a pair of draws.
fn normal<T: Real>(elements: &mut [T], std: f64, stream: &mut ChaCha8Rng) {
    for pair in elements.chunks_mut(2) {
        let radius = std * (-2.0 * (1.0 - uniform(stream)).ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * uniform(stream)).sin_cos();
        pair[0] = T::of(radius * cos);
        if let Some(second) = pair.get_mut(1) {
            *second = T::of(radius * sin);
        }
    }
}

/// Uniform in [0, 1) with 53 random bits.
fn uniform(stream: &mut ChaCha8Rng) -> f64 {
    (stream.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// FNV-1a: which stream a name has must never change between versions.
fn hash(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(init: &Init, shape: &[usize], name: &str, seed: u64) -> Vec<f64> {
        values(init, shape, name, seed)
    }

    #[test]
    fn normal_has_its_moments() {
        let x = draw(&Init::Normal(0.02), &[400, 501], "w", 1);
        let n = x.len() as f64;
        let mean = x.iter().sum::<f64>() / n;
        let var = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        assert!(mean.abs() < 2e-4, "{mean}");
        assert!((var.sqrt() / 0.02 - 1.0).abs() < 0.01, "{var}");
    }

    #[test]
    fn blocks_do_not_repeat() {
        let x = draw(&Init::Normal(1.0), &[2 * BLOCK], "w", 1);
        assert_ne!(x[..BLOCK], x[BLOCK..]);
    }

    #[test]
    fn ranges_hold() {
        for v in draw(&Init::LogRate, &[1000], "a", 3) {
            assert!(v.is_finite() && v <= MAX_RATE.ln());
        }
        for v in draw(&Init::StepBias, &[1000], "b", 3) {
            let dt = v.exp().ln_1p();
            assert!((STEP.0 * 0.999..STEP.1 * 1.001).contains(&dt), "{dt}");
        }
        for v in draw(&Init::Uniform(0.5), &[1000], "c", 3) {
            assert!(v.abs() <= 0.5);
        }
    }

    #[test]
    fn rows_are_rows() {
        assert_eq!(draw(&Init::Rows(vec![1.0, 2.0]), &[2, 3], "b", 0), [1.0, 1.0, 1.0, 2.0, 2.0, 2.0]);
        let x = draw(&Init::NormalRows { std: 1.0, rows: 2 }, &[4, 3], "w", 0);
        assert!(x[..6].iter().all(|&v| v != 0.0) && x[6..].iter().all(|&v| v == 0.0));
    }

    // B6: the same seed gives the same bits on any number of threads, and names choose the stream.
    #[test]
    fn seed_and_name_decide() {
        let shape = [3, BLOCK];
        let all = draw(&Init::Normal(1.0), &shape, "w", 7);
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        assert_eq!(all, one.install(|| draw(&Init::Normal(1.0), &shape, "w", 7)));
        assert_ne!(all, draw(&Init::Normal(1.0), &shape, "w", 8));
        assert_ne!(all, draw(&Init::Normal(1.0), &shape, "v", 7));
    }
}
