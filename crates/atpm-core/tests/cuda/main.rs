//! Every op's launches against the same op on the CPU, and the mixer's against the golden files: with feature
//! `emulated-cuda` on emulated kernels, with feature `cuda` on the first GPU.
//!
//! Argument order, grids, shared memory, scratch and the order of launches are those of a GPU build in both cases.
//! `make test-launches` builds and runs it on emulated kernels, `scripts/gpu_check.sh` on a GPU.
#![cfg(any(feature = "cuda", feature = "emulated-cuda"))]

mod golden;
mod large;
mod mixer;
mod products;
mod rounded;
mod rows;
mod tables;
mod time;

use std::cell::RefCell;

use atpm_core::Result;
use atpm_core::testing::{assert_close, assert_same_bits, gradient_tolerance, value_tolerance};
use candle_core::{DType, Device, Tensor};

/// An output and its name; gradients begin with `d` and have a gradient's tolerance.
type Named = (&'static str, Tensor);

thread_local! {
    /// Where [`put`] puts tensors: on the GPU inside [`on_kernels`] of a GPU build.
    static PLACE: RefCell<Device> = const { RefCell::new(Device::Cpu) };
}

/// The same tensors where the running op wants them.
fn put<const N: usize>(tensors: [&Tensor; N]) -> Result<[Tensor; N]> {
    let place = PLACE.with_borrow(Clone::clone);
    let put =
        tensors.iter().map(|tensor| tensor.to_device(&place)).collect::<candle_core::Result<Vec<_>>>()?;
    Ok(put.try_into().unwrap_or_else(|_| unreachable!("as many as were given")))
}

/// The same tensor there, if there is one.
fn put_optional(tensor: Option<&Tensor>) -> Result<Option<Tensor>> {
    Ok(tensor.map(|tensor| put([tensor])).transpose()?.map(|[tensor]| tensor))
}

/// Runs `op` on kernels. Returns its result and, from emulation, which kernels it launched in their order.
#[cfg(not(feature = "cuda"))]
fn on_kernels<R>(op: impl FnOnce() -> R) -> (R, Option<Vec<&'static str>>) {
    let (result, launched) = atpm_core::cuda::emulate(op);
    (result, Some(launched))
}

#[cfg(feature = "cuda")]
fn on_kernels<R>(op: impl FnOnce() -> R) -> (R, Option<Vec<&'static str>>) {
    let device = atpm_core::cuda::device(0).unwrap_or_else(|error| panic!("these tests need a GPU: {error}"));
    let before = PLACE.replace(device);
    let result = op();
    PLACE.replace(before);
    (result, None)
}

/// Whether there are tensors without elements: for one on a GPU candle asks the driver for no bytes, which is refused.
fn has_empty_tensors() -> bool {
    let ((), launched) = on_kernels(|| ());
    launched.is_some()
}

/// Runs `op` on the CPU and on kernels, which must be these in this order, and compares what it returns. Inputs are
/// [`put`] in `op`, and buffers that it adds to are made there. A second run must give the same bits.
#[track_caller]
fn assert_same_as_cpu(case: &str, kernels: &[&str], op: impl Fn() -> Result<Vec<Named>>) {
    let want = op().unwrap_or_else(|error| panic!("{case} on the CPU: {error}"));
    let run = || {
        let (got, launched) = on_kernels(&op);
        if let Some(launched) = launched {
            assert_eq!(launched, kernels, "{case}: kernels launched");
        }
        let got = got.unwrap_or_else(|error| panic!("{case} on kernels: {error}"));
        got.into_iter().map(|(name, got)| {
            (name, got.to_device(&Device::Cpu).unwrap_or_else(|error| panic!("{case}: {name}: {error}")))
        })
    };
    for (((name, got), (_, again)), (_, want)) in run().zip(run()).zip(&want) {
        let tolerance = if name.starts_with('d') { gradient_tolerance } else { value_tolerance };
        assert_close(&format!("{case}: {name}"), &got, want, tolerance(DType::F32));
        assert_same_bits(&format!("{case}: {name}, twice"), &got, &again);
    }
}

/// Asserts that the op refuses on kernels, in words that contain these.
#[track_caller]
fn assert_refused(words: &str, op: impl FnOnce() -> Result<Tensor>) {
    let (outcome, launched) = on_kernels(op);
    let message = outcome.map_or_else(|error| error.to_string(), |got| format!("accepted, with {got:?}"));
    assert!(message.contains(words), "{message}");
    let launched = launched.unwrap_or_default();
    assert!(launched.is_empty(), "nothing is launched before a refusal, but {launched:?}");
}
