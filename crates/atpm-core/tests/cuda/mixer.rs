//! The mixer.

use atpm_core::ops::mixer::{Inputs, Shape, Transport, backward, forward};
use atpm_core::testing::Random;
use atpm_core::{Result, Segments};
use candle_core::{DType, Tensor};

use crate::{Named, assert_same_as_cpu, put, put_optional};

pub(crate) const KERNELS: [&str; 10] = [
    "mixer_addresses_f32",
    "mixer_prepare_f32",
    "mixer_scan_f32",
    "mixer_addresses_f32",
    "mixer_prepare_f32",
    "mixer_scan_backward_f32",
    "mixer_entity_backward_f32",
    "mixer_address_backward_f32",
    "mixer_addresses_backward_f32",
    "mixer_transport_gradients",
];

/// Inputs and the seeds of the gradients, on the CPU.
pub(crate) struct Case {
    pub(crate) shape: Shape,
    pub(crate) x: Tensor,
    pub(crate) controls: Tensor,
    pub(crate) transport: Transport,
    /// The state before the first token, and the gradient of the one after the last.
    pub(crate) states: Option<(Tensor, Tensor)>,
    pub(crate) segments: Segments,
    pub(crate) dy: Tensor,
}

impl Case {
    pub(crate) fn random(shape: Shape, segments: Segments) -> Result<Self> {
        let (batch, tokens) = (segments.batch(), segments.tokens());
        let Shape { heads, address, key, value, rank, .. } = shape;
        let mut random = Random::new(51);
        let mut normal = |shape: &[usize]| random.normal(shape, DType::F32);
        let x = normal(&[batch, tokens, heads * shape.channels()])?;
        let dy = normal(&[batch, tokens, heads * (key + value)])?;
        let state = normal(&[batch, heads, address, key + value])?;
        let dstate = normal(&[batch, heads, address, key + value])?;
        let mut scaled = |shape: &[usize], size: usize| -> Result<Tensor> {
            Ok(normal(shape)?.affine((size as f64).powf(-0.5), 0.0)?)
        };
        let transport = Transport {
            a_key: scaled(&[heads, rank, key], key)?,
            a_value: scaled(&[heads, rank, value], value)?,
            c: scaled(&[heads, address, rank], rank)?,
        };
        let strengths = random.uniform(0.05, 0.95, (batch, tokens, 4, heads), DType::F32)?;
        let decays = random.uniform(-0.5, -0.001, (batch, tokens, 1, heads), DType::F32)?;
        let controls = Tensor::cat(&[&decays, &strengths], 2)?;
        Ok(Self { shape, x, controls, transport, states: Some((state, dstate)), segments, dy })
    }

    /// Its activations rounded to bf16: held in f32, and in bf16.
    pub(crate) fn rounded(&self) -> Result<[Self; 2]> {
        let [x, dy] = [self.x.to_dtype(DType::BF16)?, self.dy.to_dtype(DType::BF16)?];
        let with = |x, dy| {
            let Self { shape, controls, transport, states, segments, .. } = self;
            let Transport { a_key, a_value, c } = transport;
            Self {
                shape: *shape,
                x,
                controls: controls.clone(),
                transport: Transport { a_key: a_key.clone(), a_value: a_value.clone(), c: c.clone() },
                states: states.clone(),
                segments: segments.clone(),
                dy,
            }
        };
        Ok([with(x.to_dtype(DType::F32)?, dy.to_dtype(DType::F32)?), with(x, dy)])
    }

    /// Addresses that (nearly) repeat, slow decay and full writes: where powers of the chunk's matrix would lose all digits.
    pub(crate) fn repeated_addresses(tokens: usize, noise: f64, beta: f32) -> Result<Self> {
        let shape = Shape { heads: 1, address: 64, key: 16, value: 16, rank: 4, query_norm: true };
        let case = Self::random(shape, Segments::continuous(1, tokens))?;
        let query = case.x.narrow(2, 0, 64)?;
        let source = case.x.narrow(1, 0, 1)?.narrow(2, 64, 64)?.broadcast_as((1, tokens, 64))?;
        let source = (source + (Random::new(52).normal((1, tokens, 64), DType::F32)? * noise)?)?;
        let entity = case.x.narrow(2, 128, 32)?;
        let constant = |value: f32| Tensor::full(value, (1, tokens, 1, 1), case.x.device());
        let strengths = case.controls.narrow(2, 3, 2)?;
        let controls = [constant(-1e-3)?, constant(beta)?, constant(beta)?, strengths];
        let controls = Tensor::cat(&controls, 2)?;
        Ok(Self { x: Tensor::cat(&[query, source, entity], 2)?, controls, ..case })
    }

    /// Log decays that are this everywhere, or at token 70 alone and 0 elsewhere.
    pub(crate) fn decays(log_alpha: f32, once: bool) -> Result<Self> {
        let shape = Shape { heads: 1, address: 16, key: 16, value: 16, rank: 4, query_norm: true };
        let case = Self::random(shape, Segments::continuous(1, 130))?;
        let decays = (0..130).map(|token| if once && token != 70 { 0.0 } else { log_alpha }).collect();
        let decays = Tensor::from_vec(decays, (1, 130, 1, 1), case.x.device())?;
        Ok(Self { controls: Tensor::cat(&[decays, case.controls.narrow(2, 1, 4)?], 2)?, ..case })
    }

    /// Outputs and all gradients; those of the transport are added to zeros.
    pub(crate) fn values(&self) -> Result<Vec<Named>> {
        let [x, controls, dy] = put([&self.x, &self.controls, &self.dy])?;
        let Transport { a_key, a_value, c } = &self.transport;
        let [a_key, a_value, c] = put([a_key, a_value, c])?;
        let zeros = |tensor: &Tensor| tensor.zeros_like();
        let sums = Transport { a_key: zeros(&a_key)?, a_value: zeros(&a_value)?, c: zeros(&c)? };
        let transport = Transport { a_key, a_value, c };
        let state = put_optional(self.states.as_ref().map(|(state, _)| state))?;
        let dstate = put_optional(self.states.as_ref().map(|(_, dstate)| dstate))?;
        let inputs = Inputs {
            x: &x,
            controls: &controls,
            transport: &transport,
            state: state.as_ref(),
            segments: &self.segments,
        };
        let (outputs, saved) = forward(&self.shape, &inputs, true)?;
        let saved = saved.unwrap_or_else(|| unreachable!("saved for backward"));
        let gradients = backward(&self.shape, &inputs, &saved, &dy, dstate.as_ref(), &sums)?;
        Ok(vec![
            ("y", outputs.y),
            ("state", outputs.state),
            ("dx", gradients.x),
            ("dcontrols", gradients.controls),
            ("dstate", gradients.state),
            ("da_key", sums.a_key),
            ("da_value", sums.a_value),
            ("dc", sums.c),
            ("address_norm", outputs.address_norm),
        ])
    }
}

#[test]
fn mixer_launches() -> Result<()> {
    // Less than a chunk, chunks and a token, more chunks than a group; slices that are not full, and narrow scans.
    for (tokens, address, key, value, rank, query_norm) in [
        (7, 16, 8, 8, 3, true),
        (129, 32, 24, 72, 16, false),
        (520, 16, 8, 16, 5, true),
        (65, 208, 8, 40, 64, true),
    ] {
        let shape = Shape { heads: 2, address, key, value, rank, query_norm };
        let packed = Segments::from_starts(tokens, vec![vec![], vec![tokens / 2]])?;
        let case = Case::random(shape, packed)?;
        assert_same_as_cpu(&format!("mixer {shape:?} {tokens} packed"), &KERNELS, || case.values());
        let case = Case { states: None, segments: Segments::continuous(2, tokens), ..case };
        assert_same_as_cpu(&format!("mixer {shape:?} {tokens}"), &KERNELS, || case.values());
    }
    Ok(())
}

/// Constant, and large ones: where what is divided by a product of decays would overflow.
pub(crate) const DECAYS: [f32; 7] = [0.0, -1e-3, -5.0, -30.0, -100.0, -1e4, f32::NEG_INFINITY];

#[test]
fn decays_of_any_size() -> Result<()> {
    for once in [false, true] {
        for log_alpha in DECAYS {
            let case = Case::decays(log_alpha, once)?;
            assert_same_as_cpu(&format!("log alpha {log_alpha}, once: {once}"), &KERNELS, || case.values());
        }
    }
    Ok(())
}

#[test]
fn addresses_that_repeat() -> Result<()> {
    for (noise, beta) in [(0.0, 1.0), (0.01, 0.835)] {
        let case = Case::repeated_addresses(130, noise, beta)?;
        assert_same_as_cpu(&format!("address noise {noise}, beta {beta}"), &KERNELS, || case.values());
    }
    Ok(())
}

// The size of the entity, rows and heads decide how wide the scans' slices are: 32 columns, and 64.
#[test]
fn wider_slices_with_more_rows() -> Result<()> {
    let shape = Shape { heads: 1, address: 16, key: 256, value: 256, rank: 4, query_norm: true };
    for batch in [5, 9] {
        let case = Case::random(shape, Segments::continuous(batch, 5))?;
        assert_same_as_cpu(&format!("mixer, {batch} rows"), &KERNELS, || case.values());
    }
    Ok(())
}

#[test]
fn sums_of_transport_gradients_are_added_to() -> Result<()> {
    let shape = Shape { heads: 1, address: 16, key: 8, value: 8, rank: 4, query_norm: true };
    let case = Case::random(shape, Segments::continuous(1, 9))?;
    assert_same_as_cpu("mixer, sums that do not start at zero", &KERNELS, || {
        let [x, controls, dy] = put([&case.x, &case.controls, &case.dy])?;
        let Transport { a_key, a_value, c } = &case.transport;
        let [a_key, a_value, c] = put([a_key, a_value, c])?;
        let sums = Transport { a_key: a_key.copy()?, a_value: a_value.copy()?, c: c.copy()? };
        let transport = Transport { a_key, a_value, c };
        let inputs = Inputs {
            x: &x,
            controls: &controls,
            transport: &transport,
            state: None,
            segments: &case.segments,
        };
        let (_, saved) = forward(&shape, &inputs, true)?;
        backward(&shape, &inputs, &saved.expect("saved for backward"), &dy, None, &sums)?;
        Ok(vec![("da_key", sums.a_key), ("da_value", sums.a_value), ("dc", sums.c)])
    });
    Ok(())
}
