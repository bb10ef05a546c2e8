//! Trained weights of trials (`keep = true`): a folder a trial, which `--model` of other commands reads as it reads a run.

use std::path::{Path, PathBuf};

use anyhow::Context;
use atpm_data::synthetic::vocabulary;
use serde_json::json;

use super::trial::Trial;
use crate::checkpoint::{self, Contents, TrainState};
use crate::inference::model::Opened;
use crate::run::exit::user;
use crate::training::trainer::Trainer;

/// The tokenizer's file in a checkpoint.
const TOKENIZER: &str = "tokenizer.json";
/// What the state's `data` has under this name: the digest of the trial that the weights come from.
const TRIAL: &str = "trial";

/// The folder of the trained weights.
#[derive(Debug, Clone)]
pub struct Kept {
    folder: PathBuf,
}

impl Kept {
    /// `models` in the suite's folder; made if it is not there.
    ///
    /// # Errors
    /// A folder that cannot be made.
    pub fn open(out: &Path) -> anyhow::Result<Self> {
        let folder = out.join("models");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { folder })
    }

    /// The folder of a trial's weights.
    pub fn path(&self, trial: &Trial) -> PathBuf {
        self.folder.join(trial.name())
    }

    /// Whether the weights of exactly this trial are there.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn has(&self, trial: &Trial) -> anyhow::Result<bool> {
        let Some(newest) = checkpoint::find_latest(&self.path(trial))?.path else { return Ok(false) };
        let digest = trial.digest()?;
        Ok(checkpoint::load(&newest)?.state.data[TRIAL].as_str() == Some(&digest))
    }

    /// Writes what the trial has learned, whole or not at all; weights of an earlier trial of the same name give way.
    ///
    /// # Errors
    /// Whatever the file system refuses.
    pub fn write(&self, trial: &Trial, trainer: &Trainer) -> anyhow::Result<()> {
        let tokenizer = vocabulary::tokenizer()?;
        let state = TrainState {
            data: json!({ TRIAL: trial.digest()? }),
            tokenizer: TOKENIZER.into(),
            tokenizer_fingerprint: tokenizer.fingerprint().into(),
            ..trainer.state()?
        };
        let files: Vec<_> =
            tokenizer.files()?.map(|(name, text)| (name.to_owned(), text.into_bytes())).into();
        let (m, v) = trainer.moments();
        let contents = Contents { state: &state, parameters: trainer.parameters(), m, v, files: &files };
        let (path, beside) = (self.path(trial), self.folder.join(format!(".tmp-{}", trial.name())));
        remove(&beside)?;
        checkpoint::save(&beside, &contents)?;
        remove(&path)?;
        std::fs::rename(&beside, &path).with_context(|| format!("cannot rename {}", beside.display()))
    }
}

/// Refuses a model that does not read the memory tasks' words. `instead` is what else the command could be given, such as
/// `"--prompt TEXT, or "`.
///
/// # Errors
/// Such a model; a tokenizer that cannot be made.
pub fn expect_words(opened: &Opened, instead: &str) -> anyhow::Result<()> {
    if opened.tokenizer.fingerprint() == vocabulary::tokenizer()?.fingerprint() {
        return Ok(());
    }
    Err(user(format!(
        "{}: this model was not trained on the memory tasks; give {instead}the weights that a suite kept (keep = true)",
        opened.path.display()
    )))
}

fn remove(folder: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}
