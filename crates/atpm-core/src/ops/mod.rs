//! The ops of the model, one folder each, all of one form.
//!
//! `mod.rs` has the equations, the shapes and the public functions; `reference.rs` the same value in
//! plain candle operations, the definition of correct; `cpu.rs` the kernel over slices; `tests.rs`
//! holds kernel, reference and finite differences together. Forward functions return new tensors;
//! backward functions return input gradients and **add** parameter gradients into the buffers they
//! are given.

pub mod attention;
pub mod cross_entropy;
pub mod embedding;
pub mod gated_norm;
pub mod gates;
pub mod linear;
pub mod lstm;
pub mod mixer;
pub mod rms_norm;
pub mod short_conv;
pub mod swiglu;
