//! Removing old checkpoints.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::layout::Entry;
use super::manifest::Manifest;
use super::{Error, Result, layout};

/// Removes checkpoints of a run beyond the newest `keep_last` complete ones, except those whose step is a
/// multiple of `keep_every` (0 = no such exception), `protect` (the one just written or resumed from), and
/// the newest complete one. Returns what was removed. A folder that vanished meanwhile, or cannot be
/// removed, is only a warning.
///
/// # Errors
/// A checkpoints folder that cannot be listed.
pub fn prune(run_dir: &Path, keep_last: u64, keep_every: u64, protect: &Path) -> Result<Vec<PathBuf>> {
    let mut steps: Vec<(u64, PathBuf)> = layout::entries(run_dir)?
        .into_iter()
        .filter_map(|(entry, path)| if let Entry::Step(step) = entry { Some((step, path)) } else { None })
        .collect();
    steps.sort_by(|(left, _), (right, _)| right.cmp(left));
    let mut complete = 0;
    let mut removed = Vec::new();
    for (step, path) in steps {
        if complete < keep_last.max(1) {
            complete += u64::from(same_folder(&path, protect) || Manifest::verify_sizes(&path).is_ok());
            continue;
        }
        let every = keep_every > 0 && step % keep_every == 0;
        if every || same_folder(&path, protect) {
            continue;
        }
        match remove(&path) {
            Ok(true) => removed.push(path),
            Ok(false) => tracing::warn!("{} was already removed", path.display()),
            Err(error) => tracing::warn!("an old checkpoint stays: {error}"),
        }
    }
    Ok(removed)
}

/// Removes a checkpoint folder, the manifest first: half removed it is no checkpoint any more. `false` if
/// there was nothing to remove.
pub(super) fn remove(folder: &Path) -> Result<bool> {
    let manifest = folder.join(layout::MANIFEST);
    ignore_missing(fs::remove_file(&manifest)).map_err(Error::io("remove", &manifest))?;
    ignore_missing(fs::remove_dir_all(folder)).map_err(Error::io("remove", folder))
}

fn ignore_missing(outcome: std::io::Result<()>) -> std::io::Result<bool> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn same_folder(left: &Path, right: &Path) -> bool {
    match (left.canonicalize(), right.canonicalize()) {
        (Ok(left), Ok(right)) => left == right,
        _ => left == right,
    }
}
