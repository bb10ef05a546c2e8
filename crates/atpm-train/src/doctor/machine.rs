//! What the machine has: processor, memory, GPUs.

use std::fmt::Write as _;

use atpm_core::cuda::{Gpu, Kernels, Report};
use atpm_core::{Precision, vector};
use serde::Serialize;

use crate::run::memory::{gib, memory_bytes};

/// Everything but the ops.
#[derive(Debug, Serialize)]
pub(super) struct Machine {
    version: &'static str,
    processor: Option<String>,
    /// Logical ones that this process may use.
    processors: usize,
    /// Threads that ops use.
    threads: usize,
    /// Vector instructions that ops use.
    instructions: &'static str,
    /// Whether `train.dtype = "bf16"` multiplies in bf16 on this processor.
    bf16_products: bool,
    memory_bytes: Option<u64>,
    available_bytes: Option<u64>,
    /// `none`, `gpu` or `emulated`.
    kernels: &'static str,
    /// Driver and libraries.
    versions: Vec<Version>,
    gpus: Vec<GpuLine>,
    /// Why the driver shows no GPU.
    driver_problem: Option<String>,
    /// Driver and GPUs that this build does not run on, a sentence each.
    too_old: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Version {
    of: &'static str,
    version: String,
}

#[derive(Debug, Serialize)]
struct GpuLine {
    device: String,
    name: String,
    compute_capability: String,
    free_bytes: Option<u64>,
    total_bytes: u64,
}

impl Machine {
    /// Looks.
    pub(super) fn look() -> Self {
        let Report { kernels, versions, gpus, problem, too_old } = atpm_core::cuda::report();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            processor: processor(),
            processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            threads: rayon::current_num_threads(),
            instructions: vector::instructions(),
            bf16_products: Precision::Bf16.supported(),
            memory_bytes: memory_bytes("MemTotal:"),
            available_bytes: memory_bytes("MemAvailable:"),
            kernels: match kernels {
                Kernels::None => "none",
                Kernels::Gpu => "gpu",
                Kernels::Emulated => "emulated",
            },
            versions: versions.into_iter().map(|(of, version)| Version { of, version }).collect(),
            gpus: gpus.into_iter().map(line).collect(),
            driver_problem: problem,
            too_old,
        }
    }

    /// Whether a GPU can be tried.
    pub(super) fn has_gpu(&self) -> bool {
        !self.gpus.is_empty()
    }

    /// Whether `cuda` is an emulated device.
    pub(super) fn is_emulated(&self) -> bool {
        self.kernels == "emulated"
    }

    /// As aligned plain text.
    pub(super) fn render(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:22}{value}");
        };
        line("atpm-train", self.version.into());
        let processor = self.processor.as_deref().unwrap_or("of unknown name");
        line("processor", format!("{processor}, {} logical", self.processors));
        let products = if self.bf16_products { "with" } else { "without" };
        line("instructions", format!("{}, {products} bf16 products", self.instructions));
        line("threads", self.threads.to_string());
        let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "an unknown part".into(), gib);
        line("memory", format!("{} of {} free", bytes(self.available_bytes), bytes(self.memory_bytes)));
        line("CUDA kernels", self.kernels_in_words().into());
        for Version { of, version } in &self.versions {
            line(of, version.clone());
        }
        for GpuLine { device, name, compute_capability, free_bytes, total_bytes } in &self.gpus {
            let free = bytes(*free_bytes);
            line(
                device,
                format!(
                    "{name}, compute capability {compute_capability}, {free} of {} free",
                    gib(*total_bytes)
                ),
            );
        }
        if let Some(problem) = &self.driver_problem {
            line("no GPU", problem.clone());
        }
        for problem in &self.too_old {
            line("too old", problem.clone());
        }
        text
    }

    fn kernels_in_words(&self) -> &'static str {
        match self.kernels {
            "gpu" => "in this build",
            "emulated" => "emulated on the CPU in this build, for tests: slow, and no GPU is looked for",
            _ => "not in this build; `make build-cuda` makes one that has them (docs/cuda.md)",
        }
    }
}

fn line(gpu: Gpu) -> GpuLine {
    let Gpu { ordinal, name, capability: (major, minor), free_bytes, total_bytes } = gpu;
    let compute_capability = format!("{major}.{minor}");
    GpuLine { device: format!("cuda:{ordinal}"), name, compute_capability, free_bytes, total_bytes }
}

/// The processor's name, where Linux tells it.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
