//! Causal softmax attention: `out(attention(qkv(x)))`.
//!
//! Shapes: `x [B,T,d]`, `qkv [B,T,3d]`, `d / H` channels a head. Saved for backward: what the op saves.

use atpm_core::ops::attention::{self, Past};
use atpm_core::ops::linear;
use atpm_core::{Precision, Segments};
use candle_core::Tensor;

use crate::decode::DecodeState;
use crate::init::{Init, STD, output_std};
use crate::layer::{Layer, Saved, bytes};
use crate::{MixerKind, ModelConfig, Parameter, ParameterSpec, Parameters, Result};

const NAME: &str = "attention";

/// Attention as a mixer.
pub const TRANSFORMER: MixerKind = MixerKind { specs, build: Attention::build, mlp: true };

fn specs(config: &ModelConfig, prefix: &str) -> Result<Vec<ParameterSpec>> {
    let d = config.d_model;
    Ok(vec![
        ParameterSpec::new(format!("{prefix}.qkv.weight"), [3 * d, d], Init::Normal(STD))?,
        ParameterSpec::new(
            format!("{prefix}.out_proj.weight"),
            [d, d],
            Init::Normal(output_std(config.layers)),
        )?,
    ])
}

struct Attention {
    prefix: String,
    heads: usize,
    qkv: Parameter,
    out_proj: Parameter,
    precision: Precision,
}

impl Attention {
    fn build(config: &ModelConfig, prefix: &str, parameters: &mut Parameters) -> Result<Box<dyn Layer>> {
        Ok(Box::new(Self {
            heads: config.heads,
            qkv: parameters.take(prefix, "qkv.weight")?,
            out_proj: parameters.take(prefix, "out_proj.weight")?,
            prefix: prefix.into(),
            precision: Precision::F32,
        }))
    }

    /// The layer's output `[B,T,d]` and what attention saved.
    fn run(
        &self,
        x: &Tensor,
        past: Option<&Past>,
        segments: &Segments,
    ) -> Result<(Tensor, attention::Saved)> {
        let qkv = linear::forward(x, self.qkv.factor(self.precision)?, self.precision)?;
        let (y, saved) = attention::forward(&qkv, self.heads, past, segments)?;
        Ok((linear::forward(&y, self.out_proj.factor(self.precision)?, self.precision)?, saved))
    }

    fn names(&self) -> [String; 3] {
        ["keys", "values", "first"].map(|part| format!("{}.{part}", self.prefix))
    }
}

impl Layer for Attention {
    fn forward(&self, x: &Tensor, segments: &Segments) -> Result<(Tensor, Saved)> {
        let (out, saved) = self.run(x, None, segments)?;
        let size = bytes([&saved.rotated, &saved.log_sums, &saved.y]);
        Ok((out, Saved::new(saved, size)))
    }

    fn backward(&self, x: &Tensor, saved: Saved, dout: &Tensor, segments: &Segments) -> Result<Tensor> {
        let saved: attention::Saved = saved.take(NAME)?;
        let dy = linear::backward_input(self.out_proj.factor(self.precision)?, dout, self.precision)?;
        linear::backward_weight(&saved.y, dout, &self.out_proj.gradient, self.precision)?;
        let dqkv = attention::backward(&saved, self.heads, &dy, segments)?;
        linear::backward_weight(x, &dqkv, &self.qkv.gradient, self.precision)?;
        Ok(linear::backward_input(self.qkv.factor(self.precision)?, &dqkv, self.precision)?)
    }

    fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
    }

    fn parameters(&self) -> Vec<Parameter> {
        vec![self.qkv.clone(), self.out_proj.clone()]
    }

    fn initial_state(&self, batch: usize) -> Result<Vec<(String, Tensor)>> {
        let value = &self.qkv.value;
        let empty = Tensor::zeros((batch, 0, value.dim(1)?), value.dtype(), value.device())?;
        let first = Tensor::zeros(batch, value.dtype(), value.device())?;
        Ok(self.names().into_iter().zip([empty.clone(), empty, first]).collect())
    }

    fn resume(&self, x: &Tensor, segments: &Segments, state: &mut DecodeState) -> Result<Tensor> {
        let [keys, values, first] = self.names();
        let past = Past {
            keys: state.get(&keys)?.clone(),
            values: state.get(&values)?.clone(),
            first: state.get(&first)?.clone(),
        };
        let (out, saved) = self.run(x, Some(&past), segments)?;
        let past = attention::remember(&past, &saved, segments)?;
        state.set(&keys, past.keys)?;
        state.set(&values, past.values)?;
        state.set(&first, past.first)?;
        Ok(out)
    }
}
