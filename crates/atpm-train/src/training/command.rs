//! `atpm-train --config FILE`: from flags to a finished run.

use crate::run::cli::TrainArgs;

/// Trains.
///
/// # Errors
/// A mistake in config, data or checkpoint, or a failure of the run.
pub fn run(_args: &TrainArgs) -> anyhow::Result<()> {
    anyhow::bail!("training is not built yet")
}
