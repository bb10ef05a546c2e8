//! The ops of one training step, each at the step's own shapes.
//!
//! A case runs alone on made-up values, so the sum over all cases is close to, but not exactly, a
//! step: caches are warmer, and the step's residual additions are not among them. On a GPU its tensors lie there,
//! activations in what a step stores them in.

pub(super) mod update;

use atpm_core::ops::{
    cross_entropy, embedding, gated_norm, gates, linear, mixer, rms_norm, short_conv, swiglu,
};
use atpm_core::{Precision, Segments, activation_dtype, cuda};
use atpm_model::{Flops, ModelConfig, Parameter};
use candle_core::{DType, Device, Tensor, Var};

use super::sizes::{Block, Random};
use super::work::{Work, size};

/// One op at one shape.
pub struct Case {
    /// The op's name, with the layer's part where an op has several shapes.
    pub name: &'static str,
    /// Its forward pass.
    pub forward: Option<Pass>,
    /// Its backward pass, or both where the op fuses them.
    pub backward: Option<Pass>,
    /// The same value in plain candle operations; none on a GPU.
    pub reference: Option<Reference>,
}

/// One direction of an op.
pub struct Pass {
    /// How often a training step runs it.
    pub calls: usize,
    /// What one run has to do.
    pub work: Work,
    /// Runs it once.
    pub run: Box<dyn Fn() -> anyhow::Result<()>>,
}

/// An op's definition in plain candle operations.
pub struct Reference {
    /// The value, differentiable by candle's autograd.
    pub value: Box<dyn Fn() -> anyhow::Result<Tensor>>,
}

#[expect(clippy::unnecessary_wraps, reason = "cases hold passes and references that may be absent")]
fn pass(calls: usize, work: Work, run: impl Fn() -> anyhow::Result<()> + 'static) -> Option<Pass> {
    Some(Pass { calls, work, run: Box::new(run) })
}

const CONTROLS: &str = "linear controls";

/// Makes the cases of a model and a block of tokens.
pub struct Cases<'a> {
    model: &'a ModelConfig,
    block: Block,
    precision: Precision,
    device: Device,
    /// What activations are stored in.
    activations: DType,
    /// How the names of the wanted ones begin.
    only: String,
    random: Random,
}

type Maker<'a> = Box<dyn FnOnce(&mut Cases<'a>) -> anyhow::Result<Case>>;

impl<'a> Cases<'a> {
    /// Cases at these sizes on this device, matrix products in `precision`.
    ///
    /// # Errors
    /// A device that refuses.
    pub fn new(
        model: &'a ModelConfig,
        block: Block,
        precision: Precision,
        device: &Device,
    ) -> anyhow::Result<Self> {
        let parameter = Tensor::zeros(1, DType::F32, device)?;
        let activations = activation_dtype(&parameter, precision);
        let (device, only) = (device.clone(), String::new());
        Ok(Self { model, block, precision, device, activations, only, random: Random(1) })
    }

    /// Those alone whose name begins with `name`.
    #[must_use]
    pub fn only(self, name: &str) -> Self {
        Self { only: name.into(), ..self }
    }

    /// Gives every op of a step to `body`, one after another in the order of the forward pass. What `body` drops is
    /// not in memory beside the next one.
    ///
    /// # Errors
    /// A model that cannot be built, an op that refuses, or what `body` says.
    pub fn each(mut self, mut body: impl FnMut(Case) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let ModelConfig { d_model: d, heads, mlp, short_conv, .. } = *self.model;
        let (channels, inner) = self.widths();
        let mut makers: Vec<(&'static str, Maker<'a>)> =
            vec![("embedding", Box::new(Self::embedding)), ("rms_norm", Box::new(Self::rms_norm))];
        for (name, from, to) in [
            ("linear in_proj", d, channels),
            (CONTROLS, d, 5 * heads),
            ("linear gate_proj", d, inner),
            ("linear out_proj", inner, d),
            ("linear mlp.up", d, 2 * mlp),
            ("linear mlp.down", mlp, d),
        ] {
            makers.push((name, Box::new(move |cases: &mut Self| cases.linear(name, from, to))));
        }
        if short_conv > 0 {
            makers.push(("short_conv", Box::new(Self::short_conv)));
        }
        let rest: [(_, Maker<'a>); 7] = [
            ("gates", Box::new(Self::gates)),
            ("mixer", Box::new(Self::mixer)),
            ("gated_norm", Box::new(Self::gated_norm)),
            ("swiglu", Box::new(Self::swiglu)),
            ("cross_entropy", Box::new(Self::cross_entropy)),
            ("adamw", Box::new(Self::adamw)),
            ("gradient norm", Box::new(Self::squared_norm)),
        ];
        makers.extend(rest);
        let only = std::mem::take(&mut self.only);
        for (_, make) in makers.into_iter().filter(|(name, _)| name.starts_with(&only)) {
            body(make(&mut self)?)?;
        }
        Ok(())
    }

    /// Channels of the mixer's input, and columns of its output.
    fn widths(&self) -> (usize, usize) {
        let shape = self.model.mixer_shape();
        (shape.heads * shape.channels(), shape.heads * shape.entity())
    }

    /// Activations of a `[rows, tokens, width]` block.
    fn rows(&mut self, width: usize) -> anyhow::Result<Tensor> {
        self.activations(&[self.block.rows, self.block.tokens, width])
    }

    /// Activations of any shape.
    fn activations(&mut self, shape: &[usize]) -> anyhow::Result<Tensor> {
        Ok(self.random.tensor(shape, 1.0)?.to_dtype(self.activations)?.to_device(&self.device)?)
    }

    /// What is f32 whatever activations are: parameters, gradients of them, controls.
    fn wide(&mut self, shape: &[usize], scale: f32) -> anyhow::Result<Tensor> {
        let tensor = self.random.tensor(shape, scale)?;
        self.constant(&tensor)
    }

    /// A weight as a model's products in `precision` read it, and its gradient.
    fn weight(
        &mut self,
        shape: &[usize],
        scale: f32,
        precision: Precision,
    ) -> anyhow::Result<(Tensor, Tensor)> {
        let value = self.wide(shape, scale)?;
        let gradient = value.zeros_like()?;
        let weight = Parameter::new("weight", value, gradient.clone(), true);
        Ok((weight.factor(precision)?.clone(), gradient))
    }

    /// This tensor on the device.
    fn constant(&self, tensor: &Tensor) -> anyhow::Result<Tensor> {
        Ok(tensor.to_device(&self.device)?)
    }

    /// The same values, for a reference to be differentiated by.
    fn variable(&self, tensor: &Tensor) -> anyhow::Result<Tensor> {
        Ok(if self.on_gpu() { tensor.clone() } else { Var::from_tensor(tensor)?.into_inner() })
    }

    /// The op's definition. candle would need kernels for it that are not ours to time.
    fn reference(&self, value: impl Fn() -> atpm_core::Result<Tensor> + 'static) -> Option<Reference> {
        (!self.on_gpu()).then(|| Reference { value: Box::new(move || Ok(value()?)) })
    }

    fn on_gpu(&self) -> bool {
        cuda::is_gpu(&self.device)
    }

    /// Documents that begin with each row.
    fn segments(&self) -> anyhow::Result<Segments> {
        Ok(Segments::from_starts(self.block.tokens, vec![vec![0]; self.block.rows])?)
    }

    fn linear(&mut self, name: &'static str, from: usize, to: usize) -> anyhow::Result<Case> {
        // The layer keeps its controllers in f32.
        let precision = if name == CONTROLS { Precision::F32 } else { self.precision };
        let calls = self.model.layers;
        let x = self.rows(from)?;
        let shape = [self.block.rows, self.block.tokens, to];
        // The controllers' logits and their gradients are f32 with both.
        let dy = if precision == self.precision { self.rows(to)? } else { self.wide(&shape, 1.0)? };
        let (weight, dweight) = self.weight(&[to, from], 0.05, precision)?;
        let flop = 2.0 * (self.block.count() * from * to) as f64;
        // The weight's gradient is read as well, since it is added to.
        let operands = size(&x) + size(&dy) + size(&weight);
        let added = size(&x) + size(&dy) + 2 * size(&dweight);
        let both = Work::products(2.0 * flop, precision, operands + added);
        let (x1, w1) = (x.clone(), weight.clone());
        let (x2, w2) = (x.clone(), weight.clone());
        // A gradient stored otherwise than what it goes to is added to it, as in a step.
        let sum = if dy.dtype() == x.dtype() { None } else { Some(x.zeros_like()?) };
        let (x, weight) = (self.variable(&x)?, self.variable(&weight)?);
        Ok(Case {
            name,
            forward: pass(calls, Work::products(flop, precision, operands), move || {
                Ok(linear::forward(&x1, &w1, precision).map(drop)?)
            }),
            backward: pass(calls, both, move || {
                linear::backward_weight(&x2, &dy, &dweight, precision)?;
                match &sum {
                    None => Ok(linear::backward_input(&w2, &dy, precision).map(drop)?),
                    Some(sum) => Ok(linear::backward_input_add(&w2, &dy, sum, precision)?),
                }
            }),
            reference: self.reference(move || Ok(linear::reference::forward(&x, &weight)?)),
        })
    }

    fn rms_norm(&mut self) -> anyhow::Result<Case> {
        let (d, eps) = (self.model.d_model, self.model.norm_eps);
        let (x, dy) = (self.rows(d)?, self.rows(d)?);
        let weight = self.constant(&Tensor::ones(d, DType::F32, &Device::Cpu)?)?;
        let dweight = weight.zeros_like()?;
        let calls = 2 * self.model.layers + 1;
        let bytes = size(&x);
        let (x1, w1) = (x.clone(), weight.clone());
        let (x2, w2) = (x.clone(), weight.clone());
        let (x, weight) = (self.variable(&x)?, self.variable(&weight)?);
        Ok(Case {
            name: "rms_norm",
            forward: pass(calls, Work::memory(2 * bytes), move || {
                Ok(rms_norm::forward(&x1, &w1, eps).map(drop)?)
            }),
            backward: pass(calls, Work::memory(4 * bytes), move || {
                Ok(rms_norm::backward(&x2, &w2, eps, &dy, Some(&dy), &dweight).map(drop)?)
            }),
            reference: self.reference(move || rms_norm::reference::forward(&x, &weight, eps)),
        })
    }

    fn short_conv(&mut self) -> anyhow::Result<Case> {
        let (channels, _) = self.widths();
        let (x, dy, segments) = (self.rows(channels)?, self.rows(channels)?, self.segments()?);
        let weight = self.wide(&[channels, self.model.short_conv], 0.5)?;
        let dweight = weight.zeros_like()?;
        let layers = self.model.layers;
        let bytes = size(&x);
        let (x1, w1, s1) = (x.clone(), weight.clone(), segments.clone());
        let (x2, w2, s2) = (x.clone(), weight.clone(), segments.clone());
        let (x, weight) = (self.variable(&x)?, self.variable(&weight)?);
        Ok(Case {
            name: "short_conv",
            // The step runs it once more in backward instead of keeping its output.
            forward: pass(2 * layers, Work::memory(2 * bytes), move || {
                Ok(short_conv::forward(&x1, &w1, None, &s1).map(drop)?)
            }),
            backward: pass(layers, Work::memory(3 * bytes), move || {
                Ok(short_conv::backward(&x2, &w2, None, &s2, &dy, None, &dweight).map(drop)?)
            }),
            reference: self
                .reference(move || Ok(short_conv::reference::forward(&x, &weight, None, &segments)?.0)),
        })
    }

    fn gates(&mut self) -> anyhow::Result<Case> {
        let (heads, layers) = (self.model.heads, self.model.layers);
        let shape = [self.block.rows, self.block.tokens, 5, heads];
        let logits = self.wide(&shape, 2.0)?;
        let dcontrols = self.wide(&shape, 1.0)?;
        let a_log = self.wide(&[heads], 1.0)?;
        let dt_bias = self.wide(&[heads], 1.0)?;
        let bias = self.wide(&[4, heads], 1.0)?;
        let sums = [a_log.zeros_like()?, dt_bias.zeros_like()?, bias.zeros_like()?];
        let pins = self.model.pins();
        let bytes = size(&logits);
        let given = [logits.clone(), a_log.clone(), dt_bias.clone(), bias.clone()];
        let given2 = given.clone();
        let logits = self.variable(&logits)?;
        Ok(Case {
            name: "gates",
            forward: pass(2 * layers, Work::memory(2 * bytes), move || {
                let [logits, a_log, dt_bias, bias] = &given;
                Ok(gates::forward(logits, a_log, dt_bias, bias, pins).map(drop)?)
            }),
            backward: pass(layers, Work::memory(3 * bytes), move || {
                let ([logits, a_log, dt_bias, bias], [da, ddt, dbias]) = (&given2, &sums);
                let backward =
                    gates::backward(logits, a_log, dt_bias, bias, pins, &dcontrols, da, ddt, dbias);
                Ok(backward.map(drop)?)
            }),
            reference: self
                .reference(move || gates::reference::forward(&logits, &a_log, &dt_bias, &bias, pins)),
        })
    }

    fn mixer(&mut self) -> anyhow::Result<Case> {
        let (channels, _) = self.widths();
        let shape = self.model.mixer_shape();
        let (heads, layers) = (shape.heads, self.model.layers);
        let x = self.rows(channels)?;
        let dy = self.rows(heads * shape.entity())?;
        let controls = self.controls()?;
        let mut weights = |sizes: &[usize]| self.wide(sizes, 0.2);
        let transport = mixer::Transport {
            a_key: weights(&[heads, shape.rank, shape.key])?,
            a_value: weights(&[heads, shape.rank, shape.value])?,
            c: weights(&[heads, shape.address, shape.rank])?,
        };
        let dtransport = mixer::Transport {
            a_key: transport.a_key.zeros_like()?,
            a_value: transport.a_value.zeros_like()?,
            c: transport.c.zeros_like()?,
        };
        let segments = self.segments()?;
        let per_token: f64 = Flops::of(self.model)
            .parts
            .iter()
            .filter(|part| ["mixer.geometry", "mixer.memory"].contains(&part.name))
            .map(|part| part.forward / layers as f64)
            .sum();
        let flop = per_token * self.block.count() as f64;
        let (inputs, answer) = (size(&x) + size(&controls), size(&dy));
        let given = Given { x, controls, transport, segments };
        let (_, saved) = mixer::forward(&shape, &given.inputs(), true)?;
        let saved = saved.ok_or_else(|| anyhow::anyhow!("the mixer kept nothing for backward"))?;
        // Forward: x, controls → y, chunk states. Backward: x, controls, dy, chunk states → dx, dcontrols.
        let forward = inputs + answer + size(&saved.chunk_states);
        let backward = forward + inputs;
        // On the CPU its products are f32 with both.
        let precision = if self.on_gpu() { self.precision } else { Precision::F32 };
        let again = given.clone();
        let mut slow = given.clone();
        slow.x = self.variable(&given.x)?;
        Ok(Case {
            name: "mixer",
            forward: pass(layers, Work::products(flop, precision, forward), move || {
                Ok(mixer::forward(&shape, &given.inputs(), true).map(drop)?)
            }),
            backward: pass(layers, Work::products(2.0 * flop, precision, backward), move || {
                let backward = mixer::backward(&shape, &again.inputs(), &saved, &dy, None, &dtransport);
                Ok(backward.map(drop)?)
            }),
            reference: self.reference(move || Ok(mixer::reference::forward(&shape, &slow.inputs())?.0)),
        })
    }

    /// Controls as a fresh model has them, varied.
    fn controls(&mut self) -> anyhow::Result<Tensor> {
        let heads = self.model.heads;
        let logits = self.wide(&[self.block.rows, self.block.tokens, 5, heads], 1.0)?;
        let zero = Tensor::zeros(heads, DType::F32, &self.device)?;
        let slow = self.constant(&Tensor::full(-4f32, heads, &Device::Cpu)?)?;
        let bias = Tensor::zeros((4, heads), DType::F32, &self.device)?;
        Ok(gates::forward(&logits, &zero, &slow, &bias, self.model.pins())?)
    }

    fn gated_norm(&mut self) -> anyhow::Result<Case> {
        let (_, inner) = self.widths();
        let (y, gate, dout) = (self.rows(inner)?, self.rows(inner)?, self.rows(inner)?);
        let weight = Tensor::ones(self.model.mixer_shape().entity(), DType::F32, &Device::Cpu)?;
        let weight = self.constant(&weight)?;
        let dweight = weight.zeros_like()?;
        let (layers, eps) = (self.model.layers, self.model.norm_eps);
        let bytes = size(&y);
        let given = [y.clone(), gate.clone(), weight.clone()];
        let given2 = given.clone();
        let (y, gate) = (self.variable(&y)?, self.variable(&gate)?);
        Ok(Case {
            name: "gated_norm",
            forward: pass(layers, Work::memory(3 * bytes), move || {
                let [y, gate, weight] = &given;
                Ok(gated_norm::forward(y, gate, weight, eps).map(drop)?)
            }),
            backward: pass(layers, Work::memory(6 * bytes), move || {
                let [y, gate, weight] = &given2;
                Ok(gated_norm::backward(y, gate, weight, eps, &dout, &dweight).map(drop)?)
            }),
            reference: self.reference(move || gated_norm::reference::forward(&y, &gate, &weight, eps)),
        })
    }

    fn swiglu(&mut self) -> anyhow::Result<Case> {
        let (mlp, layers) = (self.model.mlp, self.model.layers);
        let (x, dout) = (self.rows(2 * mlp)?, self.rows(mlp)?);
        let bytes = size(&dout);
        let (x1, x2, x) = (x.clone(), x.clone(), self.variable(&x)?);
        Ok(Case {
            name: "swiglu",
            forward: pass(layers, Work::memory(3 * bytes), move || Ok(swiglu::forward(&x1).map(drop)?)),
            backward: pass(layers, Work::memory(6 * bytes), move || {
                Ok(swiglu::backward(&x2, &dout).map(drop)?)
            }),
            reference: self.reference(move || swiglu::reference::forward(&x)),
        })
    }

    fn embedding(&mut self) -> anyhow::Result<Case> {
        let ModelConfig { d_model: d, vocab, .. } = *self.model;
        let ids = self.random.ids(&[self.block.rows, self.block.tokens], vocab)?;
        let table = self.wide(&[vocab, d], 0.02)?;
        let dtable = table.zeros_like()?;
        let dy = self.rows(d)?;
        // The table's rows and their gradients are f32; the latter are added to.
        let (rows, wide) = (size(&dy), size_of::<f32>() * dy.elem_count());
        let (ids1, table1, ids2) = (ids.clone(), table.clone(), ids.clone());
        let (table, precision) = (self.variable(&table)?, self.precision);
        Ok(Case {
            name: "embedding",
            forward: pass(1, Work::memory(wide + rows), move || {
                Ok(embedding::forward(&ids1, &table1, precision).map(drop)?)
            }),
            backward: pass(1, Work::memory(rows + 2 * wide), move || {
                Ok(embedding::backward(&ids2, &dy, &dtable)?)
            }),
            reference: self.reference(move || embedding::reference::forward(&ids, &table)),
        })
    }

    fn cross_entropy(&mut self) -> anyhow::Result<Case> {
        let ModelConfig { d_model: d, vocab, .. } = *self.model;
        let tokens = self.block.count();
        let x = self.activations(&[tokens, d])?;
        let (weight, dweight) = self.weight(&[vocab, d], 0.02, self.precision)?;
        let targets = self.random.ids(&[tokens], vocab)?;
        let flop = 2.0 * (tokens * d * vocab) as f64;
        let (x1, w1, t1) = (x.clone(), weight.clone(), targets.clone());
        let (x2, w2, t2) = (x.clone(), weight.clone(), targets.clone());
        // The gradients are as large as what they belong to; that of the weight is added to.
        let (inputs, weights, gradients) = (size(&x), size(&weight), size(&dweight));
        let (x, weight) = (self.variable(&x)?, self.variable(&weight)?);
        let (scale, precision) = (1.0 / tokens as f64, self.precision);
        let moved = 2 * inputs + weights + 2 * gradients;
        Ok(Case {
            name: "cross_entropy",
            // Evaluation's form; a training step runs the fused one below.
            forward: pass(0, Work::products(flop, precision, inputs + weights), move || {
                Ok(cross_entropy::forward(&x1, &w1, &t1, precision).map(drop)?)
            }),
            backward: pass(1, Work::products(3.0 * flop, precision, moved), move || {
                let options = cross_entropy::Options { precision, z_loss: 0.0 };
                Ok(cross_entropy::forward_backward(&x2, &w2, &t2, scale, options, &dweight).map(drop)?)
            }),
            reference: self
                .reference(move || Ok(cross_entropy::reference::forward(&x, &weight, &targets)?.0)),
        })
    }
}

/// The mixer's inputs, owned.
#[derive(Clone)]
struct Given {
    x: Tensor,
    controls: Tensor,
    transport: mixer::Transport,
    segments: Segments,
}

impl Given {
    fn inputs(&self) -> mixer::Inputs<'_> {
        let Self { x, controls, transport, segments } = self;
        mixer::Inputs { x, controls, transport, state: None, segments }
    }
}
