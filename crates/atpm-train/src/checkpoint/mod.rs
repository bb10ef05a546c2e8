//! Checkpoints: everything a run needs to go on bit for bit, in folders that are either complete or passed over.
//!
//! `layout` names the files; [`save()`] writes a folder beside its final place and renames it into it;
//! [`find_latest`] and [`load()`] accept only folders whose every file has the size and checksum of the
//! manifest; [`prune()`] removes old ones. The format is described in docs/checkpoint-format.md.

pub(crate) mod digest;
mod error;
mod layout;
mod load;
mod manifest;
mod prune;
mod save;
pub(crate) mod tensor_file;
pub mod verify;

use std::path::PathBuf;

use atpm_model::Parameter;
use candle_core::Tensor;
use serde::{Deserialize, Serialize};

pub use error::{Error, Result};
pub use load::{Loaded, find_latest, load};
pub use prune::prune;
pub use save::save;

/// What a checkpoint knows besides its tensors.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainState {
    /// Steps finished, skipped ones included: the next step is this one (counted from 0).
    pub step: u64,
    /// Parameter updates made (Adam's bias correction counts these).
    pub updates: u64,
    /// Input tokens read so far.
    pub tokens_seen: u64,
    /// Target tokens that counted in a loss so far.
    pub target_tokens: u64,
    /// Steps that changed nothing: a loss or gradient was not finite, or there was no target.
    pub skipped_steps: u64,
    /// The data source's position, right after the last batch that was used.
    pub data: serde_json::Value,
    /// The resolved run configuration, as TOML.
    pub config: String,
    /// The tokenizer: `gpt2`, `bytes`, or the name of its file in the checkpoint (`tokenizer.json`).
    pub tokenizer: String,
    /// Fingerprint of the tokenizer that the data went through.
    pub tokenizer_fingerprint: String,
    /// The resolved model configuration.
    pub model: serde_json::Value,
}

/// What [`save()`] writes. `m` and `v` are in the order of `parameters` and have their shapes; all f32.
#[derive(Debug, Clone, Copy)]
pub struct Contents<'a> {
    /// Counters, data position, configuration.
    pub state: &'a TrainState,
    /// Names and values; the gradients are not saved.
    pub parameters: &'a [Parameter],
    /// First moments.
    pub m: &'a [Tensor],
    /// Second moments.
    pub v: &'a [Tensor],
    /// Small files that travel along under their names, such as `tokenizer.json`.
    pub files: &'a [(String, Vec<u8>)],
}

/// The newest complete checkpoint of a run, and the newer folders that were not taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latest {
    /// The newest complete checkpoint, if there is one.
    pub path: Option<PathBuf>,
    /// Newer folders that are not complete, each with the reason.
    pub passed_over: Vec<(PathBuf, String)>,
}

#[cfg(test)]
mod tests;
