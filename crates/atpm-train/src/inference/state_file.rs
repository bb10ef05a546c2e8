//! A session's memory as a safetensors file: the model's state by name, and in the header what else is needed to
//! go on as if nothing had happened.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor};
use serde::{Deserialize, Serialize};

use crate::checkpoint::tensor_file::{self, Encoding, TensorFile};
use crate::checkpoint::{Error, Result};

/// The header's note that holds [`Kept`] as JSON.
const NOTE: &str = "atpm_state";

/// What goes with the tensors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Kept {
    /// Fingerprint of the model that the memory belongs to.
    pub(super) model: String,
    /// The last token given, which the model has not read yet.
    pub(super) pending: Option<u32>,
    /// Random draws made.
    pub(super) draws: u64,
    /// Tokens in memory.
    pub(super) tokens_read: u64,
}

/// Writes the file beside its place and renames it.
pub(super) fn write(path: &Path, tensors: &BTreeMap<String, Tensor>, kept: &Kept) -> Result<()> {
    let tensors: Vec<(String, &Tensor)> =
        tensors.iter().map(|(name, tensor)| (name.clone(), tensor)).collect();
    let note = serde_json::to_string(kept).map_err(|error| Error::format(path, error.to_string()))?;
    whole(path, |beside| tensor_file::write(beside, &tensors, Encoding::F32, (NOTE, &note)))
}

/// Lets `write` write a file beside its place and renames it there; nothing stays of one that failed.
pub(super) fn whole<T>(path: &Path, write: impl FnOnce(&Path) -> Result<T>) -> Result<()> {
    let beside = beside(path);
    let outcome =
        write(&beside).and_then(|_| std::fs::rename(&beside, path).map_err(Error::io("rename", &beside)));
    if outcome.is_err()
        && let Err(error) = std::fs::remove_file(&beside)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!("cannot remove {}: {error}", beside.display());
    }
    outcome
}

/// Reads what [`write()`] wrote.
pub(super) fn read(path: &Path) -> Result<(BTreeMap<String, Tensor>, Kept)> {
    let file = TensorFile::open(path)?;
    let note = file
        .note(NOTE)
        .ok_or_else(|| Error::format(path, "it is no saved memory; `--save-state` writes one"))?;
    let kept = serde_json::from_str(note).map_err(|error| Error::format(path, error.to_string()))?;
    let mut tensors = BTreeMap::new();
    for name in file.names() {
        let shape = file.shape(&name).unwrap_or_default();
        let tensor = Tensor::from_vec(file.read_f32(&name)?, shape, &Device::Cpu)
            .map_err(|error| Error::Tensor(error.into()))?;
        tensors.insert(name, tensor);
    }
    Ok((tensors, kept))
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".tmp");
    path.with_file_name(name)
}
