//! One step: accumulate, measure, clip, update — or skip.

use anyhow::bail;
use atpm_core::optim::adamw;
use atpm_data::Batch;
use atpm_model::{Parameter, zero_gradients};
use candle_core::Tensor;

use super::inputs::{Inputs, target_tokens};
use super::schedule::learning_rate;
use super::trainer::Trainer;
use crate::report::metrics::{Record, Skip};

impl Trainer {
    /// Trains on the micro-batches of one step. The loss is the mean over the target tokens of all of them,
    /// and of all processes.
    ///
    /// A step without targets, or whose loss or gradient is not finite, changes no parameter and no moment.
    ///
    /// # Errors
    /// More skipped steps in a row than `train.max_skipped`, or whatever the model refuses.
    pub fn step(&mut self, batches: &[Batch]) -> anyhow::Result<Record> {
        let targets = self.total_targets(batches)?;
        self.advance(batches, targets);
        let mut record = self.blank_record(targets);
        if targets == 0 {
            return Ok(self.skip(record, Skip::NoTargets));
        }

        zero_gradients(&self.parameters)?;
        let loss = self.accumulate(batches, targets)?;
        let gradients: Vec<_> = self.parameters.iter().map(|parameter| &parameter.gradient).collect();
        self.collective.sum_gradients(&gradients)?;
        let norm = global_norm(&gradients)?;
        if !(loss.is_finite() && norm.is_finite()) {
            self.bear_non_finite(loss)?;
            return Ok(self.skip(record, Skip::NonFinite));
        }

        let scale = clip_scale(norm, self.run.optimizer().clip);
        self.update(record.lr, scale)?;
        self.skipped_in_a_row = 0;
        record.loss = Some(loss);
        record.grad_norm_preclip = Some(norm);
        record.clipped = scale < 1.0;
        Ok(record)
    }

    fn total_targets(&self, batches: &[Batch]) -> anyhow::Result<u64> {
        let mut targets = [batches.iter().map(target_tokens).sum::<u64>() as f64];
        self.collective.sum(&mut targets)?;
        #[expect(clippy::cast_sign_loss, reason = "a sum of counts")]
        Ok(targets[0] as u64)
    }

    fn advance(&mut self, batches: &[Batch], targets: u64) {
        let read: usize = batches.iter().map(|batch| batch.ids.len()).sum();
        self.counters.step += 1;
        self.counters.tokens_seen += (read * self.collective.world()) as u64;
        self.counters.target_tokens += targets;
    }

    fn blank_record(&self, target_tokens: u64) -> Record {
        let step = self.counters.step;
        let peak = self.run.optimizer().lr;
        Record {
            step,
            lr: learning_rate(self.run.schedule(), peak, self.run.train().steps, step),
            skipped_steps: self.counters.skipped_steps,
            tokens: self.counters.tokens_seen,
            target_tokens,
            ..Record::default()
        }
    }

    /// Adds up the gradient of the step's mean loss, and gives the loss in nats.
    fn accumulate(&self, batches: &[Batch], targets: u64) -> anyhow::Result<f64> {
        let scale = 1.0 / targets as f64;
        let mut sum = [0.0];
        for batch in batches {
            let inputs = Inputs::of(batch)?;
            let output = self.model.train_step_backward(
                &inputs.ids,
                &inputs.targets,
                &inputs.segments,
                scale,
                self.run.train().z_loss,
            )?;
            sum[0] += atpm_core::read_f32(&output.token_losses)?.into_iter().map(f64::from).sum::<f64>();
        }
        self.collective.sum(&mut sum)?;
        Ok(sum[0] * scale)
    }

    fn update(&mut self, lr: f64, grad_scale: f64) -> anyhow::Result<()> {
        self.counters.updates += 1;
        let settings = self.run.optimizer();
        let config = adamw::Config {
            lr,
            beta1: settings.beta1,
            beta2: settings.beta2,
            eps: settings.eps,
            weight_decay: settings.weight_decay,
            grad_scale,
            step: self.counters.updates,
        };
        Ok(adamw::update_all(&config, &members(&self.parameters, &self.m, &self.v))?)
    }

    fn skip(&mut self, mut record: Record, reason: Skip) -> Record {
        self.counters.skipped_steps += 1;
        record.skipped_steps = self.counters.skipped_steps;
        record.skipped = Some(reason);
        record
    }

    /// Counts a step whose loss or gradient is not finite; refuses one too many in a row.
    fn bear_non_finite(&mut self, loss: f64) -> anyhow::Result<()> {
        let step = self.counters.step;
        let culprit = self.first_non_finite_gradient()?.map_or_else(
            || "every gradient is finite".to_string(),
            |name| format!("the first gradient that is not finite is that of `{name}`"),
        );
        self.skipped_in_a_row += 1;
        let borne = self.run.train().max_skipped;
        if self.skipped_in_a_row > borne {
            bail!(
                "step {step}: the loss is {loss} and {culprit}; that is {} steps in a row, more than \
                 train.max_skipped = {borne}. The checkpoints are as they were; a lower optimizer.lr or \
                 optimizer.clip may help",
                self.skipped_in_a_row
            );
        }
        tracing::warn!("step {step} is skipped: the loss is {loss} and {culprit}");
        Ok(())
    }

    fn first_non_finite_gradient(&self) -> anyhow::Result<Option<&str>> {
        for parameter in &self.parameters {
            if !adamw::squared_norm(&parameter.gradient)?.is_finite() {
                return Ok(Some(&parameter.name));
            }
        }
        Ok(None)
    }
}

/// `√Σ g²` over all gradients, in f64 and in a fixed order.
pub(crate) fn global_norm(gradients: &[&Tensor]) -> anyhow::Result<f64> {
    if gradients.is_empty() {
        bail!("the model has no parameters, so there is no gradient norm");
    }
    Ok(adamw::squared_norm_of_all(gradients)?.sqrt())
}

/// Moments before the first update.
pub(crate) fn zero_moments(parameters: &[Parameter]) -> candle_core::Result<Vec<Tensor>> {
    parameters.iter().map(|parameter| parameter.value.zeros_like()).collect()
}

/// Parameters with their moments, for an update of all of them.
pub(crate) fn members<'a>(
    parameters: &'a [Parameter],
    m: &'a [Tensor],
    v: &'a [Tensor],
) -> Vec<adamw::Member<'a>> {
    let member = |((parameter, m), v): ((&'a Parameter, &'a Tensor), &'a Tensor)| {
        let (gradient, decays, rounded) = (&parameter.gradient, parameter.decay, parameter.rounded());
        adamw::Member { parameter: &parameter.value, m, v, gradient, decays, rounded }
    };
    parameters.iter().zip(m).zip(v).map(member).collect()
}

/// The factor that brings a gradient of this norm down to `clip` (0 = no clipping).
pub(crate) fn clip_scale(norm: f64, clip: f64) -> f64 {
    if clip > 0.0 && norm > clip { clip / norm } else { 1.0 }
}
