//! What a machine has: driver, libraries, GPUs.

use std::fmt;

/// Where a build's kernels run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernels {
    /// Nowhere: there are none (the default build).
    None,
    /// On a GPU (feature `cuda`).
    Gpu,
    /// On the CPU, for tests (feature `emulated-cuda`).
    Emulated,
}

/// One GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Its number, as in `cuda:N`.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Its compute capability, such as (9, 0).
    pub capability: (i32, i32),
    /// Bytes that no one has taken; `None` where the driver does not tell.
    pub free_bytes: Option<u64>,
    /// Bytes of memory.
    pub total_bytes: u64,
}

/// Everything that decides whether a GPU can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Where this build's kernels run.
    pub kernels: Kernels,
    /// Driver and libraries, by name, with their versions.
    pub versions: Vec<(&'static str, String)>,
    /// The GPUs that the driver shows.
    pub gpus: Vec<Gpu>,
    /// Why there are none, if that is an error.
    pub problem: Option<String>,
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ordinal, name, capability: (major, minor), .. } = self;
        write!(f, "cuda:{ordinal} {name} (sm_{major}{minor})")
    }
}

/// One line, for the end of an error: versions, then GPUs.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions = self.versions.iter().map(|(name, version)| format!("{name} {version}"));
        let gpus = self.gpus.iter().map(ToString::to_string);
        let none = self.gpus.is_empty().then(|| "no device".to_owned());
        let parts: Vec<String> = versions.chain(gpus).chain(none).collect();
        write!(f, "{}", parts.join(", "))
    }
}
