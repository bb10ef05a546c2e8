//! `atpm-train suite ntm`: the Neural Turing machine on the binary-vector tasks. docs/ntm.md shows how.
//!
//! Reading order: [`settings`] (what a run is), [`trainer`] (one step), [`resume`] (which settings may have changed),
//! [`train`] (a run), [`model`] (a trained machine from its folder), [`eval`] (accuracy beyond the lengths of training),
//! [`inspect`] (where the heads were).

pub mod eval;
pub mod inspect;
pub mod model;
pub mod resume;
pub mod settings;
#[cfg(test)]
mod tests;
pub mod train;
pub mod trainer;

use std::path::{Path, PathBuf};

use atpm_data::synthetic::vector::VectorTask;

use crate::run::exit::user;

/// What to do with a Neural Turing machine.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Train a machine on a task.
    Train(train::Args),
    /// Measure a trained machine at sizes beyond those of training.
    Eval(eval::Args),
    /// Draw where a trained machine's heads read and write, step by step.
    Inspect(inspect::Args),
}

/// Runs it.
///
/// # Errors
/// A mistake in settings or checkpoint, or a failure of the run.
pub fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Train(args) => train::run(args),
        Command::Eval(args) => eval::run(args),
        Command::Inspect(args) => inspect::run(args),
    }
}

/// The SVG and the PNG beside it, of one name; `out` names either.
fn pictures(out: &Path) -> [PathBuf; 2] {
    let is_png = out.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("png"));
    let svg = if is_png { out.with_extension("svg") } else { out.to_owned() };
    [svg, out.with_extension("png")]
}

/// Refuses a size that the task does not have; `flag` is what gave it.
fn expect_size(task: VectorTask, size: usize, flag: &str) -> anyhow::Result<()> {
    let (least, most) = task.limits();
    if (least..=most).contains(&size) {
        return Ok(());
    }
    Err(user(format!("{flag} {size}: {} has sizes from {least} to {most}", task.name())))
}
