//! Removing old checkpoints.

use std::path::{Path, PathBuf};

use super::Result;

/// Removes checkpoints of a run beyond the newest `keep_last` complete ones, except those whose step is a
/// multiple of `keep_every` (0 = no such exception), `protect` (the one just written or resumed from), and
/// the newest complete one. Returns what was removed. A folder that vanished meanwhile is only a warning.
///
/// # Errors
/// A checkpoints folder that cannot be listed.
pub fn prune(_run_dir: &Path, _keep_last: u64, _keep_every: u64, _protect: &Path) -> Result<Vec<PathBuf>> {
    todo!()
}
