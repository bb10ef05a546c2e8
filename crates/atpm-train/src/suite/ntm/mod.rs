//! `atpm-train suite ntm`: the Neural Turing machine on the binary-vector tasks. docs/ntm.md shows how.
//!
//! Reading order: [`settings`] (what a run is), [`trainer`] (one step), [`train`] (a run), [`model`] (a trained machine
//! from its folder), [`eval`] (accuracy beyond the lengths of training), [`inspect`] (where the heads were).

pub mod eval;
pub mod inspect;
pub mod model;
pub mod settings;
#[cfg(test)]
mod tests;
pub mod train;
pub mod trainer;

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
