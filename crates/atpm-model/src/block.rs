//! One block of the decoder: a mixer, then an MLP, each around a normed residual.
//!
//! ```text
//! m = x + mixer(rms_norm(x))        y = m + mlp(rms_norm(m))        all [B,T,d]
//! ```
//!
//! Saved for backward: `m` and what mixer and MLP keep. The normed inputs are computed again.

use atpm_core::ops::rms_norm;
use atpm_core::{Precision, Segments, add};
use candle_core::Tensor;

use crate::decode::DecodeState;
use crate::layer::{Layer, Saved, bytes};
use crate::telemetry::See;
use crate::{Parameter, Result};

/// `x + inner(rms_norm(x))`.
pub struct Residual {
    norm: Parameter,
    eps: f64,
    inner: Box<dyn Layer>,
}

impl Residual {
    /// A residual around `inner`, with the norm's scale `[d]` and its ε.
    pub fn new(norm: Parameter, eps: f64, inner: Box<dyn Layer>) -> Self {
        Self { norm, eps, inner }
    }

    fn normed(&self, x: &Tensor) -> Result<Tensor> {
        Ok(rms_norm::forward(x, &self.norm.value, self.eps)?)
    }
}

impl Layer for Residual {
    fn forward(&self, x: &Tensor, segments: &Segments) -> Result<(Tensor, Saved)> {
        let (change, saved) = self.inner.forward(&self.normed(x)?, segments)?;
        Ok((add(x, &change)?, saved))
    }

    fn backward(&self, x: &Tensor, saved: Saved, dy: &Tensor, segments: &Segments) -> Result<Tensor> {
        let dnormed = self.inner.backward(&self.normed(x)?, saved, dy, segments)?;
        // The skip's gradient, dy itself, is added inside the norm's backward.
        let dx = rms_norm::backward(x, &self.norm.value, self.eps, &dnormed, Some(dy), &self.norm.gradient)?;
        Ok(dx)
    }

    fn set_precision(&mut self, precision: Precision) {
        self.inner.set_precision(precision);
    }

    fn parameters(&self) -> Vec<Parameter> {
        let mut list = vec![self.norm.clone()];
        list.extend(self.inner.parameters());
        list
    }

    fn initial_state(&self, batch: usize) -> Result<Vec<(String, Tensor)>> {
        self.inner.initial_state(batch)
    }

    fn resume(&self, x: &Tensor, segments: &Segments, state: &mut DecodeState) -> Result<Tensor> {
        Ok(add(x, &self.inner.resume(&self.normed(x)?, segments, state)?)?)
    }

    fn observe(&self, x: &Tensor, segments: &Segments, see: See<'_>) -> Result<Tensor> {
        Ok(add(x, &self.inner.observe(&self.normed(x)?, segments, see)?)?)
    }
}

/// A mixer and an MLP, each a [`Residual`].
pub struct Block {
    /// The part that looks back in time.
    pub mixer: Residual,
    /// The part that looks at one token.
    pub mlp: Residual,
}

struct Kept {
    mixer: Saved,
    /// `[B,T,d]`, between the two.
    middle: Tensor,
    mlp: Saved,
}

impl Layer for Block {
    fn forward(&self, x: &Tensor, segments: &Segments) -> Result<(Tensor, Saved)> {
        let (middle, mixer) = self.mixer.forward(x, segments)?;
        let (y, mlp) = self.mlp.forward(&middle, segments)?;
        let size = mixer.bytes() + bytes([&middle]) + mlp.bytes();
        Ok((y, Saved::new(Kept { mixer, middle, mlp }, size)))
    }

    fn backward(&self, x: &Tensor, saved: Saved, dy: &Tensor, segments: &Segments) -> Result<Tensor> {
        let Kept { mixer, middle, mlp } = saved.take("block")?;
        let dmiddle = self.mlp.backward(&middle, mlp, dy, segments)?;
        self.mixer.backward(x, mixer, &dmiddle, segments)
    }

    fn set_precision(&mut self, precision: Precision) {
        self.mixer.set_precision(precision);
        self.mlp.set_precision(precision);
    }

    fn parameters(&self) -> Vec<Parameter> {
        let mut list = self.mixer.parameters();
        list.extend(self.mlp.parameters());
        list
    }

    fn initial_state(&self, batch: usize) -> Result<Vec<(String, Tensor)>> {
        let mut state = self.mixer.initial_state(batch)?;
        state.extend(self.mlp.initial_state(batch)?);
        Ok(state)
    }

    fn resume(&self, x: &Tensor, segments: &Segments, state: &mut DecodeState) -> Result<Tensor> {
        self.mlp.resume(&self.mixer.resume(x, segments, state)?, segments, state)
    }

    fn observe(&self, x: &Tensor, segments: &Segments, see: See<'_>) -> Result<Tensor> {
        let middle = self.mixer.observe(x, segments, see)?;
        self.mlp.observe(&middle, segments, see)
    }
}
