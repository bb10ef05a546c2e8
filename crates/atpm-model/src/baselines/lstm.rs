//! An LSTM layer of `d` cells: the input's product for all steps at once, then the recurrence.
//!
//! Shapes: `x [B,T,d]`, gates `[B,T,4d]`. Saved for backward: what the op saves. The recurrent product is f32 in any
//! case, since its rounding would add up over a whole document.

use atpm_core::ops::linear;
use atpm_core::ops::lstm::{self, State};
use atpm_core::{Precision, Segments};
use candle_core::Tensor;

use crate::decode::DecodeState;
use crate::init::Init;
use crate::layer::{Layer, Saved, bytes};
use crate::{MixerKind, ModelConfig, Parameter, ParameterSpec, Parameters, Result};

const NAME: &str = "lstm";

/// An LSTM as a mixer.
pub const LSTM: MixerKind = MixerKind { specs, build: Lstm::build, mlp: false };

fn specs(config: &ModelConfig, prefix: &str) -> Result<Vec<ParameterSpec>> {
    let d = config.d_model;
    let uniform = || Init::Uniform(1.0 / (d as f64).sqrt());
    Ok(vec![
        ParameterSpec::new(format!("{prefix}.in_proj.weight"), [4 * d, d], uniform())?,
        ParameterSpec::new(format!("{prefix}.recurrent.weight"), [4 * d, d], uniform())?,
        // Input, forget, candidate, output: a cell begins by keeping what it has.
        ParameterSpec::new(format!("{prefix}.bias"), [4, d], Init::Rows(vec![0.0, 1.0, 0.0, 0.0]))?,
    ])
}

struct Lstm {
    prefix: String,
    in_proj: Parameter,
    recurrent: Parameter,
    bias: Parameter,
    precision: Precision,
}

impl Lstm {
    fn build(_config: &ModelConfig, prefix: &str, parameters: &mut Parameters) -> Result<Box<dyn Layer>> {
        Ok(Box::new(Self {
            in_proj: parameters.take(prefix, "in_proj.weight")?,
            recurrent: parameters.take(prefix, "recurrent.weight")?,
            bias: parameters.take(prefix, "bias")?,
            prefix: prefix.into(),
            precision: Precision::F32,
        }))
    }

    fn run(&self, x: &Tensor, state: Option<&State>, segments: &Segments) -> Result<(Tensor, lstm::Saved)> {
        let gates = linear::forward(x, self.in_proj.factor(self.precision)?, self.precision)?;
        Ok(lstm::forward(&gates, &self.recurrent.value, &self.bias.value, state, segments)?)
    }

    fn names(&self) -> [String; 2] {
        ["h", "c"].map(|part| format!("{}.{part}", self.prefix))
    }
}

impl Layer for Lstm {
    fn forward(&self, x: &Tensor, segments: &Segments) -> Result<(Tensor, Saved)> {
        let (h, saved) = self.run(x, None, segments)?;
        let size = bytes([&saved.gates, &saved.cells, &saved.h]);
        Ok((h, Saved::new(saved, size)))
    }

    fn backward(&self, x: &Tensor, saved: Saved, dh: &Tensor, segments: &Segments) -> Result<Tensor> {
        let saved: lstm::Saved = saved.take(NAME)?;
        let Self { recurrent, bias, in_proj, precision, .. } = self;
        let dgates =
            lstm::backward(&saved, &recurrent.value, dh, segments, &recurrent.gradient, &bias.gradient)?;
        linear::backward_weight(x, &dgates, &in_proj.gradient, *precision)?;
        Ok(linear::backward_input(in_proj.factor(*precision)?, &dgates, *precision)?)
    }

    fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![self.in_proj.clone(), self.recurrent.clone(), self.bias.clone()]
    }

    fn initial_state(&self, batch: usize) -> Result<Vec<(String, Tensor)>> {
        let value = &self.in_proj.value;
        let zeros = Tensor::zeros((batch, value.dim(1)?), value.dtype(), value.device())?;
        Ok(self.names().into_iter().map(|name| (name, zeros.clone())).collect())
    }

    fn resume(&self, x: &Tensor, segments: &Segments, state: &mut DecodeState) -> Result<Tensor> {
        let [h, c] = self.names();
        let before = State { h: state.get(&h)?.clone(), c: state.get(&c)?.clone() };
        let (out, saved) = self.run(x, Some(&before), segments)?;
        let after = lstm::last_state(&saved)?;
        state.set(&h, after.h)?;
        state.set(&c, after.c)?;
        Ok(out)
    }
}
