//! Which device a run uses.
//!
//! Asking for CUDA where there is none is refused here, in words, rather than answered with a silent CPU run.

use candle_core::Device;

use crate::{Error, Result, cuda};

/// The device named by a run's `device` key: `auto`, `cpu`, `cuda` (the first GPU) or `cuda:N`. `auto` is the CPU in
/// every build, until the CUDA kernels have been proved on a GPU.
///
/// # Errors
/// Another name; CUDA in a build without it, without a driver or without that GPU.
pub fn select(name: &str) -> Result<Device> {
    let cuda_ordinal = match name {
        "auto" | "cpu" => return Ok(cuda::host()),
        "cuda" => Some(0),
        other => other.strip_prefix("cuda:").and_then(|number| number.parse().ok()),
    };
    cuda_ordinal.map_or_else(
        || {
            let problem = format!("unknown device `{name}`; use `auto`, `cpu`, `cuda` or `cuda:N`");
            Err(Error::Argument { op: "device", problem })
        },
        cuda::device,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_need_no_gpu() -> Result<()> {
        assert!(select("auto")?.is_cpu() && select("cpu")?.is_cpu());
        for name in ["gpu", "cuda:", "cuda:x", "cuda0", "Cuda"] {
            let message = select(name).unwrap_err().to_string();
            assert_eq!(
                message,
                format!("device: unknown device `{name}`; use `auto`, `cpu`, `cuda` or `cuda:N`")
            );
        }
        Ok(())
    }
}
