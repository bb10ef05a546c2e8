//! Names and numbers of the checkpoint format, all in one place.

use std::path::{Path, PathBuf};

use super::{Error, Result};

/// Raised whenever a reader of the previous version would misread a checkpoint.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// The manifest's word for what the folder is.
pub(crate) const FORMAT_NAME: &str = "atpm-checkpoint";
/// The folder of a run that holds its checkpoints.
pub(crate) const CHECKPOINTS: &str = "checkpoints";
/// Parameters, by their names.
pub(crate) const MODEL: &str = "model.safetensors";
/// Moments, by [`FIRST_MOMENT`] or [`SECOND_MOMENT`] and the parameter's name.
pub(crate) const OPTIMIZER: &str = "optimizer.safetensors";
/// Prefix of a first moment's name in [`OPTIMIZER`].
pub(crate) const FIRST_MOMENT: &str = "m.";
/// Prefix of a second moment's name in [`OPTIMIZER`].
pub(crate) const SECOND_MOMENT: &str = "v.";
/// Counters, data position and configuration: [`super::TrainState`] as JSON.
pub(crate) const STATE: &str = "state.json";
/// Sizes and checksums of all other files; written last, removed first.
pub(crate) const MANIFEST: &str = "manifest.json";

/// The note that readers of PyTorch's ecosystem expect in a header.
pub(crate) const TENSOR_NOTE: (&str, &str) = ("format", "pt");

const PREFIX: &str = "step-";
const UNFINISHED: &str = ".tmp-";
const REPLACED: &str = ".old-";

/// The folder of a run that holds its checkpoints.
pub(crate) fn checkpoints(run_dir: &Path) -> PathBuf {
    run_dir.join(CHECKPOINTS)
}

/// The checkpoint's folder of a step.
pub(crate) fn folder(run_dir: &Path, step: u64) -> PathBuf {
    checkpoints(run_dir).join(format!("{PREFIX}{step:08}"))
}

/// Where the checkpoint of a step is written before it is renamed into place.
pub(crate) fn unfinished(run_dir: &Path, step: u64) -> PathBuf {
    checkpoints(run_dir).join(format!("{UNFINISHED}{PREFIX}{step:08}"))
}

/// Where an older complete checkpoint of the same step waits while its successor takes the name.
pub(crate) fn replaced(run_dir: &Path, step: u64) -> PathBuf {
    checkpoints(run_dir).join(format!("{REPLACED}{PREFIX}{step:08}"))
}

/// What a name in the checkpoints folder says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Entry {
    /// The checkpoint of a step.
    Step(u64),
    /// A complete checkpoint that was being replaced by another one of the same step.
    Replaced(u64),
    /// One that was never finished.
    Unfinished(u64),
}

impl Entry {
    /// Reads a folder name; `None` is somebody else's folder.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let step = |name: &str| name.strip_prefix(PREFIX)?.parse().ok();
        if let Some(rest) = name.strip_prefix(UNFINISHED) {
            return step(rest).map(Self::Unfinished);
        }
        if let Some(rest) = name.strip_prefix(REPLACED) {
            return step(rest).map(Self::Replaced);
        }
        step(name).map(Self::Step)
    }
}

/// The entries of a run's checkpoints folder that are ours, in a fixed order; none if there is no folder.
pub(crate) fn entries(run_dir: &Path) -> Result<Vec<(Entry, PathBuf)>> {
    let parent = checkpoints(run_dir);
    let listing = match std::fs::read_dir(&parent) {
        Ok(listing) => listing,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("list", &parent)(error)),
    };
    let mut entries = Vec::new();
    for entry in listing {
        let entry = entry.map_err(Error::io("list", &parent))?;
        if let Some(known) = entry.file_name().to_str().and_then(Entry::parse) {
            entries.push((known, entry.path()));
        }
    }
    entries.sort();
    Ok(entries)
}
