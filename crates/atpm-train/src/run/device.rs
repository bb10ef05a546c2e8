//! The device of a run: opened, or refused in words and with the right exit code.

use anyhow::anyhow;
use atpm_core::cuda::limits::Demand;
use atpm_core::cuda::{self, Kernels};
use atpm_model::ModelConfig;
use candle_core::Device;

use super::exit::{self, OrUser, user};

/// Opens the device of this name.
///
/// # Errors
/// The user's mistake: another name than there is, or CUDA in a build without it. A failure: a driver, library or
/// GPU that refuses.
pub fn open(name: &str) -> anyhow::Result<Device> {
    let device = match atpm_core::device::select(name) {
        Err(error @ atpm_core::Error::Cuda { .. }) => Err(error.into()),
        other => other.or_user(),
    }?;
    if cuda::is_gpu(&device) && cuda::KERNELS == Kernels::Emulated {
        tracing::warn!("`{name}` is emulated on the CPU in this build: for tests, and slow");
    }
    if name == "auto" && cuda::count() > 0 {
        tracing::warn!(
            "device = \"auto\" is the CPU, and this machine has a GPU: set device = \"cuda:0\" to use it"
        );
    }
    Ok(device)
}

/// Refuses a model that the device has no kernels for, or too little shared memory for a block of them.
///
/// # Errors
/// The key, its value, and what would be right; a driver that does not tell.
pub fn expect_sizes(device: &Device, model: &ModelConfig, demand: Demand) -> anyhow::Result<()> {
    match cuda::block_bytes(device)? {
        Some(bytes) => model.validate_for_gpu(demand, bytes).map_err(user),
        None => Ok(()),
    }
}

/// The error with driver, libraries and GPUs of this machine behind it, if it came from one of them.
pub fn with_versions(error: anyhow::Error) -> anyhow::Error {
    if cuda::KERNELS == Kernels::Gpu && error.chain().any(is_of_gpu) {
        anyhow!("{} [{}]", exit::message(&error), cuda::report())
    } else {
        error
    }
}

fn is_of_gpu(error: &(dyn std::error::Error + 'static)) -> bool {
    let in_core = |error: &atpm_core::Error| {
        matches!(error, atpm_core::Error::Cuda { .. } | atpm_core::Error::Candle(_))
    };
    match error.downcast_ref() {
        Some(atpm_model::Error::Op(error)) => in_core(error),
        Some(error) => matches!(error, atpm_model::Error::Candle(_)),
        None => error.downcast_ref().is_some_and(in_core) || error.is::<candle_core::Error>(),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_gpu_that_fails_is_no_mistake_and_is_told_from_one() {
        let failure = || atpm_core::Error::Cuda { action: "launching x".into(), problem: "lost".into() };
        let in_step = Err::<(), _>(atpm_model::Error::Op(failure())).context("step 3").unwrap_err();
        for error in [failure().into(), in_step] {
            assert!(error.chain().any(is_of_gpu), "{error:#}");
            assert_eq!(exit::code(&error), 1);
        }
        let mistake = open("gpu").unwrap_err();
        assert!(!mistake.chain().any(is_of_gpu), "{mistake:#}");
        assert_eq!(exit::code(&mistake), 2);
    }
}
