//! What a run will need, told before anything is allocated.

use std::fmt::Write as _;

use atpm_model::{Flops, MemoryEstimate, ParameterSpec, render_table, specs};
use serde::Serialize;

use crate::run::config::Run;
use crate::run::exit::user;

/// Sizes of a run with a resolved vocabulary.
#[derive(Debug, Clone)]
pub struct Estimate {
    specs: Vec<ParameterSpec>,
    flops: Flops,
    memory: MemoryEstimate,
    /// Bytes that the machine can give now, where it tells.
    available: Option<u64>,
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
    /// Bytes that the machine can give; null where it does not tell.
    pub available_bytes: Option<u64>,
}

impl Estimate {
    /// Counts; allocates nothing.
    ///
    /// # Errors
    /// A model that cannot be built.
    pub fn of(run: &Run) -> anyhow::Result<Self> {
        let train = run.train();
        Ok(Self {
            specs: specs(run.model())?,
            flops: Flops::of(run.model()),
            memory: MemoryEstimate::of(run.model(), train.rows, train.tokens)?,
            available: available_bytes(),
            tokens_per_step: train.tokens_per_step(),
        })
    }

    /// FLOPs a token of forward and backward.
    pub fn training_flop_per_token(&self) -> f64 {
        self.flops.training()
    }

    /// Refuses a run that cannot fit into memory.
    ///
    /// # Errors
    /// Needed and available bytes, and what to change.
    pub fn check_memory(&self) -> anyhow::Result<()> {
        let needed = self.memory.total() as u64;
        match self.available {
            Some(available) if needed > available => Err(user(format!(
                "training needs about {}, and this machine has {} left; lower train.rows (and raise \
                 train.accumulate), lower train.tokens, or set model.activation_checkpointing = true",
                gib(needed),
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

/// Memory that can be had without swapping, from Linux's account of it.
fn available_bytes() -> Option<u64> {
    parse_available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn gib(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_account() {
        assert_eq!(parse_available("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(parse_available("MemTotal: 9 kB\n"), None);
    }

    #[test]
    fn a_run_that_cannot_fit_is_refused_with_both_numbers() {
        let run = Run::from_toml("[data]\ntrain = \"x\"\n[model]\nvocab = 64\nlayers = 1\n", "t").unwrap();
        let estimate = Estimate { available: Some(1 << 30), ..Estimate::of(&run).unwrap() };
        estimate.check_memory().unwrap();
        let estimate = Estimate { available: Some(1 << 20), ..estimate };
        let message = estimate.check_memory().unwrap_err().to_string();
        assert!(message.contains("GiB") && message.contains("0.0 GiB left"), "{message}");
    }
}
