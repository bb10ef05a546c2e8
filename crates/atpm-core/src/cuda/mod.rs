//! The way to a GPU: buffers in its memory, launches of the kernels in `kernels/`, matrix products.
//!
//! An op's `cuda.rs` is written once, against [`Stream`] and [`Buffer`]. Behind them stands one of three
//! backends of equal signatures, and nothing outside this folder asks which:
//!
//! | backend | Cargo feature | memory | kernels |
//! |---|---|---|---|
//! | `disabled` | none | there is no stream | none; asking for CUDA is an error that says what to build |
//! | `enabled` | `cuda` | the device's, from candle's allocator | compiled by nvcc in the build script |
//! | `emulated` | `emulated-cuda` | the host's | the same files, compiled by g++; tests only |
//!
//! Everything goes through the device's one stream, in order: a buffer may be dropped as soon as the
//! launches that use it are given.

#[cfg_attr(feature = "cuda", path = "enabled.rs")]
#[cfg_attr(all(feature = "emulated-cuda", not(feature = "cuda")), path = "emulated.rs")]
#[cfg_attr(not(any(feature = "cuda", feature = "emulated-cuda")), path = "disabled.rs")]
mod backend;
mod cast;
pub(crate) mod elements;
mod launch;
pub mod limits;
mod product;
mod report;
pub(crate) mod rows;

#[cfg(all(feature = "emulated-cuda", not(feature = "cuda")))]
pub use backend::emulate;
pub(crate) use backend::{Buffer, Stream, stream_of};
pub use backend::{KERNELS, block_bytes, count, device, free_bytes, host, is_gpu, report};
pub(crate) use launch::{
    Activation, Arg, Grid, Int, Kernel, Long, Twins, args, refused_dtype, twins, with_activation,
};
pub(crate) use product::{Operand, Product, Target};
pub use report::{Gpu, Kernels, Report, driver_too_old};
