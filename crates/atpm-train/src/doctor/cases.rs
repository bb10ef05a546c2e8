//! Every op once, forward and backward, on a small awkward shape.
//!
//! What a case is given is made on the host and copied to the device; what it gives is copied back, in f32.

use atpm_core::ops::gates::Pins;
use atpm_core::ops::mixer::{Inputs, Shape, Transport};
use atpm_core::ops::{
    cross_entropy, embedding, gated_norm, gates, linear, mixer, rms_norm, short_conv, swiglu,
};
use atpm_core::optim::adamw;
use atpm_core::testing::{Random, autograd};
use atpm_core::{Precision, Result, Segments};
use candle_core::{DType, Device, Tensor, Var};

const ROWS: usize = 2;
/// A chunk and a piece of one.
const TOKENS: usize = 69;
const EPS: f64 = 1e-5;

/// What an op gives, on the host.
#[derive(Debug, Default)]
pub(super) struct Outputs {
    pub(super) values: Vec<Tensor>,
    pub(super) gradients: Vec<Tensor>,
}

type Written = Box<dyn Fn(&[Tensor], &[Tensor], Precision) -> Result<Outputs>>;
type Reference = Box<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>>;

/// Places of the activations among a case's inputs and seeds.
struct Activations {
    inputs: &'static [usize],
    seeds: &'static [usize],
}

/// Those of an op whose first input and first seed are activations, and no other.
#[expect(clippy::unnecessary_wraps, reason = "an op may have none")]
const fn first() -> Option<Activations> {
    Some(Activations { inputs: &[0], seeds: &[0] })
}

/// One op at one shape.
pub(super) struct Case {
    pub(super) op: &'static str,
    /// What it is differentiated by.
    inputs: Vec<Tensor>,
    /// The gradients of the first values; none for what has no backward. What is given twice has one.
    seeds: Vec<Tensor>,
    /// Which of them a GPU stores in bf16 if it is told to; none for an op that is f32 in any case.
    activations: Option<Activations>,
    /// Which gradient is that of the gates, which may lose more to bf16.
    pub(super) gates: Option<usize>,
    /// Values and the inputs' gradients by the op, from inputs and seeds, products in this precision.
    written: Written,
    /// Values in plain candle operations.
    reference: Reference,
}

impl Case {
    /// By the op, on this device, in f32.
    ///
    /// # Errors
    /// An op or a device that refuses.
    pub(super) fn on(&self, device: &Device) -> Result<Outputs> {
        self.run(&self.inputs, &self.seeds, device, Precision::F32)
    }

    /// The same with activations rounded to bf16, and kept in bf16 or in f32; `None` if the op has none.
    ///
    /// # Errors
    /// As [`Self::on`].
    pub(super) fn rounded_on(&self, device: &Device, kept: Precision) -> Option<Result<Outputs>> {
        let &Activations { inputs, seeds } = self.activations.as_ref()?;
        Some((|| {
            let inputs = rounded(&self.inputs, inputs, kept)?;
            let seeds = rounded(&self.seeds, seeds, kept)?;
            self.run(&inputs, &seeds, device, kept)
        })())
    }

    fn run(
        &self,
        inputs: &[Tensor],
        seeds: &[Tensor],
        device: &Device,
        precision: Precision,
    ) -> Result<Outputs> {
        let (inputs, seeds) = (moved(inputs, device)?, moved(seeds, device)?);
        let Outputs { values, gradients } = (self.written)(&inputs, &seeds, precision)?;
        Ok(Outputs { values: on_host(&values)?, gradients: on_host(&gradients)? })
    }

    /// By its definition and candle's autograd, on the CPU.
    ///
    /// # Errors
    /// Whatever candle refuses.
    pub(super) fn by_reference(&self) -> Result<Outputs> {
        let variables = self.inputs.iter().map(Var::from_tensor).collect::<candle_core::Result<Vec<_>>>()?;
        let inputs: Vec<Tensor> = variables.iter().map(|variable| variable.as_tensor().clone()).collect();
        let values = (self.reference)(&inputs)?;
        if self.seeds.is_empty() {
            return Ok(Outputs { values, gradients: Vec::new() });
        }
        let seeded: Vec<_> = values.iter().zip(&self.seeds).collect();
        let gradients = autograd(&seeded, &variables.iter().collect::<Vec<_>>())?;
        Ok(Outputs { values, gradients })
    }
}

fn moved(tensors: &[Tensor], device: &Device) -> Result<Vec<Tensor>> {
    Ok(tensors.iter().map(|tensor| tensor.to_device(device)).collect::<candle_core::Result<_>>()?)
}

/// What came from a device, in f32.
fn on_host(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    let widened = |tensor: &Tensor| tensor.to_device(&Device::Cpu)?.to_dtype(DType::F32);
    Ok(tensors.iter().map(widened).collect::<candle_core::Result<_>>()?)
}

/// The tensors, those at these places rounded to bf16.
fn rounded(tensors: &[Tensor], places: &[usize], kept: Precision) -> Result<Vec<Tensor>> {
    let dtype = if kept == Precision::Bf16 { DType::BF16 } else { DType::F32 };
    let round = |(place, tensor): (usize, &Tensor)| {
        if places.contains(&place) {
            tensor.to_dtype(DType::BF16)?.to_dtype(dtype)
        } else {
            Ok(tensor.clone())
        }
    };
    Ok(tensors.iter().enumerate().map(round).collect::<candle_core::Result<_>>()?)
}

/// Every op of a training step.
///
/// # Errors
/// A failure inside candle.
pub(super) fn all() -> Result<Vec<Case>> {
    let random = &mut Random::new(91);
    Ok(vec![
        embedding(random)?,
        rms_norm(random)?,
        linear(random)?,
        short_conv(random)?,
        gates(random)?,
        mixer(random)?,
        gated_norm(random)?,
        swiglu(random)?,
        cross_entropy(random)?,
        residual_sum(random)?,
        whole_tensors(random)?,
        adamw(random)?,
        gradient_norm(random)?,
    ])
}

fn normal(random: &mut Random, shape: &[usize]) -> Result<Tensor> {
    random.normal(shape, DType::F32)
}

/// A buffer to add the gradient of `tensor` to.
fn sum(tensor: &Tensor) -> Result<Tensor> {
    Ok(tensor.zeros_like()?)
}

fn packed() -> Result<Segments> {
    Segments::from_starts(TOKENS, vec![vec![0, 3, 65], vec![]])
}

fn embedding(random: &mut Random) -> Result<Case> {
    let ids = random.ids(13, (ROWS, TOKENS))?;
    let same_ids = ids.clone();
    Ok(Case {
        op: "embedding",
        inputs: vec![normal(random, &[13, 34])?],
        seeds: vec![normal(random, &[ROWS, TOKENS, 34])?],
        activations: Some(Activations { inputs: &[], seeds: &[0] }),
        gates: None,
        written: Box::new(move |inputs, seeds, precision| {
            let dtable = sum(&inputs[0])?;
            embedding::backward(&ids, &seeds[0], &dtable)?;
            Ok(Outputs {
                values: vec![embedding::forward(&ids, &inputs[0], precision)?],
                gradients: vec![dtable],
            })
        }),
        reference: Box::new(move |inputs| Ok(vec![embedding::reference::forward(&same_ids, &inputs[0])?])),
    })
}

fn rms_norm(random: &mut Random) -> Result<Case> {
    Ok(Case {
        op: "rms_norm",
        inputs: vec![normal(random, &[67, 34])?, normal(random, &[34])?],
        seeds: vec![normal(random, &[67, 34])?],
        activations: first(),
        gates: None,
        written: Box::new(|inputs, seeds, _| {
            let [x, weight] = [&inputs[0], &inputs[1]];
            let dweight = sum(weight)?;
            let dx = rms_norm::backward(x, weight, EPS, &seeds[0], None, &dweight)?;
            Ok(Outputs { values: vec![rms_norm::forward(x, weight, EPS)?], gradients: vec![dx, dweight] })
        }),
        reference: Box::new(|inputs| Ok(vec![rms_norm::reference::forward(&inputs[0], &inputs[1], EPS)?])),
    })
}

fn linear(random: &mut Random) -> Result<Case> {
    Ok(Case {
        op: "linear",
        inputs: vec![normal(random, &[67, 18])?, normal(random, &[33, 18])?],
        seeds: vec![normal(random, &[67, 33])?],
        activations: first(),
        gates: None,
        written: Box::new(|inputs, seeds, precision| {
            let [x, weight] = [&inputs[0], &inputs[1]];
            let (dx, dweight) = (sum(x)?, sum(weight)?);
            linear::backward_input_add(weight, &seeds[0], &dx, precision)?;
            linear::backward_weight(x, &seeds[0], &dweight, precision)?;
            // In full precision too, as the controllers' is in any case.
            let values =
                vec![linear::forward(x, weight, precision)?, linear::forward(x, weight, Precision::F32)?];
            Ok(Outputs { values, gradients: vec![dx, dweight] })
        }),
        reference: Box::new(|inputs| {
            let y = linear::reference::forward(&inputs[0], &inputs[1])?;
            Ok(vec![y.clone(), y])
        }),
    })
}

fn short_conv(random: &mut Random) -> Result<Case> {
    let (channels, width) = (130, 4);
    let state = [ROWS, width - 1, channels];
    Ok(Case {
        op: "short_conv",
        inputs: vec![
            normal(random, &[ROWS, TOKENS, channels])?,
            normal(random, &[channels, width])?,
            normal(random, &state)?,
        ],
        seeds: vec![normal(random, &[ROWS, TOKENS, channels])?, normal(random, &state)?],
        activations: Some(Activations { inputs: &[0, 2], seeds: &[0, 1] }),
        gates: None,
        written: Box::new(|inputs, seeds, _| {
            let ([x, weight], state) = ([&inputs[0], &inputs[1]], Some(&inputs[2]));
            let (segments, dweight) = (packed()?, sum(weight)?);
            let (y, last) = short_conv::forward(x, weight, state, &segments)?;
            let (dx, dstate) =
                short_conv::backward(x, weight, state, &segments, &seeds[0], Some(&seeds[1]), &dweight)?;
            Ok(Outputs { values: vec![y, last], gradients: vec![dx, dweight, dstate] })
        }),
        reference: Box::new(|inputs| {
            let [x, weight, state] = [&inputs[0], &inputs[1], &inputs[2]];
            let (y, last) = short_conv::reference::forward(x, weight, Some(state), &packed()?)?;
            Ok(vec![y, last])
        }),
    })
}

fn gates(random: &mut Random) -> Result<Case> {
    let heads = 3;
    let pins = Pins { rho: None, lambda: None, tie_beta: false };
    Ok(Case {
        op: "gates",
        inputs: vec![
            normal(random, &[ROWS, TOKENS, 5, heads])?,
            normal(random, &[heads])?,
            normal(random, &[heads])?,
            normal(random, &[4, heads])?,
        ],
        seeds: vec![normal(random, &[ROWS, TOKENS, 5, heads])?],
        activations: None,
        gates: None,
        written: Box::new(move |inputs, seeds, _| {
            let [logits, a_log, dt_bias, bias] = [&inputs[0], &inputs[1], &inputs[2], &inputs[3]];
            let sums = [sum(a_log)?, sum(dt_bias)?, sum(bias)?];
            let [da_log, ddt_bias, dbias] = &sums;
            let dlogits =
                gates::backward(logits, a_log, dt_bias, bias, pins, &seeds[0], da_log, ddt_bias, dbias)?;
            let values = vec![gates::forward(logits, a_log, dt_bias, bias, pins)?];
            Ok(Outputs { values, gradients: [dlogits].into_iter().chain(sums).collect() })
        }),
        reference: Box::new(move |inputs| {
            Ok(vec![gates::reference::forward(&inputs[0], &inputs[1], &inputs[2], &inputs[3], pins)?])
        }),
    })
}

const HEAD: Shape = Shape { heads: 2, address: 32, key: 24, value: 72, rank: 5, query_norm: true };

fn mixer(random: &mut Random) -> Result<Case> {
    let Shape { heads, address, key, value, rank, .. } = HEAD;
    let state = [ROWS, heads, address, HEAD.entity()];
    let strengths = random.uniform(0.05, 0.95, (ROWS, TOKENS, 4, heads), DType::F32)?;
    let decays = random.uniform(-0.5, -0.001, (ROWS, TOKENS, 1, heads), DType::F32)?;
    Ok(Case {
        op: "mixer",
        inputs: vec![
            normal(random, &[ROWS, TOKENS, heads * HEAD.channels()])?,
            Tensor::cat(&[&decays, &strengths], 2)?,
            normal(random, &[heads, rank, key])?,
            normal(random, &[heads, rank, value])?,
            normal(random, &[heads, address, rank])?,
            normal(random, &state)?,
        ],
        seeds: vec![normal(random, &[ROWS, TOKENS, heads * HEAD.entity()])?, normal(random, &state)?],
        activations: first(),
        gates: Some(1),
        written: Box::new(|inputs, seeds, _| {
            let (segments, transport) = (packed()?, transport(inputs));
            let given = mixer_inputs(inputs, &transport, &segments);
            let (outputs, saved) = mixer::forward(&HEAD, &given, true)?;
            let Transport { a_key, a_value, c } = &transport;
            let sums = Transport { a_key: sum(a_key)?, a_value: sum(a_value)?, c: sum(c)? };
            let mut gradients = Vec::new();
            if let Some(saved) = saved {
                let found = mixer::backward(&HEAD, &given, &saved, &seeds[0], Some(&seeds[1]), &sums)?;
                gradients = vec![found.x, found.controls, sums.a_key, sums.a_value, sums.c, found.state];
            }
            Ok(Outputs { values: vec![outputs.y, outputs.state], gradients })
        }),
        reference: Box::new(|inputs| {
            let (segments, transport) = (packed()?, transport(inputs));
            let (y, state) = mixer::reference::forward(&HEAD, &mixer_inputs(inputs, &transport, &segments))?;
            Ok(vec![y, state])
        }),
    })
}

fn transport(inputs: &[Tensor]) -> Transport {
    let [a_key, a_value, c] = [2, 3, 4].map(|index| inputs[index].clone());
    Transport { a_key, a_value, c }
}

fn mixer_inputs<'a>(inputs: &'a [Tensor], transport: &'a Transport, segments: &'a Segments) -> Inputs<'a> {
    Inputs { x: &inputs[0], controls: &inputs[1], transport, state: Some(&inputs[5]), segments }
}

fn gated_norm(random: &mut Random) -> Result<Case> {
    let shape = [67, 3 * 34];
    Ok(Case {
        op: "gated_norm",
        inputs: vec![normal(random, &shape)?, normal(random, &shape)?, normal(random, &[34])?],
        seeds: vec![normal(random, &shape)?],
        activations: Some(Activations { inputs: &[0, 1], seeds: &[0] }),
        gates: None,
        written: Box::new(|inputs, seeds, _| {
            let [y, gate, weight] = [&inputs[0], &inputs[1], &inputs[2]];
            let dweight = sum(weight)?;
            let (dy, dgate, again) = gated_norm::backward(y, gate, weight, EPS, &seeds[0], &dweight)?;
            let values = vec![gated_norm::forward(y, gate, weight, EPS)?, again];
            Ok(Outputs { values, gradients: vec![dy, dgate, dweight] })
        }),
        reference: Box::new(|inputs| {
            let value = gated_norm::reference::forward(&inputs[0], &inputs[1], &inputs[2], EPS)?;
            Ok(vec![value.clone(), value])
        }),
    })
}

fn swiglu(random: &mut Random) -> Result<Case> {
    Ok(Case {
        op: "swiglu",
        inputs: vec![normal(random, &[67, 2 * 46])?],
        seeds: vec![normal(random, &[67, 46])?],
        activations: first(),
        gates: None,
        written: Box::new(|inputs, seeds, _| {
            let (dx, again) = swiglu::backward(&inputs[0], &seeds[0])?;
            Ok(Outputs { values: vec![swiglu::forward(&inputs[0])?, again], gradients: vec![dx] })
        }),
        reference: Box::new(|inputs| {
            let value = swiglu::reference::forward(&inputs[0])?;
            Ok(vec![value.clone(), value])
        }),
    })
}

fn cross_entropy(random: &mut Random) -> Result<Case> {
    let (tokens, width, vocabulary, scale) = (70, 18, 301, 0.125);
    let mut targets = random.ids(vocabulary, tokens)?.to_vec1::<u32>()?;
    targets.iter_mut().skip(3).step_by(5).for_each(|target| *target = cross_entropy::IGNORE);
    let targets = Tensor::new(targets, &Device::Cpu)?;
    let same_targets = targets.clone();
    let seed = Tensor::full(scale as f32, tokens, &Device::Cpu)?;
    Ok(Case {
        op: "cross_entropy",
        inputs: vec![normal(random, &[tokens, width])?, normal(random, &[vocabulary, width])?],
        seeds: vec![seed],
        activations: Some(Activations { inputs: &[0], seeds: &[] }),
        gates: None,
        written: Box::new(move |inputs, _, precision| {
            let [x, weight] = [&inputs[0], &inputs[1]];
            let options = cross_entropy::Options { precision, ..cross_entropy::Options::default() };
            let dweight = sum(weight)?;
            let alone = cross_entropy::forward(x, weight, &targets, precision)?;
            let (losses, dx) =
                cross_entropy::forward_backward(x, weight, &targets, scale, options, &dweight)?;
            Ok(Outputs { values: vec![losses, alone], gradients: vec![dx, dweight] })
        }),
        reference: Box::new(move |inputs| {
            let (losses, _) = cross_entropy::reference::forward(&inputs[0], &inputs[1], &same_targets)?;
            Ok(vec![losses.clone(), losses])
        }),
    })
}

fn residual_sum(random: &mut Random) -> Result<Case> {
    let shape = [3, 171];
    Ok(Case {
        op: "residual sum",
        inputs: vec![normal(random, &shape)?, normal(random, &shape)?],
        seeds: Vec::new(),
        activations: Some(Activations { inputs: &[0, 1], seeds: &[] }),
        gates: None,
        written: Box::new(|inputs, _, _| {
            Ok(Outputs { values: vec![atpm_core::add(&inputs[0], &inputs[1])?], gradients: Vec::new() })
        }),
        reference: Box::new(|inputs| Ok(vec![(&inputs[0] + &inputs[1])?])),
    })
}

fn whole_tensors(random: &mut Random) -> Result<Case> {
    let shape = [3, 171];
    Ok(Case {
        op: "whole tensors",
        inputs: vec![normal(random, &shape)?, normal(random, &shape)?],
        seeds: Vec::new(),
        activations: None,
        gates: None,
        written: Box::new(|inputs, _, _| {
            let [a, b] = [&inputs[0], &inputs[1]];
            let (grown, written) = (sum(a)?, sum(a)?);
            atpm_core::overwrite_f32(&grown, &atpm_core::read_f32(a)?)?;
            atpm_core::accumulate(&grown, b)?;
            atpm_core::overwrite_f32(&written, &atpm_core::read_f32(b)?)?;
            let cleared = atpm_core::add(a, b)?;
            atpm_core::clear(&cleared)?;
            Ok(Outputs { values: vec![grown, written, cleared], gradients: Vec::new() })
        }),
        reference: Box::new(|inputs| {
            let [a, b] = [&inputs[0], &inputs[1]];
            Ok(vec![(a + b)?, b.clone(), a.zeros_like()?])
        }),
    })
}

const UPDATE: adamw::Config = adamw::Config {
    lr: 1e-2,
    beta1: 0.9,
    beta2: 0.95,
    eps: 1e-8,
    weight_decay: 0.1,
    grad_scale: 0.5,
    step: 3,
};

fn adamw(random: &mut Random) -> Result<Case> {
    let elements = 8193;
    let [parameter, m, gradient] =
        [normal(random, &[elements])?, normal(random, &[elements])?, normal(random, &[elements])?];
    let v = random.uniform(1e-3, 1.0, elements, DType::F32)?;
    Ok(Case {
        op: "adamw",
        inputs: vec![parameter, m, v, gradient],
        seeds: Vec::new(),
        activations: None,
        gates: None,
        written: Box::new(|inputs, _, _| {
            let values = inputs[..3].iter().map(Tensor::copy).collect::<candle_core::Result<Vec<_>>>()?;
            adamw::update(&UPDATE, &values[0], &values[1], &values[2], &inputs[3])?;
            Ok(Outputs { values, gradients: Vec::new() })
        }),
        reference: Box::new(|inputs| {
            let [parameter, m, v, gradient] = [&inputs[0], &inputs[1], &inputs[2], &inputs[3]];
            let (parameter, m, v) = adamw::reference::update(&UPDATE, parameter, m, v, gradient)?;
            Ok(vec![parameter, m, v])
        }),
    })
}

fn gradient_norm(random: &mut Random) -> Result<Case> {
    Ok(Case {
        op: "gradient norm",
        inputs: vec![normal(random, &[20_001])?],
        seeds: Vec::new(),
        activations: None,
        gates: None,
        written: Box::new(|inputs, _, _| {
            let square = Tensor::new(&[adamw::squared_norm(&inputs[0])?], &Device::Cpu)?;
            Ok(Outputs { values: vec![square], gradients: Vec::new() })
        }),
        reference: Box::new(|inputs| {
            let square = inputs[0].to_dtype(DType::F64)?.sqr()?.sum_all()?;
            Ok(vec![square.reshape(1)?])
        }),
    })
}
