//! One file a trial, whole or not there: an interrupted suite goes on trial by trial.

use std::path::{Path, PathBuf};

use anyhow::Context;

use super::trial::{Outcome, Trial};
use crate::run::exit::{OrUser, user};
use crate::run::whole;

/// The folder of a suite's results.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// Makes the folder if it is not there.
    ///
    /// # Errors
    /// A folder that cannot be made.
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        let folder = folder.join("trials");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { folder })
    }

    /// The trial's file.
    pub fn path(&self, trial: &Trial) -> PathBuf {
        self.folder.join(format!("{}.json", trial.name()))
    }

    /// The trial's outcome, if it is there.
    ///
    /// # Errors
    /// A file of other settings than the trial's, or one that cannot be read.
    pub fn find(&self, trial: &Trial) -> anyhow::Result<Option<Outcome>> {
        let path = self.path(trial);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        let outcome: Outcome = serde_json::from_str(&text)
            .with_context(|| format!("{} is no result", path.display()))
            .or_user()?;
        if outcome.digest != trial.digest()? {
            return Err(user(format!(
                "{} was made with other settings than the config's; results are not mixed: give another `out`, or \
                 move the file away",
                path.display()
            )));
        }
        Ok(Some(outcome))
    }

    /// Writes an outcome, whole or not at all.
    ///
    /// # Errors
    /// Whatever the file system refuses.
    pub fn write(&self, trial: &Trial, outcome: &Outcome) -> anyhow::Result<()> {
        let json = serde_json::to_vec(outcome).context("cannot write the outcome as JSON")?;
        whole::write(&self.path(trial), &json)
    }
}
