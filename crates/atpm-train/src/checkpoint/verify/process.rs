//! Training in a process of its own, which can be killed.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, bail};

use crate::run::config::Run;
use crate::run::exit::{Interrupted, user};
use crate::training::signals::StopFlag;

/// How often a running process is looked at.
const POLL: Duration = Duration::from_millis(2);
/// Lines of a failed process's log that are shown.
const TAIL: usize = 12;

/// Trains to the end of the settings, from a checkpoint if one is given. Settings and log lie beside `files`
/// (`.toml`, `.log`).
///
/// # Errors
/// A process that fails, with the end of its log; [`Interrupted`] if `stop` was raised meanwhile.
pub(super) fn train(run: &Run, files: &Path, resume: Option<&Path>, stop: &StopFlag) -> anyhow::Result<()> {
    let mut process = Process::start(run, files, resume)?;
    loop {
        if let Some(status) = process.ended(stop)? {
            return succeeded(status, files);
        }
        sleep(POLL);
    }
}

/// Trains until `file` is there, and kills the process that moment; `false` if it had already ended.
///
/// # Errors
/// A process that fails before that; [`Interrupted`] if `stop` was raised meanwhile.
pub(super) fn kill_after(run: &Run, files: &Path, file: &Path, stop: &StopFlag) -> anyhow::Result<bool> {
    let mut process = Process::start(run, files, None)?;
    loop {
        let ended = process.ended(stop)?;
        if file.is_file() {
            drop(process);
            return Ok(ended.is_none());
        }
        if let Some(status) = ended {
            succeeded(status, files)?;
            bail!("the run ended without the checkpoint {}", file.display());
        }
        sleep(POLL);
    }
}

/// A running process; it does not outlive this value.
struct Process(Child);

impl Process {
    fn start(run: &Run, files: &Path, resume: Option<&Path>) -> anyhow::Result<Self> {
        let (settings, log) = (files.with_extension("toml"), files.with_extension("log"));
        std::fs::write(&settings, run.to_toml()?)
            .with_context(|| format!("cannot write {}", settings.display()))?;
        let log = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(program);
        command.arg("--config").arg(&settings).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        if let Some(checkpoint) = resume {
            command.arg("--resume").arg(checkpoint);
        }
        command.spawn().map(Self).context("cannot start the training process")
    }

    /// How the process ended, if it did.
    fn ended(&mut self, stop: &StopFlag) -> anyhow::Result<Option<ExitStatus>> {
        if let Some(signal) = stop.raised() {
            return Err(Interrupted { signal, advice: "nothing was compared" }.into());
        }
        self.0.try_wait().context("cannot watch the training process")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL; a process that has ended is no error, and there is nothing to do about another one.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn succeeded(status: ExitStatus, files: &Path) -> anyhow::Result<()> {
    if status.success() {
        return Ok(());
    }
    let log = std::fs::read_to_string(files.with_extension("log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
    let message = format!("training failed ({status}):\n{tail}");
    // The child has told a mistake from a failure already.
    if status.code() == Some(2) { Err(user(message)) } else { bail!(message) }
}
