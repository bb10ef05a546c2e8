//! Loss curves as SVG and PNG.

/// Flags of `plot`.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Runs it.
///
/// # Errors
/// Always: it is not built yet.
pub fn run(_args: Args) -> anyhow::Result<()> {
    anyhow::bail!("plot is not built yet")
}
