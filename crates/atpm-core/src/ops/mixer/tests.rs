//! The chunked mixer against the sequential reference, the golden files, and its own laws.

mod golden;
mod invariants;
mod parity;
mod pitfalls;

use candle_core::{DType, Tensor, Var};

use super::{Gradients, Inputs, Outputs, Shape, Transport, backward, forward, reference};
use crate::testing::{Random, autograd};
use crate::{Result, Segments};

/// One problem: inputs and the seeds of the gradients.
struct Case {
    shape: Shape,
    x: Tensor,
    controls: Tensor,
    transport: Transport,
    state: Tensor,
    segments: Segments,
    dy: Tensor,
    dstate: Tensor,
}

impl Case {
    fn random(seed: u64, shape: Shape, segments: Segments, dtype: DType) -> Result<Self> {
        let mut random = Random::new(seed);
        let (batch, tokens) = (segments.batch(), segments.tokens());
        let Shape { heads, address, key, value, rank, .. } = shape;
        let log_alpha = random.uniform(-0.3, 0.0, (batch, tokens, 1, heads), dtype)?;
        let others = random.uniform(0.0, 1.0, (batch, tokens, 4, heads), dtype)?;
        let mut normal =
            |dims: &[usize], scale: f64| -> Result<Tensor> { Ok((random.normal(dims, dtype)? * scale)?) };
        let scaled = |n: usize| (n as f64).sqrt().recip();
        Ok(Self {
            shape,
            x: normal(&[batch, tokens, heads * shape.channels()], 1.0)?,
            controls: Tensor::cat(&[&log_alpha, &others], 2)?,
            transport: Transport {
                a_key: normal(&[heads, rank, key], scaled(key))?,
                a_value: normal(&[heads, rank, value], scaled(value))?,
                c: normal(&[heads, address, rank], scaled(rank))?,
            },
            state: normal(&[batch, heads, address, shape.entity()], 0.5)?,
            dy: normal(&[batch, tokens, heads * shape.entity()], 1.0)?,
            dstate: normal(&[batch, heads, address, shape.entity()], 1.0)?,
            segments,
        })
    }

    /// With log α replaced by `log_alpha(row, token)` on every head.
    fn with_log_alpha(mut self, log_alpha: impl Fn(usize, usize) -> f64) -> Result<Self> {
        self.set_control(0, log_alpha)?;
        Ok(self)
    }

    fn set_control(&mut self, index: usize, value: impl Fn(usize, usize) -> f64) -> Result<()> {
        let (batch, tokens, heads) = (self.segments.batch(), self.segments.tokens(), self.shape.heads);
        let mut values = Vec::new();
        for row in 0..batch {
            for token in 0..tokens {
                values.extend(vec![value(row, token); heads]);
            }
        }
        let device = self.controls.device().clone();
        let new =
            Tensor::from_vec(values, (batch, tokens, 1, heads), &device)?.to_dtype(self.controls.dtype())?;
        let mut parts: Vec<Tensor> =
            (0..5).map(|index| self.controls.narrow(2, index, 1)).collect::<candle_core::Result<_>>()?;
        parts[index] = new;
        self.controls = Tensor::cat(&parts, 2)?;
        Ok(())
    }

    fn inputs(&self) -> Inputs<'_> {
        Inputs {
            x: &self.x,
            controls: &self.controls,
            transport: &self.transport,
            state: Some(&self.state),
            segments: &self.segments,
        }
    }

    /// The same case in another dtype.
    fn to(&self, dtype: DType) -> Result<Self> {
        self.map(|tensor| Ok(tensor.to_dtype(dtype)?))
    }

    /// The case with `change` made to every tensor.
    fn map(&self, change: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        Ok(Self {
            shape: self.shape,
            x: change(&self.x)?,
            controls: change(&self.controls)?,
            transport: Transport {
                a_key: change(&self.transport.a_key)?,
                a_value: change(&self.transport.a_value)?,
                c: change(&self.transport.c)?,
            },
            state: change(&self.state)?,
            segments: self.segments.clone(),
            dy: change(&self.dy)?,
            dstate: change(&self.dstate)?,
        })
    }

    /// Outputs and all gradients of the chunked path.
    fn chunked(&self) -> Result<(Outputs, Gradients, Transport)> {
        let (outputs, saved) = forward(&self.shape, &self.inputs(), true)?;
        let dtransport = Transport {
            a_key: self.transport.a_key.zeros_like()?,
            a_value: self.transport.a_value.zeros_like()?,
            c: self.transport.c.zeros_like()?,
        };
        let saved = saved.expect("asked to save");
        let gradients =
            backward(&self.shape, &self.inputs(), &saved, &self.dy, Some(&self.dstate), &dtransport)?;
        Ok((outputs, gradients, dtransport))
    }

    /// `(name, value)` of every output and gradient of the chunked path.
    fn chunked_values(&self) -> Result<Vec<(&'static str, Tensor)>> {
        let (outputs, gradients, dtransport) = self.chunked()?;
        let values = [outputs.y, outputs.state, gradients.x, gradients.controls, gradients.state];
        let weights = [dtransport.a_key, dtransport.a_value, dtransport.c];
        Ok(NAMES.into_iter().zip(values.into_iter().chain(weights)).collect())
    }

    /// The same by the sequential reference under candle's autograd.
    fn sequential_values(&self) -> Result<Vec<(&'static str, Tensor)>> {
        let variables = [
            &self.x,
            &self.controls,
            &self.state,
            &self.transport.a_key,
            &self.transport.a_value,
            &self.transport.c,
        ]
        .map(|tensor| Var::from_tensor(tensor).expect("a copy"));
        let [x, controls, state, a_key, a_value, c] = &variables;
        let transport = Transport {
            a_key: a_key.as_tensor().clone(),
            a_value: a_value.as_tensor().clone(),
            c: c.as_tensor().clone(),
        };
        let segments = &self.segments;
        let inputs = Inputs { x, controls, transport: &transport, state: Some(state), segments };
        let (y, last) = reference::forward(&self.shape, &inputs)?;
        let seeds = [(&y, &self.dy), (&last, &self.dstate)];
        let gradients = autograd(&seeds, &[x, controls, state, a_key, a_value, c])?;
        Ok(NAMES.into_iter().zip([y.detach(), last.detach()].into_iter().chain(gradients)).collect())
    }
}

/// Outputs and gradients in the order of [`Case::chunked_values`].
const NAMES: [&str; 8] = ["y", "E_T", "dx", "dcontrols", "dE0", "dA_K", "dA_V", "dC"];

/// A small head with odd sizes.
const SMALL: Shape = Shape { heads: 2, address: 12, key: 5, value: 7, rank: 3, query_norm: true };

/// Whether `name` is a gradient.
fn is_gradient(name: &str) -> bool {
    name.starts_with('d')
}
