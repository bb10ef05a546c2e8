//! Finding, checking and reading checkpoints.

use std::path::{Path, PathBuf};

use atpm_model::Parameter;
use candle_core::Tensor;

use super::{Latest, Result, TrainState};

/// The newest complete checkpoint of a run folder; incomplete newer ones are reported, not used.
/// A run folder without checkpoints is no error.
///
/// # Errors
/// A checkpoints folder that cannot be listed.
pub fn find_latest(_run_dir: &Path) -> Result<Latest> {
    todo!()
}

/// Opens one checkpoint folder: checks manifest, sizes and checksums, reads the state.
///
/// # Errors
/// A folder that is incomplete or damaged (with the file and the reason), or of another format version.
pub fn load(_path: &Path) -> Result<Loaded> {
    todo!()
}

/// A checked checkpoint, ready to be restored.
#[derive(Debug)]
pub struct Loaded {
    /// The checkpoint's folder.
    pub path: PathBuf,
    /// Counters, data position, configuration.
    pub state: TrainState,
}

impl Loaded {
    /// Overwrites parameters and moments in place (every clone of them sees it). Names, shapes and dtypes
    /// must match one to one; nothing is written unless all of them do.
    ///
    /// # Errors
    /// Unknown or missing names, other shapes, another dtype than f32.
    pub fn restore(&self, _parameters: &[Parameter], _m: &[Tensor], _v: &[Tensor]) -> Result<()> {
        todo!()
    }
}
