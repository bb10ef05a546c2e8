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
    /// What is too old for this build, a sentence each.
    pub too_old: Vec<String>,
}

/// The lowest compute capability that the kernels are compiled for.
const LOWEST_CAPABILITY: (i32, i32) = (8, 0);

impl Gpu {
    /// Why its capability is not enough, if it is not.
    pub fn too_old(&self) -> Option<String> {
        let ((major, minor), (least, behind)) = (self.capability, LOWEST_CAPABILITY);
        let problem = || {
            format!(
                "{} has compute capability {major}.{minor}; the kernels are for {least}.{behind} and later",
                self.name
            )
        };
        (self.capability < LOWEST_CAPABILITY).then(problem)
    }
}

/// `CUDA 13.0` for 13000.
pub(super) fn version(number: i32) -> String {
    format!("CUDA {}.{}", number / 1000, number % 1000 / 10)
}

/// Why a driver is not enough for a program of another CUDA, if it is not; both numbers as 13000 for 13.0. Within one major
/// version any driver runs any program.
pub fn driver_too_old(driver: i32, build: i32) -> Option<String> {
    let problem = || {
        let (driver, build) = (version(driver), version(build));
        format!("the driver runs programs of {driver}, and this one is of {build}: install a newer driver")
    };
    (driver / 1000 < build / 1000).then(problem)
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
        let parts: Vec<String> =
            versions.chain(gpus).chain(none).chain(self.too_old.iter().cloned()).collect();
        write!(f, "{}", parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_old_is_said() {
        let gpu =
            |capability| Gpu { ordinal: 0, name: "T4".into(), capability, free_bytes: None, total_bytes: 1 };
        assert_eq!(
            gpu((7, 5)).too_old().unwrap(),
            "T4 has compute capability 7.5; the kernels are for 8.0 and later"
        );
        for capability in [(8, 0), (8, 9), (9, 0), (12, 0)] {
            assert_eq!(gpu(capability).too_old(), None);
        }
        assert_eq!(
            driver_too_old(12080, 13000).unwrap(),
            "the driver runs programs of CUDA 12.8, and this one is of CUDA 13.0: install a newer driver"
        );
        assert_eq!([driver_too_old(13000, 13010), driver_too_old(13020, 13000)], [None, None]);
        let report = Report {
            kernels: Kernels::Gpu,
            versions: vec![("driver", "CUDA 12.8".into())],
            gpus: vec![gpu((9, 0))],
            problem: None,
            too_old: driver_too_old(12080, 13000).into_iter().collect(),
        };
        let text = report.to_string();
        assert!(text.starts_with("driver CUDA 12.8, cuda:0 T4 (sm_90), the driver runs"), "{text}");
    }
}
