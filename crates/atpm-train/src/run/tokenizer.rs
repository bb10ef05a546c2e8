//! `atpm-train tokenizer`: train a tokenizer on shards.

use clap::Subcommand;

/// What to do with tokenizers.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a byte-level BPE on shards and write it as a tokenizer.json.
    Train(TrainArgs),
}

/// Flags of `tokenizer train`.
#[derive(Debug, clap::Args)]
pub struct TrainArgs {}

/// Runs it.
///
/// # Errors
/// Shards that cannot be read, a file that cannot be written.
pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Train(TrainArgs {}) => anyhow::bail!("tokenizer train is not built yet"),
    }
}
