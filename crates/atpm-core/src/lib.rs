//! State mathematics of ATPM (Adaptive Transport–Proximal Memory).
//!
//! Every op has a written forward and a written backward as plain functions over candle tensors.
//! Start at [`ops::rms_norm`] for the form, and at [`ops::mixer`] for what the house is about.
//!
//! Rooms, in reading order:
//! - [`ops`]: one folder an op, `{mod,reference,cpu,cuda,tests}.rs`
//! - [`optim`]: the fused parameter update, in the same form
//! - [`segments`]: where documents begin in a batch of packed rows
//! - [`device`]: which device a run uses, and a clear refusal where there is none
//! - `vector`: matrix products and run-time CPU dispatch
//! - [`cuda`]: the way to a GPU; with `vector` the only rooms with `unsafe`
//! - [`testing`]: tolerances and the finite-difference check shared by every op's tests

pub mod cuda;
pub mod device;
mod error;
pub mod ops;
pub mod optim;
pub mod segments;
pub mod testing;
pub mod vector;

mod blocks;
mod elements;

pub use elements::{accumulate, activation_dtype, add, clear, overwrite_f32, read_f32, rounded};
pub use error::{Error, Result};
pub use segments::Segments;
pub use vector::Precision;
