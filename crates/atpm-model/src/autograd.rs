//! A layer from any function in plain candle operations, for research: candle's autograd writes
//! the backward.
//!
//! Slower and hungrier than a written layer, since every intermediate is kept; the place to try a
//! new mixer before writing its op.

use atpm_core::Segments;
use candle_core::{Tensor, Var};

use crate::decode::DecodeState;
use crate::layer::{Layer, Saved, bytes};
use crate::{Error, Parameter, Result};

const NAME: &str = "autograd";

/// A [`Layer`] that computes `function(x, parameters, segments)`.
///
/// The function gets `x [B,T,d]` and the parameters' values in the given order, and returns
/// `[B,T,d]`. If it looks back in time, it must not look across a document's start.
pub struct Autograd<F> {
    name: String,
    parameters: Vec<Parameter>,
    function: F,
}

struct Kept {
    x: Var,
    values: Vec<Var>,
    /// The output with its graph.
    y: Tensor,
}

impl<F> Autograd<F>
where
    F: Fn(&Tensor, &[Tensor], &Segments) -> Result<Tensor> + Send + Sync,
{
    /// The layer called `name` in errors.
    pub fn new(name: impl Into<String>, parameters: Vec<Parameter>, function: F) -> Self {
        Self { name: name.into(), parameters, function }
    }

    fn missing(&self, tensor: &str) -> Error {
        Error::MissingGradient { layer: self.name.clone(), tensor: tensor.into() }
    }
}

impl<F> Layer for Autograd<F>
where
    F: Fn(&Tensor, &[Tensor], &Segments) -> Result<Tensor> + Send + Sync,
{
    fn forward(&self, x: &Tensor, segments: &Segments) -> Result<(Tensor, Saved)> {
        // Variables are copies: candle records a graph only from variables of its own.
        let x = Var::from_tensor(&x.detach())?;
        let values = self
            .parameters
            .iter()
            .map(|parameter| Ok(Var::from_tensor(&parameter.value)?))
            .collect::<Result<Vec<_>>>()?;
        let tensors: Vec<Tensor> = values.iter().map(|value| value.as_tensor().clone()).collect();
        let y = (self.function)(x.as_tensor(), &tensors, segments)?;
        let size = bytes(tensors.iter().chain([x.as_tensor(), &y]));
        Ok((y.detach(), Saved::new(Kept { x, values, y }, size)))
    }

    fn backward(&self, _x: &Tensor, saved: Saved, dy: &Tensor, _segments: &Segments) -> Result<Tensor> {
        let Kept { x, values, y } = saved.take(NAME)?;
        // The gradient of Σ y ⊙ dy is the product of dy with y's Jacobian.
        let gradients = (y * dy)?.sum_all()?.backward()?;
        for (parameter, value) in self.parameters.iter().zip(&values) {
            let gradient = gradients.get(value).ok_or_else(|| self.missing(&parameter.name))?;
            atpm_core::accumulate(&parameter.gradient, gradient)?;
        }
        gradients.get(&x).cloned().ok_or_else(|| self.missing("input"))
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.clone()
    }

    fn resume(&self, _x: &Tensor, _segments: &Segments, _state: &mut DecodeState) -> Result<Tensor> {
        Err(Error::NoDecodePath { layer: self.name.clone() })
    }
}
