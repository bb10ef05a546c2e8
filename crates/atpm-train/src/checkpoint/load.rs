//! Finding, checking and reading checkpoints.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use atpm_model::Parameter;
use candle_core::Tensor;

use super::layout::Entry;
use super::manifest::Manifest;
use super::save::Tensors;
use super::tensor_file::{Encoding, TensorFile};
use super::{Error, Latest, Result, TrainState, layout};

/// The newest complete checkpoint of a run folder; incomplete newer ones are reported, not used.
/// A run folder without checkpoints is no error.
///
/// # Errors
/// A checkpoints folder that cannot be listed.
pub fn find_latest(run_dir: &Path) -> Result<Latest> {
    let mut latest = Latest::default();
    let mut entries = layout::entries(run_dir)?;
    // The checkpoint of a step before the one it was replacing, and the unfinished one last.
    entries.sort_by_key(|(entry, _)| match *entry {
        Entry::Step(step) => (Reverse(step), 0),
        Entry::Replaced(step) => (Reverse(step), 1),
        Entry::Unfinished(step) => (Reverse(step), 2),
    });
    for (entry, path) in entries {
        let reason = match (entry, Manifest::verify(&path)) {
            (Entry::Unfinished(_), _) => "the program stopped while it was being written".to_string(),
            (_, Ok(_)) => {
                latest.path = Some(path);
                return Ok(latest);
            }
            (_, Err(Error::Incomplete { reason, .. })) => reason,
            (_, Err(error)) => error.to_string(),
        };
        latest.passed_over.push((path, reason));
    }
    Ok(latest)
}

/// Opens one checkpoint folder: checks manifest, sizes and checksums, reads the state.
///
/// # Errors
/// A folder that is incomplete or damaged (with the file and the reason), or of another format version.
pub fn load(path: &Path) -> Result<Loaded> {
    let manifest = Manifest::verify(path)?;
    let state_path = path.join(layout::STATE);
    let json = std::fs::read(&state_path).map_err(Error::io("read", &state_path))?;
    let state: TrainState =
        serde_json::from_slice(&json).map_err(|error| Error::format(&state_path, error.to_string()))?;
    if state.step != manifest.step {
        let reason = format!("it is of step {}, its manifest of step {}", state.step, manifest.step);
        return Err(Error::format(&state_path, reason));
    }
    let model = TensorFile::open(&path.join(layout::MODEL))?;
    let optimizer = TensorFile::open(&path.join(layout::OPTIMIZER))?;
    Ok(Loaded { path: path.to_path_buf(), state, model, optimizer })
}

/// A checked checkpoint, ready to be restored.
#[derive(Debug)]
pub struct Loaded {
    /// The checkpoint's folder.
    pub path: PathBuf,
    /// Counters, data position, configuration.
    pub state: TrainState,
    pub(super) model: TensorFile,
    pub(super) optimizer: TensorFile,
}

impl Loaded {
    /// Overwrites parameters and moments in place (every clone of them sees it). Names, shapes and dtypes
    /// must match one to one; nothing is written unless all of them do.
    ///
    /// # Errors
    /// Unknown or missing names, other shapes, another dtype than f32.
    pub fn restore(&self, parameters: &[Parameter], m: &[Tensor], v: &[Tensor]) -> Result<()> {
        let tensors = Tensors::new(parameters, m, v).map_err(|(name, reason)| Error::Mismatch {
            path: self.path.clone(),
            problems: vec![format!("`{name}`: {reason}")],
        })?;
        let pairs = [(&self.model, &tensors.model), (&self.optimizer, &tensors.optimizer)];
        for (file, tensors) in pairs {
            file.expect(tensors, &[Encoding::F32])?;
        }
        for (file, tensors) in pairs {
            file.restore(tensors)?;
        }
        Ok(())
    }

    /// Overwrites the parameters alone, as [`Self::restore`] does: for using the model, not training it.
    ///
    /// # Errors
    /// As [`Self::restore`].
    pub fn restore_parameters(&self, parameters: &[Parameter]) -> Result<()> {
        let tensors: Vec<(String, &Tensor)> =
            parameters.iter().map(|parameter| (parameter.name.clone(), &parameter.value)).collect();
        self.model.expect(&tensors, &[Encoding::F32])?;
        self.model.restore(&tensors)
    }
}
