//! Which device a run uses.
//!
//! This build has CPU kernels only. Asking for CUDA is refused here, in words, rather than
//! answered with a silent CPU run.

use candle_core::Device;

use crate::{Error, Result};

/// The device named by a run's `device` key: `auto` or `cpu` in this build.
///
/// # Errors
/// Any other name, with what this build offers.
pub fn select(name: &str) -> Result<Device> {
    match name {
        "auto" | "cpu" => Ok(Device::Cpu),
        other => Err(Error::Argument {
            op: "device",
            problem: if other.starts_with("cuda") {
                format!("`{other}` asked for, but this build has no CUDA kernels; use `cpu`")
            } else {
                format!("unknown device `{other}`; use `auto` or `cpu`")
            },
        }),
    }
}
