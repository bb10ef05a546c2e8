//! The ATPM layer: projections, short convolution, controllers, memory, gated output.
//!
//! Shapes: `B` rows, `T` tokens, `d` width, `H` heads, `S` address, `K`/`V` key and value blocks,
//! `D = K + V`, `C = H·(2S+K+V)` channels, `R` rank, `W` width of the convolution.
//!
//! ```text
//! x [B,T,d] ─┬─ in_proj ── projected [B,T,C] ── short_conv + SiLU ── channels [B,T,C] ─┐
//!            ├─ controls ─ logits [B,T,5,H] ─── gates ── log α, β_K, β_V, ρ, λ ────────┤
//!            │                                            transport A_K, A_V, C ───── memory ── y [B,T,H·D]
//!            └─ gate_proj ─ gate [B,T,H·D] ────────────────────────────────────────────── gated_norm ── out_proj ── [B,T,d]
//! ```
//!
//! Saved for backward: `projected`, `logits`, `gate`, `y` and the memory's chunk states. The
//! convolution, the gates and the norm are computed again: cheap beside the projections, and a
//! third of the activations if they were kept.

use atpm_core::ops::gates::{self, Pins};
use atpm_core::ops::mixer::{self, Inputs, Outputs, Shape, Transport};
use atpm_core::ops::{gated_norm, linear, short_conv};
use atpm_core::{Precision, Segments, activation_dtype};
use candle_core::Tensor;

use crate::decode::DecodeState;
use crate::init::{Init, STD, output_std};
use crate::layer::{Layer, Saved, bytes};
use crate::telemetry::{See, Seen};
use crate::{Error, ModelConfig, Parameter, ParameterSpec, Parameters, Result};

/// Controllers of a head: log α, β_K, β_V, ρ, λ.
const CONTROLS: usize = 5;
const NAME: &str = "mixer";

/// The parameters of the mixer called `prefix`.
///
/// # Errors
/// None of its own; every name here belongs to a decay group.
pub fn specs(config: &ModelConfig, prefix: &str) -> Result<Vec<ParameterSpec>> {
    let ModelConfig { d_model: d, heads, address, key, value, rank, short_conv: width, .. } = *config;
    let shape = config.mixer_shape();
    let channels = heads * shape.channels();
    let inner = heads * shape.entity();
    let normal = Init::Normal(STD);
    // ρ and λ start from their initial logits alone: their rows, the last two of five, are zero.
    let controls = Init::NormalRows { std: STD, rows: 3 * heads };
    let control_bias =
        Init::Rows(vec![config.beta_logit, config.beta_logit, config.rho_logit, config.lambda_logit]);
    // α = e^(−A dt) = ½ after `half_life` tokens, with A = 1 and the step's input near 0.
    let (rate, step) = match config.half_life {
        Some(tokens) => {
            let dt = std::f64::consts::LN_2 / tokens;
            (Init::Zeros, Init::Rows(vec![dt.exp_m1().ln(); heads]))
        }
        None => (Init::LogRate, Init::StepBias),
    };
    let root = |n: usize| 1.0 / (n as f64).sqrt();
    let mut list = vec![("in_proj.weight", vec![channels, d], normal.clone())];
    if width > 0 {
        list.push(("short_conv.weight", vec![channels, width], Init::Uniform(root(width))));
    }
    list.extend([
        ("controls.weight", vec![CONTROLS * heads, d], controls),
        ("controls.bias", vec![CONTROLS - 1, heads], control_bias),
        ("a_log", vec![heads], rate),
        ("dt_bias", vec![heads], step),
        ("transport.a_key", vec![heads, rank, key], Init::Normal(root(key))),
        ("transport.a_value", vec![heads, rank, value], Init::Normal(root(value))),
        ("transport.c", vec![heads, address, rank], Init::Zeros),
        ("gate_proj.weight", vec![inner, d], normal),
        ("out_norm.weight", vec![shape.entity()], Init::Ones),
        ("out_proj.weight", vec![d, inner], Init::Normal(output_std(config.layers))),
    ]);
    list.into_iter()
        .map(|(name, shape, init)| ParameterSpec::new(format!("{prefix}.{name}"), shape, init))
        .collect()
}

/// The ATPM layer of one block.
#[derive(Debug)]
pub struct Mixer {
    prefix: String,
    shape: Shape,
    pins: Pins,
    norm_eps: f64,
    in_proj: Parameter,
    short_conv: Option<Parameter>,
    controls: Parameter,
    controls_bias: Parameter,
    a_log: Parameter,
    dt_bias: Parameter,
    a_key: Parameter,
    a_value: Parameter,
    c: Parameter,
    gate_proj: Parameter,
    out_norm: Parameter,
    out_proj: Parameter,
    /// Of the projections' products. The controllers' logits are f32 in any case: decays multiply over a
    /// whole document, and so would their rounding.
    precision: Precision,
}

/// Kept from forward to backward.
struct Kept {
    /// `[B,T,C]`, before the convolution.
    projected: Tensor,
    /// `[B,T,5,H]`.
    logits: Tensor,
    /// `[B,T,H·D]`.
    gate: Tensor,
    /// `[B,T,H·D]`, the memory's answer.
    y: Tensor,
    memory: mixer::Saved,
}

/// What a row's earlier tokens left behind; nothing at its beginning.
#[derive(Default)]
struct Before<'a> {
    /// `[B,W−1,C]`, the convolution's last inputs.
    inputs: Option<&'a Tensor>,
    /// `[B,H,S,D]`, the memory.
    memory: Option<&'a Tensor>,
}

/// Everything up to the memory's answer.
struct Pass {
    /// `[B,T,C]`, what the memory reads.
    channels: Tensor,
    projected: Tensor,
    logits: Tensor,
    gate: Tensor,
    /// Log α, β_K, β_V, ρ, λ `[B,T,5,H]`.
    controls: Tensor,
    /// The convolution's last inputs `[B,W−1,C]`, if there is a convolution.
    last_inputs: Option<Tensor>,
    outputs: Outputs,
    saved: Option<mixer::Saved>,
}

impl Mixer {
    /// Takes the parameters called `prefix.…`.
    ///
    /// # Errors
    /// A parameter that is not there.
    pub fn new(config: &ModelConfig, prefix: &str, parameters: &mut Parameters) -> Result<Self> {
        let mut take = |name| parameters.take(prefix, name);
        Ok(Self {
            shape: config.mixer_shape(),
            pins: config.pins(),
            norm_eps: config.norm_eps,
            in_proj: take("in_proj.weight")?,
            short_conv: if config.short_conv > 0 { Some(take("short_conv.weight")?) } else { None },
            controls: take("controls.weight")?,
            controls_bias: take("controls.bias")?,
            a_log: take("a_log")?,
            dt_bias: take("dt_bias")?,
            a_key: take("transport.a_key")?,
            a_value: take("transport.a_value")?,
            c: take("transport.c")?,
            gate_proj: take("gate_proj.weight")?,
            out_norm: take("out_norm.weight")?,
            out_proj: take("out_proj.weight")?,
            prefix: prefix.into(),
            precision: Precision::F32,
        })
    }

    /// From the layer's input to the memory's answer; `save` keeps what the memory's backward needs.
    fn run(&self, x: &Tensor, segments: &Segments, before: &Before<'_>, save: bool) -> Result<Pass> {
        let (batch, tokens, _) = x.dims3()?;
        let projected = linear::forward(x, self.in_proj.factor(self.precision)?, self.precision)?;
        let logits = linear::forward(x, &self.controls.value, Precision::F32)?;
        let logits = logits.reshape((batch, tokens, CONTROLS, self.shape.heads))?;
        let gate = linear::forward(x, self.gate_proj.factor(self.precision)?, self.precision)?;
        let (channels, last_inputs) = self.convolve(&projected, before.inputs, segments)?;
        let controls = self.control(&logits)?;
        let transport = self.transport(|parameter| parameter.value.clone());
        let inputs = Inputs {
            x: &channels,
            controls: &controls,
            transport: &transport,
            state: before.memory,
            segments,
        };
        let (outputs, saved) = mixer::forward(&self.shape, &inputs, save)?;
        Ok(Pass { channels, projected, logits, gate, controls, last_inputs, outputs, saved })
    }

    /// Channels `[B,T,C]` and, if there is a convolution, its last inputs `[B,W−1,C]`.
    fn convolve(
        &self,
        projected: &Tensor,
        state: Option<&Tensor>,
        segments: &Segments,
    ) -> Result<(Tensor, Option<Tensor>)> {
        let Some(weight) = &self.short_conv else { return Ok((projected.clone(), None)) };
        let (channels, last) = short_conv::forward(projected, &weight.value, state, segments)?;
        Ok((channels, Some(last)))
    }

    /// Log α, β_K, β_V, ρ, λ `[B,T,5,H]`.
    fn control(&self, logits: &Tensor) -> Result<Tensor> {
        let Self { a_log, dt_bias, controls_bias, pins, .. } = self;
        Ok(gates::forward(logits, &a_log.value, &dt_bias.value, &controls_bias.value, *pins)?)
    }

    fn transport(&self, of: impl Fn(&Parameter) -> Tensor) -> Transport {
        Transport { a_key: of(&self.a_key), a_value: of(&self.a_value), c: of(&self.c) }
    }

    /// From the memory's answer to the layer's output `[B,T,d]`.
    fn output(&self, y: &Tensor, gate: &Tensor) -> Result<Tensor> {
        let normed = gated_norm::forward(y, gate, &self.out_norm.value, self.norm_eps)?;
        Ok(linear::forward(&normed, self.out_proj.factor(self.precision)?, self.precision)?)
    }

    /// Gradients of `y` and `gate` from the layer's output gradient.
    fn output_backward(&self, y: &Tensor, gate: &Tensor, dout: &Tensor) -> Result<(Tensor, Tensor)> {
        let Self { out_norm, out_proj, norm_eps, .. } = self;
        let dnormed = linear::backward_input(out_proj.factor(self.precision)?, dout, self.precision)?;
        let (dy, dgate, normed) =
            gated_norm::backward(y, gate, &out_norm.value, *norm_eps, &dnormed, &out_norm.gradient)?;
        linear::backward_weight(&normed, dout, &out_proj.gradient, self.precision)?;
        Ok((dy, dgate))
    }

    /// Gradients of `projected` and `logits` from the memory's.
    fn memory_backward(&self, kept: &Kept, dy: &Tensor, segments: &Segments) -> Result<(Tensor, Tensor)> {
        let (channels, _) = self.convolve(&kept.projected, None, segments)?;
        let controls = self.control(&kept.logits)?;
        let transport = self.transport(|parameter| parameter.value.clone());
        let dtransport = self.transport(|parameter| parameter.gradient.clone());
        let inputs =
            Inputs { x: &channels, controls: &controls, transport: &transport, state: None, segments };
        let gradients = mixer::backward(&self.shape, &inputs, &kept.memory, dy, None, &dtransport)?;
        let dlogits = gates::backward(
            &kept.logits,
            &self.a_log.value,
            &self.dt_bias.value,
            &self.controls_bias.value,
            self.pins,
            &gradients.controls,
            &self.a_log.gradient,
            &self.dt_bias.gradient,
            &self.controls_bias.gradient,
        )?;
        let Some(weight) = &self.short_conv else { return Ok((gradients.x, dlogits)) };
        let (dprojected, _) = short_conv::backward(
            &kept.projected,
            &weight.value,
            None,
            segments,
            &gradients.x,
            None,
            &weight.gradient,
        )?;
        Ok((dprojected, dlogits))
    }

    fn memory_name(&self) -> String {
        format!("{}.state", self.prefix)
    }

    fn inputs_name(&self) -> String {
        format!("{}.short_conv", self.prefix)
    }
}

impl Layer for Mixer {
    fn forward(&self, x: &Tensor, segments: &Segments) -> Result<(Tensor, Saved)> {
        let Pass { projected, logits, gate, outputs, saved, .. } =
            self.run(x, segments, &Before::default(), true)?;
        let memory = saved.ok_or(Error::ForeignSaved { layer: NAME })?;
        let y = outputs.y;
        let out = self.output(&y, &gate)?;
        let size = bytes([&projected, &logits, &gate, &y, &memory.chunk_states]);
        Ok((out, Saved::new(Kept { projected, logits, gate, y, memory }, size)))
    }

    fn backward(&self, x: &Tensor, saved: Saved, dout: &Tensor, segments: &Segments) -> Result<Tensor> {
        let kept: Kept = saved.take(NAME)?;
        let (dy, dgate) = self.output_backward(&kept.y, &kept.gate, dout)?;
        let (dprojected, dlogits) = self.memory_backward(&kept, &dy, segments)?;
        let dlogits = dlogits.flatten_from(2)?;
        linear::backward_weight(x, &dprojected, &self.in_proj.gradient, self.precision)?;
        linear::backward_weight(x, &dlogits, &self.controls.gradient, Precision::F32)?;
        linear::backward_weight(x, &dgate, &self.gate_proj.gradient, self.precision)?;
        let dx = linear::backward_input(self.in_proj.factor(self.precision)?, &dprojected, self.precision)?;
        linear::backward_input_add(&self.controls.value, &dlogits, &dx, Precision::F32)?;
        linear::backward_input_add(self.gate_proj.factor(self.precision)?, &dgate, &dx, self.precision)?;
        Ok(dx)
    }

    fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
    }

    fn parameters(&self) -> Vec<Parameter> {
        let convolution = self.short_conv.as_ref();
        std::iter::once(&self.in_proj)
            .chain(convolution)
            .chain([
                &self.controls,
                &self.controls_bias,
                &self.a_log,
                &self.dt_bias,
                &self.a_key,
                &self.a_value,
                &self.c,
                &self.gate_proj,
                &self.out_norm,
                &self.out_proj,
            ])
            .cloned()
            .collect()
    }

    fn initial_state(&self, batch: usize) -> Result<Vec<(String, Tensor)>> {
        let Shape { heads, address, .. } = self.shape;
        let value = &self.in_proj.value;
        let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, value.device());
        let memory = zeros(&[batch, heads, address, self.shape.entity()], value.dtype())?;
        let mut state = vec![(self.memory_name(), memory)];
        if let Some(weight) = &self.short_conv {
            let (channels, width) = weight.value.dims2()?;
            let dtype = activation_dtype(value, self.precision);
            state.push((self.inputs_name(), zeros(&[batch, width - 1, channels], dtype)?));
        }
        Ok(state)
    }

    fn resume(&self, x: &Tensor, segments: &Segments, state: &mut DecodeState) -> Result<Tensor> {
        let memory = Some(state.get(&self.memory_name())?);
        let inputs = match self.short_conv {
            Some(_) => Some(state.get(&self.inputs_name())?),
            None => None,
        };
        let pass = self.run(x, segments, &Before { inputs, memory }, false)?;
        let out = self.output(&pass.outputs.y, &pass.gate)?;
        state.set(&self.memory_name(), pass.outputs.state)?;
        if let Some(inputs) = pass.last_inputs {
            state.set(&self.inputs_name(), inputs)?;
        }
        Ok(out)
    }

    fn observe(&self, x: &Tensor, segments: &Segments, see: See<'_>) -> Result<Tensor> {
        let pass = self.run(x, segments, &Before::default(), false)?;
        let transport = self.transport(|parameter| parameter.value.clone());
        see(&Seen {
            shape: &self.shape,
            inputs: Inputs {
                x: &pass.channels,
                controls: &pass.controls,
                transport: &transport,
                state: None,
                segments,
            },
            outputs: &pass.outputs,
        })?;
        self.output(&pass.outputs.y, &pass.gate)
    }
}
