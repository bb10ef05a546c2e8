//! What tests of whole runs share: demo shards in a folder of their own, and runs on them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};

use atpm_data::demo::{self, DemoOptions};
use atpm_train::run::config::Run;
use atpm_train::run::folder::Resume;
use atpm_train::run::logging::Console;
use atpm_train::training::signals::StopFlag;
use atpm_train::training::{Outcome, train};

/// A folder with demo shards and room for runs of one config.
pub(crate) struct Lab {
    folder: tempfile::TempDir,
    config: &'static str,
}

impl Lab {
    pub(crate) fn with(config: &'static str, options: &DemoOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        demo::write(folder.path(), options).unwrap();
        Self { folder, config }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The run `name` of the config on the lab's shards, `overrides` laid over it.
    pub(crate) fn run(&self, name: &str, overrides: &[&str]) -> Run {
        let paths = [
            format!("run_dir={}", self.path(name).display()),
            format!("data.train={}", self.path("train_*.parquet").display()),
            format!("data.val={}", self.path("val_*.parquet").display()),
        ];
        let all: Vec<_> = paths.iter().map(String::as_str).chain(overrides.iter().copied()).collect();
        Run::from_toml(self.config, "test").unwrap().with(&all).unwrap()
    }
}

/// Trains to the end, or to where the run itself says to stop.
pub(crate) fn go(run: &Run, resume: &Resume) -> Outcome {
    train(run, resume, &StopFlag::default(), &Console::default()).unwrap()
}

/// Bytes of the weights and moments of a run's checkpoint.
pub(crate) fn checkpoint_files(run_dir: &Path, step: u64) -> Vec<Vec<u8>> {
    let folder = run_dir.join(format!("checkpoints/step-{step:08}"));
    ["model.safetensors", "optimizer.safetensors"]
        .map(|name| std::fs::read(folder.join(name)).unwrap())
        .into()
}
