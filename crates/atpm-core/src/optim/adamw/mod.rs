//! AdamW (Loshchilov & Hutter, decoupled weight decay), fused: one pass over parameter, moments and gradient.
//!
//! Everything is f32 and of one shape, but for a bf16 copy of the parameter that products may read. For update number `t` from 1, with `g` the gradient times
//! `grad_scale`, `η` the learning rate and `λ` the weight decay:
//!
//! ```text
//! m ← β₁ m + (1 − β₁) g        v ← β₂ v + (1 − β₂) g²
//! p ← p − η λ p − η (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)
//! ```
//!
//! `ε` stands outside the root. The constants are made in f64; each element is computed in f32.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{DType, Tensor};
use half::bf16;
use half::slice::HalfFloatSliceExt;

use crate::cuda::stream_of;
use crate::elements::{expect_contiguous, expect_shape, read, update as write};
use crate::{Error, Result};

const OP: &str = "adamw";

/// The configuration as the constants of the inner loop, made in f64.
#[derive(Clone, Copy)]
struct Constants {
    grad_scale: f32,
    beta1: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    eps: f32,
    /// `η λ`.
    decay: f32,
    /// `η / (1 − β₁ᵗ)`.
    rate: f32,
    /// `1 / (1 − β₂ᵗ)`.
    correction2: f32,
}

impl Constants {
    fn new(config: &Config) -> Self {
        let (correction1, correction2) = config.bias_corrections();
        Self {
            grad_scale: config.grad_scale as f32,
            beta1: config.beta1 as f32,
            one_minus_beta1: (1.0 - config.beta1) as f32,
            beta2: config.beta2 as f32,
            one_minus_beta2: (1.0 - config.beta2) as f32,
            eps: config.eps as f32,
            decay: (config.lr * config.weight_decay) as f32,
            rate: (config.lr / correction1) as f32,
            correction2: correction2.recip() as f32,
        }
    }
}

/// Hyper-parameters of one update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Learning rate of this step.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment, outside the root.
    pub eps: f64,
    /// Decoupled weight decay; 0 for parameters outside the decay group.
    pub weight_decay: f64,
    /// Factor on the gradient before use (clipping).
    pub grad_scale: f64,
    /// Number of this update, from 1 (bias correction).
    pub step: u64,
}

impl Config {
    /// `(1 − β₁ᵗ, 1 − β₂ᵗ)`.
    fn bias_corrections(&self) -> (f64, f64) {
        let remaining = |beta: f64| 1.0 - beta.powf(self.step as f64);
        (remaining(self.beta1), remaining(self.beta2))
    }
}

/// One parameter with its moments and its gradient, all of one shape, f32.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a> {
    /// Moved by the update.
    pub parameter: &'a Tensor,
    /// First moment.
    pub m: &'a Tensor,
    /// Second moment.
    pub v: &'a Tensor,
    /// Read alone.
    pub gradient: &'a Tensor,
    /// Whether the configuration's weight decay applies.
    pub decays: bool,
    /// Becomes the moved parameter in bf16, where products read such a copy ([`crate::rounded`]).
    pub rounded: Option<&'a Tensor>,
}

/// Updates `parameter`, `m` and `v` in place from `gradient`; all of one shape, f32.
///
/// # Errors
/// Shapes or dtypes that do not fit, a tensor to be written that is not contiguous, a device without an implementation,
/// step 0.
pub fn update(config: &Config, parameter: &Tensor, m: &Tensor, v: &Tensor, gradient: &Tensor) -> Result<()> {
    update_all(config, &[Member { parameter, m, v, gradient, decays: true, rounded: None }])
}

/// As [`update`], of several parameters: on a GPU in one launch.
///
/// # Errors
/// As [`update`]. Shapes, dtypes and layouts of all tensors are checked before the first of them is changed.
pub fn update_all(config: &Config, members: &[Member<'_>]) -> Result<()> {
    if config.step == 0 {
        return Err(Error::Argument { op: OP, problem: "steps count from 1, got step 0".into() });
    }
    for Member { parameter, m, v, gradient, rounded, .. } in members {
        for (name, tensor) in [("m", m), ("v", v), ("gradient", gradient)] {
            expect_shape(OP, name, tensor, parameter.dims(), "parameter's shape")?;
            expect_dtype(tensor, DType::F32, "f32")?;
        }
        expect_dtype(parameter, DType::F32, "f32")?;
        if let Some(rounded) = rounded {
            expect_shape(OP, "rounded", rounded, parameter.dims(), "parameter's shape")?;
            expect_dtype(rounded, DType::BF16, "bf16")?;
        }
        let written = [parameter, m, v].into_iter().chain(rounded);
        written.into_iter().try_for_each(|tensor| expect_contiguous(OP, tensor))?;
    }
    let Some(first) = members.first() else { return Ok(()) };
    if let Some(stream) = stream_of(first.parameter)? {
        return cuda::update(&stream, config, members);
    }
    members.iter().try_for_each(|member| update_on_cpu(config, member))
}

fn update_on_cpu(config: &Config, member: &Member<'_>) -> Result<()> {
    let weight_decay = if member.decays { config.weight_decay } else { 0.0 };
    let config = Config { weight_decay, ..*config };
    read(OP, member.gradient, |gradient: &[f32]| {
        write(OP, member.parameter, |parameter: &mut [f32]| {
            write(OP, member.m, |m: &mut [f32]| {
                write(OP, member.v, |v: &mut [f32]| {
                    cpu::update(&config, parameter, m, v, gradient);
                    member.rounded.map_or(Ok(()), |rounded| round_into(rounded, parameter))
                })
            })
        })
    })
}

/// Overwrites a bf16 tensor with these values, rounded to nearest even.
fn round_into(rounded: &Tensor, values: &[f32]) -> Result<()> {
    write(OP, rounded, |rounded: &mut [bf16]| {
        rounded.convert_from_f32_slice(values);
        Ok(())
    })
}

/// `Σ g²` of one gradient, in f64 and in a fixed order.
///
/// # Errors
/// Another dtype than f32, a device without an implementation.
pub fn squared_norm(gradient: &Tensor) -> Result<f64> {
    squared_norm_of_all(&[gradient])
}

/// `Σ g²` over several gradients, in f64 and in a fixed order: on a GPU in one launch.
///
/// # Errors
/// As [`squared_norm`].
pub fn squared_norm_of_all(gradients: &[&Tensor]) -> Result<f64> {
    gradients.iter().try_for_each(|gradient| expect_dtype(gradient, DType::F32, "f32"))?;
    let Some(first) = gradients.first() else { return Ok(0.0) };
    if let Some(stream) = stream_of(first)? {
        return cuda::squared_norm(&stream, gradients);
    }
    let norm = |gradient: &&Tensor| read(OP, gradient, |gradient: &[f32]| Ok(cpu::squared_norm(gradient)));
    gradients.iter().map(norm).sum()
}

fn expect_dtype(tensor: &Tensor, dtype: DType, expected: &'static str) -> Result<()> {
    if tensor.dtype() == dtype {
        return Ok(());
    }
    Err(Error::Dtype { op: OP, got: format!("{:?}", tensor.dtype()), expected })
}
