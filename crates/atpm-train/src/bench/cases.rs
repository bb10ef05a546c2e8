//! The ops of one training step, each at the step's own shapes.
//!
//! A case runs alone on made-up values, so the sum over all cases is close to, but not exactly, a
//! step: caches are warmer, and the step's residual additions are not among them.

use atpm_core::ops::{
    cross_entropy, embedding, gated_norm, gates, linear, mixer, rms_norm, short_conv, swiglu,
};
use atpm_core::optim::adamw;
use atpm_core::{Precision, Segments};
use atpm_model::{Flops, ModelConfig};
use candle_core::{DType, Device, Tensor, Var};

use super::sizes::{Block, Random};

/// One op at one shape.
pub struct Case {
    /// The op's name, with the layer's part where an op has several shapes.
    pub name: &'static str,
    /// Its forward pass.
    pub forward: Option<Pass>,
    /// Its backward pass, or both where the op fuses them.
    pub backward: Option<Pass>,
    /// The same value in plain candle operations.
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

/// The least that a pass has to do.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// Of an op made of matrix products: what they are judged by. Other ops are judged by their bytes.
    pub products: Option<Products>,
    /// Bytes of what is read and of what is written, each tensor once.
    pub bytes: f64,
}

/// Arithmetic of matrix products.
#[derive(Debug, Clone, Copy)]
pub struct Products {
    /// Floating-point operations; a multiply-add is two.
    pub flop: f64,
    /// What the operands are rounded to, which decides the peak.
    pub precision: Precision,
}

impl Work {
    fn memory(elements: usize) -> Self {
        Self { products: None, bytes: (size_of::<f32>() * elements) as f64 }
    }

    fn products(flop: f64, precision: Precision, elements: usize) -> Self {
        Self { products: Some(Products { flop, precision }), ..Self::memory(elements) }
    }

    /// The rate over this time that the op is judged by, and its unit.
    pub fn rate(self, seconds: f64) -> (f64, &'static str) {
        match self.products {
            Some(products) => (products.flop / seconds / 1e9, "GFLOP/s"),
            None => (self.bytes / seconds / 1e9, "GB/s"),
        }
    }
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

#[expect(clippy::unnecessary_wraps, reason = "cases hold passes and references that may be absent")]
fn reference(value: impl Fn() -> atpm_core::Result<Tensor> + 'static) -> Option<Reference> {
    Some(Reference { value: Box::new(move || Ok(value()?)) })
}

const CONTROLS: &str = "linear controls";

/// Makes the cases of a model and a block of tokens.
pub struct Cases<'a> {
    model: &'a ModelConfig,
    block: Block,
    precision: Precision,
    random: Random,
}

impl<'a> Cases<'a> {
    /// Cases at these sizes, matrix products in `precision`.
    pub fn new(model: &'a ModelConfig, block: Block, precision: Precision) -> Self {
        Self { model, block, precision, random: Random(1) }
    }

    /// Every op of a step, in the order of the forward pass.
    ///
    /// # Errors
    /// A model that cannot be built, or an op that refuses.
    pub fn all(mut self) -> anyhow::Result<Vec<Case>> {
        let ModelConfig { d_model: d, layers, heads, mlp, .. } = *self.model;
        let shape = self.model.mixer_shape();
        let (channels, inner) = (heads * shape.channels(), heads * shape.entity());
        let mut cases = vec![self.embedding()?, self.rms_norm()?];
        for (name, from, to) in [
            ("linear in_proj", d, channels),
            (CONTROLS, d, 5 * heads),
            ("linear gate_proj", d, inner),
            ("linear out_proj", inner, d),
            ("linear mlp.up", d, 2 * mlp),
            ("linear mlp.down", mlp, d),
        ] {
            // The layer keeps its controllers in f32.
            let precision = if name == CONTROLS { Precision::F32 } else { self.precision };
            cases.push(self.linear(name, layers, from, to, precision)?);
        }
        if self.model.short_conv > 0 {
            cases.push(self.short_conv(channels)?);
        }
        cases.extend([self.gates()?, self.mixer(channels)?, self.gated_norm(inner)?, self.swiglu()?]);
        cases.extend([self.cross_entropy()?, self.adamw()?, self.squared_norm()?]);
        Ok(cases)
    }

    /// Values of a `[rows, tokens, width]` block.
    fn rows(&mut self, width: usize) -> anyhow::Result<Tensor> {
        self.random.tensor(&[self.block.rows, self.block.tokens, width], 1.0)
    }

    /// Documents that begin with each row.
    fn segments(&self) -> anyhow::Result<Segments> {
        Ok(Segments::from_starts(self.block.tokens, vec![vec![0]; self.block.rows])?)
    }

    fn linear(
        &mut self,
        name: &'static str,
        calls: usize,
        from: usize,
        to: usize,
        precision: Precision,
    ) -> anyhow::Result<Case> {
        let (x, dy) = (self.rows(from)?, self.rows(to)?);
        let weight = Var::from_tensor(&self.random.tensor(&[to, from], 0.05)?)?;
        let dweight = weight.zeros_like()?;
        let tokens = self.block.count();
        let flop = 2.0 * (tokens * from * to) as f64;
        // What any of the three products moves; the weight's gradient is read as well, since it is added to.
        let operands = tokens * (from + to) + from * to;
        let (x1, w1) = (x.clone(), weight.as_detached_tensor());
        let (x2, w2) = (x.clone(), weight.as_detached_tensor());
        let x = Var::from_tensor(&x)?;
        Ok(Case {
            name,
            forward: pass(calls, Work::products(flop, precision, operands), move || {
                Ok(linear::forward(&x1, &w1, precision).map(drop)?)
            }),
            backward: pass(
                calls,
                Work::products(2.0 * flop, precision, 2 * operands + from * to),
                move || {
                    linear::backward_weight(&x2, &dy, &dweight, precision)?;
                    Ok(linear::backward_input(&w2, &dy, precision).map(drop)?)
                },
            ),
            reference: reference(move || Ok(linear::reference::forward(&x, &weight)?)),
        })
    }

    fn rms_norm(&mut self) -> anyhow::Result<Case> {
        let (d, eps) = (self.model.d_model, self.model.norm_eps);
        let (x, dy) = (self.rows(d)?, self.rows(d)?);
        let weight = Var::from_tensor(&Tensor::ones(d, DType::F32, &Device::Cpu)?)?;
        let dweight = weight.zeros_like()?;
        let calls = 2 * self.model.layers + 1;
        let elements = self.block.count() * d;
        let (x1, w1) = (x.clone(), weight.as_detached_tensor());
        let (x2, w2) = (x.clone(), weight.as_detached_tensor());
        let x = Var::from_tensor(&x)?;
        Ok(Case {
            name: "rms_norm",
            forward: pass(calls, Work::memory(2 * elements), move || {
                Ok(rms_norm::forward(&x1, &w1, eps).map(drop)?)
            }),
            backward: pass(calls, Work::memory(4 * elements), move || {
                Ok(rms_norm::backward(&x2, &w2, eps, &dy, Some(&dy), &dweight).map(drop)?)
            }),
            reference: reference(move || rms_norm::reference::forward(&x, &weight, eps)),
        })
    }

    fn short_conv(&mut self, channels: usize) -> anyhow::Result<Case> {
        let (x, dy, segments) = (self.rows(channels)?, self.rows(channels)?, self.segments()?);
        let weight = Var::from_tensor(&self.random.tensor(&[channels, self.model.short_conv], 0.5)?)?;
        let dweight = weight.zeros_like()?;
        let layers = self.model.layers;
        let elements = self.block.count() * channels;
        let (x1, w1, s1) = (x.clone(), weight.as_detached_tensor(), segments.clone());
        let (x2, w2, s2) = (x.clone(), weight.as_detached_tensor(), segments.clone());
        let x = Var::from_tensor(&x)?;
        Ok(Case {
            name: "short_conv",
            // The step runs it once more in backward instead of keeping its output.
            forward: pass(2 * layers, Work::memory(2 * elements), move || {
                Ok(short_conv::forward(&x1, &w1, None, &s1).map(drop)?)
            }),
            backward: pass(layers, Work::memory(3 * elements), move || {
                Ok(short_conv::backward(&x2, &w2, None, &s2, &dy, None, &dweight).map(drop)?)
            }),
            reference: reference(move || Ok(short_conv::reference::forward(&x, &weight, None, &segments)?.0)),
        })
    }

    fn gates(&mut self) -> anyhow::Result<Case> {
        let (heads, layers) = (self.model.heads, self.model.layers);
        let shape = [self.block.rows, self.block.tokens, 5, heads];
        let logits = self.random.tensor(&shape, 2.0)?;
        let dcontrols = self.random.tensor(&shape, 1.0)?;
        let a_log = self.random.tensor(&[heads], 1.0)?;
        let dt_bias = self.random.tensor(&[heads], 1.0)?;
        let bias = self.random.tensor(&[4, heads], 1.0)?;
        let sums = [a_log.zeros_like()?, dt_bias.zeros_like()?, bias.zeros_like()?];
        let pins = self.model.pins();
        let elements = logits.elem_count();
        let given = [logits.clone(), a_log.clone(), dt_bias.clone(), bias.clone()];
        let given2 = given.clone();
        let logits = Var::from_tensor(&logits)?;
        Ok(Case {
            name: "gates",
            forward: pass(2 * layers, Work::memory(2 * elements), move || {
                let [logits, a_log, dt_bias, bias] = &given;
                Ok(gates::forward(logits, a_log, dt_bias, bias, pins).map(drop)?)
            }),
            backward: pass(layers, Work::memory(3 * elements), move || {
                let ([logits, a_log, dt_bias, bias], [da, ddt, dbias]) = (&given2, &sums);
                let backward =
                    gates::backward(logits, a_log, dt_bias, bias, pins, &dcontrols, da, ddt, dbias);
                Ok(backward.map(drop)?)
            }),
            reference: reference(move || gates::reference::forward(&logits, &a_log, &dt_bias, &bias, pins)),
        })
    }

    fn mixer(&mut self, channels: usize) -> anyhow::Result<Case> {
        let shape = self.model.mixer_shape();
        let (heads, layers) = (shape.heads, self.model.layers);
        let x = self.rows(channels)?;
        let dy = self.rows(heads * shape.entity())?;
        let controls = self.controls()?;
        let mut weights = |sizes: &[usize]| self.random.tensor(sizes, 0.2);
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
        let per_call = x.elem_count() + controls.elem_count() + dy.elem_count();
        let given = Given { x, controls, transport, segments };
        let (_, saved) = mixer::forward(&shape, &given.inputs(), true)?;
        let saved = saved.ok_or_else(|| anyhow::anyhow!("the mixer kept nothing for backward"))?;
        // Forward: x, controls → y, chunk states. Backward: x, controls, dy, chunk states → dx, dcontrols.
        let forward = per_call + saved.chunk_states.elem_count();
        let backward = forward + per_call - dy.elem_count();
        let again = given.clone();
        let mut slow = given.clone();
        slow.x = Var::from_tensor(&given.x)?.into_inner();
        Ok(Case {
            name: "mixer",
            forward: pass(layers, Work::products(flop, Precision::F32, forward), move || {
                Ok(mixer::forward(&shape, &given.inputs(), true).map(drop)?)
            }),
            backward: pass(layers, Work::products(2.0 * flop, Precision::F32, backward), move || {
                let backward = mixer::backward(&shape, &again.inputs(), &saved, &dy, None, &dtransport);
                Ok(backward.map(drop)?)
            }),
            reference: reference(move || Ok(mixer::reference::forward(&shape, &slow.inputs())?.0)),
        })
    }

    /// Controls as a fresh model has them, varied.
    fn controls(&mut self) -> anyhow::Result<Tensor> {
        let heads = self.model.heads;
        let logits = self.random.tensor(&[self.block.rows, self.block.tokens, 5, heads], 1.0)?;
        let zero = Tensor::zeros(heads, DType::F32, &Device::Cpu)?;
        let slow = zero.affine(0.0, -4.0)?;
        let bias = Tensor::zeros((4, heads), DType::F32, &Device::Cpu)?;
        Ok(gates::forward(&logits, &zero, &slow, &bias, self.model.pins())?)
    }

    fn gated_norm(&mut self, inner: usize) -> anyhow::Result<Case> {
        let (y, gate, dout) = (self.rows(inner)?, self.rows(inner)?, self.rows(inner)?);
        let weight = Tensor::ones(self.model.mixer_shape().entity(), DType::F32, &Device::Cpu)?;
        let dweight = weight.zeros_like()?;
        let (layers, eps) = (self.model.layers, self.model.norm_eps);
        let elements = self.block.count() * inner;
        let given = [y.clone(), gate.clone(), weight.clone()];
        let given2 = given.clone();
        let (y, gate) = (Var::from_tensor(&y)?, Var::from_tensor(&gate)?);
        Ok(Case {
            name: "gated_norm",
            forward: pass(layers, Work::memory(3 * elements), move || {
                let [y, gate, weight] = &given;
                Ok(gated_norm::forward(y, gate, weight, eps).map(drop)?)
            }),
            backward: pass(layers, Work::memory(6 * elements), move || {
                let [y, gate, weight] = &given2;
                Ok(gated_norm::backward(y, gate, weight, eps, &dout, &dweight).map(drop)?)
            }),
            reference: reference(move || gated_norm::reference::forward(&y, &gate, &weight, eps)),
        })
    }

    fn swiglu(&mut self) -> anyhow::Result<Case> {
        let (mlp, layers) = (self.model.mlp, self.model.layers);
        let (x, dout) = (self.rows(2 * mlp)?, self.rows(mlp)?);
        let elements = self.block.count() * mlp;
        let (x1, x2, x) = (x.clone(), x.clone(), Var::from_tensor(&x)?);
        Ok(Case {
            name: "swiglu",
            forward: pass(layers, Work::memory(3 * elements), move || Ok(swiglu::forward(&x1).map(drop)?)),
            backward: pass(layers, Work::memory(6 * elements), move || {
                Ok(swiglu::backward(&x2, &dout).map(drop)?)
            }),
            reference: reference(move || swiglu::reference::forward(&x)),
        })
    }

    fn embedding(&mut self) -> anyhow::Result<Case> {
        let ModelConfig { d_model: d, vocab, .. } = *self.model;
        let ids = self.random.ids(&[self.block.rows, self.block.tokens], vocab)?;
        let table = Var::from_tensor(&self.random.tensor(&[vocab, d], 0.02)?)?;
        let dtable = table.zeros_like()?;
        let dy = self.rows(d)?;
        let elements = self.block.count() * d;
        let (ids1, table1, ids2) = (ids.clone(), table.as_detached_tensor(), ids.clone());
        Ok(Case {
            name: "embedding",
            forward: pass(1, Work::memory(2 * elements), move || {
                Ok(embedding::forward(&ids1, &table1, Precision::F32).map(drop)?)
            }),
            backward: pass(1, Work::memory(3 * elements), move || {
                Ok(embedding::backward(&ids2, &dy, &dtable)?)
            }),
            reference: reference(move || embedding::reference::forward(&ids, &table)),
        })
    }

    fn cross_entropy(&mut self) -> anyhow::Result<Case> {
        let ModelConfig { d_model: d, vocab, .. } = *self.model;
        let tokens = self.block.count();
        let x = self.random.tensor(&[tokens, d], 1.0)?;
        let weight = Var::from_tensor(&self.random.tensor(&[vocab, d], 0.02)?)?;
        let dweight = weight.zeros_like()?;
        let targets = self.random.ids(&[tokens], vocab)?;
        let flop = 2.0 * (tokens * d * vocab) as f64;
        let (x1, w1, t1) = (x.clone(), weight.as_detached_tensor(), targets.clone());
        let (x2, w2, t2) = (x.clone(), weight.as_detached_tensor(), targets.clone());
        // The gradients are as large as what they belong to; that of the weight is added to.
        let (inputs, weights) = (tokens * d, vocab * d);
        let (x, scale, precision) = (Var::from_tensor(&x)?, 1.0 / tokens as f64, self.precision);
        Ok(Case {
            name: "cross_entropy",
            // Evaluation's form; a training step runs the fused one below.
            forward: pass(0, Work::products(flop, precision, inputs + weights), move || {
                Ok(cross_entropy::forward(&x1, &w1, &t1, precision).map(drop)?)
            }),
            backward: pass(1, Work::products(3.0 * flop, precision, 2 * inputs + 3 * weights), move || {
                let options = cross_entropy::Options { precision, z_loss: 0.0 };
                Ok(cross_entropy::forward_backward(&x2, &w2, &t2, scale, options, &dweight).map(drop)?)
            }),
            reference: reference(move || Ok(cross_entropy::reference::forward(&x, &weight, &targets)?.0)),
        })
    }

    /// All parameters as one tensor: the work does not depend on how they are cut.
    fn adamw(&mut self) -> anyhow::Result<Case> {
        let count = self.parameters()?;
        let parameter = self.random.tensor(&[count], 0.02)?;
        let gradient = self.random.tensor(&[count], 0.01)?;
        let (m, v) = (parameter.zeros_like()?, parameter.zeros_like()?);
        let config = adamw::Config {
            lr: 1e-4,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.1,
            grad_scale: 1.0,
            step: 1,
        };
        let update = move || Ok(adamw::update(&config, &parameter, &m, &v, &gradient)?);
        Ok(Case {
            name: "adamw",
            forward: None,
            backward: pass(1, Work::memory(7 * count), update),
            reference: None,
        })
    }

    fn squared_norm(&mut self) -> anyhow::Result<Case> {
        let count = self.parameters()?;
        let gradient = self.random.tensor(&[count], 0.01)?;
        let measure = move || Ok(adamw::squared_norm(&gradient).map(drop)?);
        Ok(Case {
            name: "gradient norm",
            forward: None,
            backward: pass(1, Work::memory(count), measure),
            reference: None,
        })
    }

    fn parameters(&self) -> anyhow::Result<usize> {
        Ok(atpm_model::specs(self.model)?.iter().map(atpm_model::ParameterSpec::elements).sum())
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
