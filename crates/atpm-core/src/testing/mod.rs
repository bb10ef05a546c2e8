//! What every op's tests share: tolerances by dtype, comparison, gradients two ways, seeded inputs.
//!
//! Compiled always, since the tests of other crates use it; nothing in a training run calls it. The
//! functions named `assert_…` panic like the standard macros; the rest return errors.

mod compare;
mod golden;
mod gradients;
mod inputs;

pub use compare::{
    assert_close, assert_same_bits, assert_same_on_any_thread_count, gradient_tolerance, relative_rms_error,
    value_tolerance,
};
pub use golden::{GOLDEN_FILES, Golden, golden, golden_parts};
pub use gradients::{assert_matches_finite_differences, autograd};
pub use inputs::{Random, layouts};
