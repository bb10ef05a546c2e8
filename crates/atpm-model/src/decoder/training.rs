//! A whole forward and backward pass, and token losses alone.

use atpm_core::Segments;
use atpm_core::ops::cross_entropy::{self, Options};
use atpm_core::ops::{embedding, rms_norm};
use candle_core::Tensor;

use super::{Decoder, expect};
use crate::{Error, Result};

/// What one micro-batch gives besides the gradients.
#[derive(Debug)]
pub struct StepOutput {
    /// Nats of every token `[B·T]`, 0 where the target is ignored; without the z-loss.
    pub token_losses: Tensor,
}

impl Decoder {
    /// Forward and backward for one micro-batch: `ids` and `targets [B,T]` (u32; ignored targets are
    /// [`cross_entropy::IGNORE`]). Adds to every parameter's gradient that of
    /// `scale · Σ (loss + z_loss · lse²)`; with `scale` = 1 / target tokens of all micro-batches of a
    /// step, the sum over them is the gradient of the mean.
    ///
    /// # Errors
    /// Shapes that do not fit, ids or targets outside the vocabulary, a model [`Decoder::for_inference`].
    pub fn train_step_backward(
        &self,
        ids: &Tensor,
        targets: &Tensor,
        segments: &Segments,
        scale: f64,
        z_loss: f64,
    ) -> Result<StepOutput> {
        expect("targets", targets, segments)?;
        if self.norm.gradient.dims() != self.norm.value.dims() {
            return Err(Error::Input("the model was made for inference, without room for gradients".into()));
        }
        self.compute(|| {
            let eps = self.config.norm_eps;
            let (kept, x) = self.run_blocks(self.embed(ids, segments)?, segments)?;

            // The head works on [N, d]: one row a token.
            let normed = self.normed(&x)?.flatten_to(1)?;
            let head = self.head();
            let (token_losses, dnormed) = cross_entropy::forward_backward(
                &normed,
                head.factor(self.precision)?,
                &targets.flatten_all()?,
                scale,
                Options { precision: self.precision, z_loss },
                &head.gradient,
            )?;
            let dnormed = dnormed.reshape(x.dims())?;
            let mut dx = rms_norm::backward(&x, &self.norm.value, eps, &dnormed, None, &self.norm.gradient)?;

            for (block, (x, saved)) in self.blocks.iter().zip(kept).rev() {
                dx = block.backward(&x, saved, &dx, segments)?;
            }
            embedding::backward(ids, &dx, &self.embedding.gradient)?;
            Ok(StepOutput { token_losses })
        })
    }

    /// Nats of every token `[B·T]`, 0 where the target is ignored. Nothing is kept.
    ///
    /// # Errors
    /// As [`Decoder::train_step_backward`].
    pub fn evaluate(&self, ids: &Tensor, targets: &Tensor, segments: &Segments) -> Result<Tensor> {
        expect("targets", targets, segments)?;
        self.compute(|| {
            let mut x = self.embed(ids, segments)?;
            for block in &self.blocks {
                (x, _) = block.forward(&x, segments)?;
            }
            let normed = self.normed(&x)?.flatten_to(1)?;
            let weight = self.head().factor(self.precision)?;
            Ok(cross_entropy::forward(&normed, weight, &targets.flatten_all()?, self.precision)?)
        })
    }
}
