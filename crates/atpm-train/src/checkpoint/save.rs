//! Writing a checkpoint: beside its final place, synced, sealed by the manifest, renamed.

use std::path::{Path, PathBuf};

use super::{Contents, Result};

/// Writes the checkpoint of `contents.state.step` under the run folder and returns its path.
///
/// Either the whole checkpoint is there afterwards, or the run folder's checkpoints are as before.
/// A folder of the same step that is already there is replaced.
///
/// # Errors
/// A tensor that is not f32 or not finite, lists that do not correspond, or whatever the file system refuses
/// (a full disk, a read-only folder).
pub fn save(_run_dir: &Path, _contents: &Contents<'_>) -> Result<PathBuf> {
    todo!()
}
