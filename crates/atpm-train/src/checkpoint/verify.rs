//! Proof that resuming is exact.

/// Flags of `verify-resume`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
///
/// # Errors
/// Always: it is not built yet.
pub fn run(_args: Args) -> anyhow::Result<()> {
    anyhow::bail!("verify-resume is not built yet")
}
