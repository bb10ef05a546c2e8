//! Text from a checkpoint or an export.

/// Flags of `generate`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
///
/// # Errors
/// Always: it is not built yet.
pub fn run(_args: Args) -> anyhow::Result<()> {
    anyhow::bail!("generate is not built yet")
}
