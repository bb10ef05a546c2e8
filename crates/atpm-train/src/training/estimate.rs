//! What a run will need, told before anything is allocated.

use std::fmt::Write as _;

use atpm_core::cuda;
use atpm_core::cuda::limits::Demand;
use atpm_model::{Flops, MemoryEstimate, ParameterSpec, render_table, specs};
use candle_core::Device;
use serde::Serialize;

use crate::run::config::Run;
use crate::run::device;
use crate::run::exit::user;
use crate::run::memory::{gib, memory_bytes};

/// Sizes of a run with a resolved vocabulary.
#[derive(Debug, Clone)]
pub struct Estimate {
    specs: Vec<ParameterSpec>,
    flops: Flops,
    memory: MemoryEstimate,
    /// Bytes that the machine or the GPU can give now, where it tells.
    available: Option<u64>,
    /// Whose memory it is, in words.
    place: &'static str,
    tokens_per_step: u64,
}

/// The estimate in numbers, for `--dry-run --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EstimateReport {
    /// Trainable numbers.
    pub parameters: usize,
    /// Those with weight decay.
    pub decayed_parameters: usize,
    /// FLOPs a token of forward and backward.
    pub training_flop_per_token: f64,
    /// Input tokens of a step.
    pub tokens_per_step: u64,
    /// Bytes that training needs.
    pub memory_bytes: usize,
    /// Bytes that the machine or the GPU can give; null where it does not tell.
    pub available_bytes: Option<u64>,
}

impl Estimate {
    /// Counts; allocates nothing.
    ///
    /// # Errors
    /// A model that cannot be built, or a driver that does not tell its free memory.
    pub fn of(run: &Run, device: &Device) -> anyhow::Result<Self> {
        let (train, model, on_gpu) = (run.train(), run.model(), cuda::is_gpu(device));
        let (rows, tokens) = (train.rows, train.tokens);
        let memory = if on_gpu {
            MemoryEstimate::on_gpu(model, rows, tokens, train.precision())?
        } else {
            MemoryEstimate::of(model, rows, tokens)?
        };
        Ok(Self {
            specs: specs(model)?,
            flops: Flops::of_documents(model, tokens),
            memory,
            // An emulated device has the machine's.
            available: cuda::free_bytes(device)?.or_else(|| memory_bytes("MemAvailable:")),
            place: if on_gpu { "the GPU" } else { "this machine" },
            tokens_per_step: train.tokens_per_step(),
        })
    }

    /// [`Self::of`] a run that the device can do.
    ///
    /// # Errors
    /// Sizes that it has no kernels for, too little memory; each with the numbers.
    pub fn checked(run: &Run, device: &Device) -> anyhow::Result<Self> {
        let demand = Demand { precision: run.train().precision(), backward: true };
        device::expect_sizes(device, run.model(), demand)?;
        let estimate = Self::of(run, device)?;
        estimate.check_memory()?;
        Ok(estimate)
    }

    /// FLOPs a token of forward and backward.
    pub fn training_flop_per_token(&self) -> f64 {
        self.flops.training()
    }

    /// Bytes of a GPU's memory that were taken since this was made, by whomever; `None` on the CPU. What the driver keeps for
    /// the next allocation counts as taken, so it is the most that there ever was.
    ///
    /// # Errors
    /// A driver that does not tell.
    pub fn taken(&self, device: &Device) -> anyhow::Result<Option<u64>> {
        let free = cuda::free_bytes(device)?;
        Ok(free.zip(self.available).map(|(free, before)| before.saturating_sub(free)))
    }

    /// Refuses a run that cannot fit into memory.
    ///
    /// # Errors
    /// Needed and available bytes, and what to change.
    pub fn check_memory(&self) -> anyhow::Result<()> {
        let needed = self.memory.total() as u64;
        match self.available {
            Some(available) if needed > available => Err(user(format!(
                "training needs about {}, and {} has {} left; lower train.rows (and raise \
                 train.accumulate), lower train.tokens, or set model.activation_checkpointing = true",
                gib(needed),
                self.place,
                gib(available)
            ))),
            _ => Ok(()),
        }
    }

    /// Parameter table with decay groups, FLOPs by part, memory by use.
    pub fn render(&self) -> String {
        let mut text = render_table(&self.specs);
        let available = self.available.map_or("unknown".into(), gib);
        let _ = write!(
            text,
            "\n{}\n{}available   {available:>16}\n\n{} tokens a step",
            self.flops.render(),
            self.memory.render(),
            self.tokens_per_step
        );
        text
    }

    /// The numbers.
    pub fn report(&self) -> EstimateReport {
        let elements = |wanted: fn(&ParameterSpec) -> bool| {
            self.specs.iter().filter(|spec| wanted(spec)).map(ParameterSpec::elements).sum()
        };
        EstimateReport {
            parameters: elements(|_| true),
            decayed_parameters: elements(|spec| spec.decay),
            training_flop_per_token: self.flops.training(),
            tokens_per_step: self.tokens_per_step,
            memory_bytes: self.memory.total(),
            available_bytes: self.available,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_cannot_fit_is_refused_with_both_numbers() {
        let run = Run::from_toml("[data]\ntrain = \"x\"\n[model]\nvocab = 64\nlayers = 1\n", "t").unwrap();
        let estimate = Estimate { available: Some(1 << 30), ..Estimate::of(&run, &Device::Cpu).unwrap() };
        estimate.check_memory().unwrap();
        let estimate = Estimate { available: Some(1 << 20), ..estimate };
        let message = estimate.check_memory().unwrap_err().to_string();
        assert!(message.contains("GiB") && message.contains("0.0 GiB left"), "{message}");
    }
}
