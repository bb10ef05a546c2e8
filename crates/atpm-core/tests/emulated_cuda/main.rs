//! Every op's launches, on emulated kernels, against the same op on the CPU.
//!
//! What runs here is the code that a GPU build runs: argument order, grids, shared memory, scratch and the order
//! of launches. `make test-launches` builds and runs it.

mod mixer;
mod products;
mod rounded;
mod rows;
mod tables;
mod time;

use atpm_core::Result;
use atpm_core::cuda::emulate;
use atpm_core::testing::{assert_close, gradient_tolerance, value_tolerance};
use candle_core::{DType, Tensor};

/// An output and its name; gradients begin with `d` and have a gradient's tolerance.
type Named = (&'static str, Tensor);

/// Runs `op` on the CPU and on emulated kernels, which must be these in this order, and compares what it returns.
/// Buffers that the op adds to are made in `op`.
#[track_caller]
fn assert_same_as_cpu(case: &str, kernels: &[&str], op: impl Fn() -> Result<Vec<Named>>) {
    let want = op().unwrap_or_else(|error| panic!("{case} on the CPU: {error}"));
    let (got, launched) = emulate(&op);
    let got = got.unwrap_or_else(|error| panic!("{case} emulated: {error}"));
    assert_eq!(launched, kernels, "{case}: kernels launched");
    for ((name, got), (_, want)) in got.iter().zip(&want) {
        let tolerance = if name.starts_with('d') { gradient_tolerance } else { value_tolerance };
        assert_close(&format!("{case}: {name}"), got, want, tolerance(DType::F32));
    }
}

/// Asserts that the op refuses on emulated kernels, in words that contain these.
#[track_caller]
fn assert_refused(words: &str, op: impl FnOnce() -> Result<Tensor>) {
    let (outcome, launched) = emulate(op);
    let message = outcome.map_or_else(|error| error.to_string(), |got| format!("accepted, with {got:?}"));
    assert!(message.contains(words), "{message}");
    assert!(launched.is_empty(), "nothing is launched before a refusal, but {launched:?}");
}
