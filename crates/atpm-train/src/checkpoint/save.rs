//! Writing a checkpoint: beside its final place, synced, sealed by the manifest, renamed.

use std::fs;
use std::path::{Path, PathBuf};

use candle_core::Tensor;

use super::manifest::Manifest;
use super::tensor_file::{self, Encoding};
use super::{Contents, Error, Result, digest, layout, prune};

/// Writes the checkpoint of `contents.state.step` under the run folder and returns its path.
///
/// Either the whole checkpoint is there afterwards, or the run folder's checkpoints are as before.
/// A folder of the same step that is already there is replaced, left-overs of a killed save are removed.
/// One process at a time saves into a run folder.
///
/// # Errors
/// A tensor that is not f32 or not finite, lists that do not correspond, or whatever the file system refuses
/// (a full disk, a read-only folder).
pub fn save(run_dir: &Path, contents: &Contents<'_>) -> Result<PathBuf> {
    let step = contents.state.step;
    let tensors = Tensors::of(contents)?;
    let parent = layout::checkpoints(run_dir);
    fs::create_dir_all(&parent).map_err(Error::io("create", &parent))?;
    clear_left_overs(run_dir)?;
    let unfinished = layout::unfinished(run_dir, step);
    fs::create_dir(&unfinished).map_err(Error::io("create", &unfinished))?;
    let outcome = write_files(&unfinished, contents, &tensors).and_then(|()| publish(run_dir, step));
    if outcome.is_err()
        && let Err(error) = prune::remove(&unfinished)
    {
        tracing::warn!("what was written stays: {error}");
    }
    outcome
}

/// The tensors of both files under the names that they have there.
pub(super) struct Tensors<'a> {
    pub(super) model: Vec<(String, &'a Tensor)>,
    pub(super) optimizer: Vec<(String, &'a Tensor)>,
}

impl<'a> Tensors<'a> {
    fn of(contents: &Contents<'a>) -> Result<Self> {
        Self::new(contents.parameters, contents.m, contents.v)
            .map_err(|(name, reason)| Error::Refused { name, reason })
    }

    /// Refuses moments that are not those of the parameters, by the parameter's name and the reason.
    pub(super) fn new(
        parameters: &'a [atpm_model::Parameter],
        m: &'a [Tensor],
        v: &'a [Tensor],
    ) -> std::result::Result<Self, (String, String)> {
        if m.len() != parameters.len() || v.len() != parameters.len() {
            let reason = format!(
                "{} parameters come with {} first and {} second moments",
                parameters.len(),
                m.len(),
                v.len()
            );
            return Err(("optimizer".into(), reason));
        }
        let model = parameters.iter().map(|parameter| (parameter.name.clone(), &parameter.value)).collect();
        let mut optimizer = Vec::with_capacity(2 * parameters.len());
        for (prefix, moments) in [(layout::FIRST_MOMENT, m), (layout::SECOND_MOMENT, v)] {
            for (parameter, moment) in parameters.iter().zip(moments) {
                if moment.dims() != parameter.value.dims() {
                    let reason = format!(
                        "its moment has shape {:?}, the parameter {:?}",
                        moment.dims(),
                        parameter.value.dims()
                    );
                    return Err((parameter.name.clone(), reason));
                }
                optimizer.push((format!("{prefix}{}", parameter.name), moment));
            }
        }
        Ok(Self { model, optimizer })
    }
}

fn write_files(folder: &Path, contents: &Contents<'_>, tensors: &Tensors<'_>) -> Result<()> {
    let mut files = Vec::new();
    for (name, tensors) in [(layout::MODEL, &tensors.model), (layout::OPTIMIZER, &tensors.optimizer)] {
        let digest = tensor_file::write(&folder.join(name), tensors, Encoding::F32, layout::TENSOR_NOTE)?;
        files.push((name.to_string(), digest));
    }
    let path = folder.join(layout::STATE);
    let state =
        serde_json::to_vec_pretty(contents.state).map_err(|error| Error::format(&path, error.to_string()))?;
    files.push((layout::STATE.to_string(), digest::write_file(&path, &state)?));
    for (name, bytes) in contents.files {
        files.push((name.clone(), digest::write_file(&folder.join(name), bytes)?));
    }
    digest::sync_folder(folder)?;
    Manifest::new(contents.state.step, files).write(folder)?;
    digest::sync_folder(folder)
}

/// Gives the finished folder its name. A complete checkpoint of the same step steps aside first, so that at
/// every moment one of the two can be found.
fn publish(run_dir: &Path, step: u64) -> Result<PathBuf> {
    let (unfinished, folder) = (layout::unfinished(run_dir, step), layout::folder(run_dir, step));
    let replaced = layout::replaced(run_dir, step);
    if folder.exists() {
        match Manifest::verify(&folder) {
            Ok(_) => {
                tracing::warn!("{} is replaced by a newer checkpoint of the same step", folder.display());
                fs::rename(&folder, &replaced).map_err(Error::io("rename", &folder))?;
            }
            Err(error) => {
                tracing::warn!("{error}; it is replaced");
                prune::remove(&folder)?;
            }
        }
    }
    fs::rename(&unfinished, &folder).map_err(Error::io("rename", &unfinished))?;
    digest::sync_folder(&layout::checkpoints(run_dir))?;
    if replaced.exists() {
        prune::remove(&replaced)?;
    }
    Ok(folder)
}

/// Removes what a killed save left: unfinished folders, and replaced checkpoints whose successor is there.
fn clear_left_overs(run_dir: &Path) -> Result<()> {
    for (entry, path) in layout::entries(run_dir)? {
        match entry {
            layout::Entry::Step(_) => {}
            layout::Entry::Unfinished(_) => {
                tracing::warn!("{} was never finished; it is removed", path.display());
                prune::remove(&path)?;
            }
            layout::Entry::Replaced(step) => {
                let folder = layout::folder(run_dir, step);
                if Manifest::verify(&folder).is_ok() {
                    prune::remove(&path)?;
                } else {
                    if folder.exists() {
                        prune::remove(&folder)?;
                    }
                    fs::rename(&path, &folder).map_err(Error::io("rename", &path))?;
                }
            }
        }
    }
    Ok(())
}
