//! Speed: whole steps and single ops.

/// Flags of `bench`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
///
/// # Errors
/// Always: it is not built yet.
pub fn run(_args: Args) -> anyhow::Result<()> {
    anyhow::bail!("bench is not built yet")
}
