//! `atpm-train data`: write demo shards, look into shards.

use clap::Subcommand;

/// What to do with shards.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write small parquet shards of generated English (facts stated, kept, revised and overwritten).
    Demo(DemoArgs),
    /// Show schema, rows, documents, tokens, bytes per token and problems of shards.
    Inspect(InspectArgs),
}

/// Flags of `data demo`.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {}

/// Flags of `data inspect`.
#[derive(Debug, clap::Args)]
pub struct InspectArgs {}

/// Runs one of them.
///
/// # Errors
/// Shards that cannot be read or written.
pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Demo(DemoArgs {}) => anyhow::bail!("data demo is not built yet"),
        Command::Inspect(InspectArgs {}) => anyhow::bail!("data inspect is not built yet"),
    }
}
