//! The SwiGLU layer: `down( silu(gate) ⊙ up )`, gate and up in one projection.
//!
//! Shapes: `x [B,T,d]`, `packed [B,T,2F]` (gate first), `F` inner size. Saved for backward:
//! `packed`; the product is computed again, in the same pass as its gradient.

use atpm_core::ops::{linear, swiglu};
use atpm_core::{Precision, Segments};
use candle_core::Tensor;

use crate::decode::DecodeState;
use crate::init::{Init, STD, output_std};
use crate::layer::{Layer, Saved, bytes};
use crate::{ModelConfig, Parameter, ParameterSpec, Parameters, Result};

const NAME: &str = "mlp";

/// The parameters of the MLP called `prefix`.
///
/// # Errors
/// None of its own; every name here belongs to a decay group.
pub fn specs(config: &ModelConfig, prefix: &str) -> Result<Vec<ParameterSpec>> {
    let ModelConfig { d_model: d, mlp: inner, .. } = *config;
    Ok(vec![
        ParameterSpec::new(format!("{prefix}.up.weight"), [2 * inner, d], Init::Normal(STD))?,
        ParameterSpec::new(
            format!("{prefix}.down.weight"),
            [d, inner],
            Init::Normal(output_std(config.layers)),
        )?,
    ])
}

/// The SwiGLU layer of one block.
#[derive(Debug)]
pub struct Mlp {
    up: Parameter,
    down: Parameter,
    precision: Precision,
}

struct Kept {
    /// `[B,T,2F]`.
    packed: Tensor,
}

impl Mlp {
    /// Takes the parameters called `prefix.…`.
    ///
    /// # Errors
    /// A parameter that is not there.
    pub fn new(prefix: &str, parameters: &mut Parameters) -> Result<Self> {
        Ok(Self {
            up: parameters.take(prefix, "up.weight")?,
            down: parameters.take(prefix, "down.weight")?,
            precision: Precision::F32,
        })
    }
}

impl Layer for Mlp {
    fn forward(&self, x: &Tensor, _segments: &Segments) -> Result<(Tensor, Saved)> {
        let precision = self.precision;
        let packed = linear::forward(x, self.up.factor(precision)?, precision)?;
        let out = linear::forward(&swiglu::forward(&packed)?, self.down.factor(precision)?, precision)?;
        let size = bytes([&packed]);
        Ok((out, Saved::new(Kept { packed }, size)))
    }

    fn backward(&self, x: &Tensor, saved: Saved, dout: &Tensor, _segments: &Segments) -> Result<Tensor> {
        let Kept { packed } = saved.take(NAME)?;
        let precision = self.precision;
        let dinner = linear::backward_input(self.down.factor(precision)?, dout, precision)?;
        let (dpacked, inner) = swiglu::backward(&packed, &dinner)?;
        linear::backward_weight(&inner, dout, &self.down.gradient, precision)?;
        linear::backward_weight(x, &dpacked, &self.up.gradient, precision)?;
        Ok(linear::backward_input(self.up.factor(precision)?, &dpacked, precision)?)
    }

    fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![self.up.clone(), self.down.clone()]
    }

    fn resume(&self, x: &Tensor, segments: &Segments, _state: &mut DecodeState) -> Result<Tensor> {
        Ok(self.forward(x, segments)?.0)
    }
}
