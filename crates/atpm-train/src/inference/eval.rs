//! Loss of a checkpoint or an export on any shards.

/// Flags of `eval`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
///
/// # Errors
/// Always: it is not built yet.
pub fn run(_args: Args) -> anyhow::Result<()> {
    anyhow::bail!("eval is not built yet")
}
