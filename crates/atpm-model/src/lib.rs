//! The decoder: embedding, blocks of ATPM mixer and SwiGLU, head with loss.
//!
//! The backward is written, not taped: a model is a chain of [`Layer`]s. Shapes: `B` rows, `T`
//! tokens, `d` model width.
//!
//! Rooms, in reading order:
//! - [`config`]: the `[model]` section
//! - [`layer`]: the seam, and activation checkpointing
//! - [`block`], [`mixer`], [`mlp`]: one block
//! - [`decoder`]: the whole, trained and decoded
//! - [`parameter`], [`names`], [`init`]: trainable tensors, their decay groups and initial values
//! - [`decode`], [`telemetry`], [`trace`]: what a model remembers, how that memory fares, and what moved it
//! - [`baselines`]: what ATPM is compared with, and sizes that make it fair
//! - [`flops`], [`memory`]: what a step costs, before it runs
//! - [`autograd`]: a layer from plain candle operations, for research
//! - [`ntm`]: a Neural Turing machine

pub mod autograd;
pub mod baselines;
pub mod block;
pub mod config;
pub mod decode;
pub mod decoder;
mod error;
pub mod flops;
pub mod init;
pub mod layer;
pub mod memory;
pub mod mixer;
pub mod mlp;
pub mod names;
pub mod ntm;
pub mod parameter;
pub mod telemetry;
pub mod trace;

pub use autograd::Autograd;
pub use config::{ModelConfig, ModelKind};
pub use decode::DecodeState;
pub use decoder::{ATPM, Decoder, MixerKind, StepOutput, specs, specs_with};
pub use error::{Error, Result};
pub use flops::Flops;
pub use layer::{Layer, Saved};
pub use memory::MemoryEstimate;
pub use parameter::{Parameter, ParameterSpec, Parameters, render_table, zero_gradients};
pub use telemetry::{LayerTelemetry, MemoryHealth};
pub use trace::{MemoryTrace, Quantity};
