//! From gate logits to the mixer's controls.
//!
//! Shapes: logits and controls `[B,T,5,H]` in the order (log α, β_K, β_V, ρ, λ), `A_log [H]`,
//! `dt_bias [H]`, `bias [4,H]` for the last four. dtype f32 (f64 in tests), accumulated in the same.
//!
//! ```text
//! log α = −min(m, 10⁵),  m = exp(A_log)·softplus(u),  u = x_α + dt_bias
//! β_K, β_V, ρ, λ = σ,    σ = sigmoid(x + bias)
//!
//! dx_α = ddt_bias = −exp(A_log)·sigmoid(u)·d(log α)        dA_log = −m·d(log α)
//! dx   = dbias    = σ(1 − σ)·dσ
//! ```
//!
//! `1 − σ` is computed as `sigmoid(−x − bias)`, which keeps its digits where `σ` is near 1.
//! The bound keeps `log α` finite for every `A_log` and logit; where it holds, the gradient is 0. A
//! pinned controller is a constant without gradient; a tied `β_V` passes its gradient to `β_K`.
//! Saved for backward: nothing but the inputs.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use crate::blocks::add;
use crate::cuda::stream_of;
use crate::elements::{Element, expect_shape, read_all, real_dtype, tensor, update, with_real};
use crate::vector::unset;
use crate::{Error, Result};

const OP: &str = "gates";

/// Bound of `−log α`: a factor of `exp(−10⁵)` is zero in any dtype, and sums of it stay finite.
pub const MAX_DECAY: f64 = 1e5;

/// Controllers held at a constant instead of learned; `None` is learned.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pins {
    /// ρ, the strength of transport, in [0, 1].
    pub rho: Option<f64>,
    /// λ, the strength of the recall correction, in [0, 1].
    pub lambda: Option<f64>,
    /// β_V follows β_K: one write strength for the whole entity.
    pub tie_beta: bool,
}

/// Controls `[B,T,5,H]` in the order (log α, β_K, β_V, ρ, λ) of `logits [B,T,5,H]` in the same order, `a_log [H]`,
/// `dt_bias [H]`, `bias [4,H]` (β_K, β_V, ρ, λ).
///
/// # Errors
/// Shapes or dtypes that do not fit, a device without an implementation.
pub fn forward(
    logits: &Tensor,
    a_log: &Tensor,
    dt_bias: &Tensor,
    bias: &Tensor,
    pins: Pins,
) -> Result<Tensor> {
    check_shapes(logits, [a_log, dt_bias, bias], ["a_log", "dt_bias", "bias"])?;
    let inputs = [logits, a_log, dt_bias, bias];
    if let Some(stream) = stream_of(logits)? {
        return cuda::forward(&stream, inputs, pins);
    }
    with_real!(real_dtype(OP, &inputs)?, T => forward_as::<T>(inputs, pins))
}

fn forward_as<T: Element>(inputs: [&Tensor; 4], pins: Pins) -> Result<Tensor> {
    let mut controls = unset::<T>(inputs[0].elem_count());
    read_all(OP, inputs, |[logits, a_log, dt_bias, bias]| {
        cpu::forward(&cpu::Inputs { logits, a_log, dt_bias, bias, pins }, &mut controls);
        Ok(())
    })?;
    tensor(controls, inputs[0].shape())
}

/// `dlogits [B,T,5,H]`; adds to `da_log`, `ddt_bias`, `dbias`.
///
/// # Errors
/// As [`forward`].
#[expect(clippy::too_many_arguments, reason = "one argument a tensor of the equation")]
pub fn backward(
    logits: &Tensor,
    a_log: &Tensor,
    dt_bias: &Tensor,
    bias: &Tensor,
    pins: Pins,
    dcontrols: &Tensor,
    da_log: &Tensor,
    ddt_bias: &Tensor,
    dbias: &Tensor,
) -> Result<Tensor> {
    check_shapes(logits, [a_log, dt_bias, bias], ["a_log", "dt_bias", "bias"])?;
    check_shapes(logits, [da_log, ddt_bias, dbias], ["da_log", "ddt_bias", "dbias"])?;
    expect_shape(OP, "dcontrols", dcontrols, logits.dims(), "[B,T,5,H]")?;
    let (inputs, sums) = ([logits, a_log, dt_bias, bias, dcontrols], [da_log, ddt_bias, dbias]);
    if let Some(stream) = stream_of(logits)? {
        return cuda::backward(&stream, inputs, pins, sums);
    }
    let dtype = real_dtype(OP, &[logits, a_log, dt_bias, bias, dcontrols, da_log, ddt_bias, dbias])?;
    with_real!(dtype, T => backward_as::<T>(inputs, pins, sums))
}

fn backward_as<T: Element>(inputs: [&Tensor; 5], pins: Pins, sums: [&Tensor; 3]) -> Result<Tensor> {
    let mut dlogits = unset::<T>(inputs[0].elem_count());
    let gradients = read_all(OP, inputs, |[logits, a_log, dt_bias, bias, dcontrols]| {
        let inputs = cpu::Inputs { logits, a_log, dt_bias, bias, pins };
        Ok(cpu::backward(&inputs, dcontrols, &mut dlogits))
    })?;
    let mut rest = gradients.as_slice();
    for sum in sums {
        let (gradient, after) = rest.split_at(sum.elem_count());
        update(OP, sum, |sum| {
            add(gradient, sum);
            Ok(())
        })?;
        rest = after;
    }
    tensor(dlogits, inputs[0].shape())
}

fn check_shapes(logits: &Tensor, parameters: [&Tensor; 3], names: [&'static str; 3]) -> Result<()> {
    let &[_, _, 5, heads] = logits.dims() else {
        let got = logits.dims().to_vec();
        return Err(Error::Shape { op: OP, argument: "logits", got, expected: "[B,T,5,H]".into() });
    };
    expect_shape(OP, names[0], parameters[0], &[heads], "[H]")?;
    expect_shape(OP, names[1], parameters[1], &[heads], "[H]")?;
    expect_shape(OP, names[2], parameters[2], &[4, heads], "[4,H]")
}
