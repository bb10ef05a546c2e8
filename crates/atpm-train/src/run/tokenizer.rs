//! `atpm-train tokenizer`: train a tokenizer on shards.

use std::path::PathBuf;

use atpm_data::{BpeOptions, train_bpe};
use clap::Subcommand;

use super::cli::TextArgs;
use crate::report::output;

/// What to do with tokenizers.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Train a byte-level BPE on shards and write it as a tokenizer.json.
    Train(TrainArgs),
}

const EXAMPLES: &str = "\
Examples:
  atpm-train tokenizer train 'data/demo/train_*.parquet' --out data/demo/tokenizer.json --vocab 1024
  atpm-train tokenizer train 'shards/train_*.parquet' --out tokenizer.json

Then train with it: atpm-train --config FILE --set data.tokenizer=tokenizer.json

With --json: path, vocab_size, documents, text_bytes.";

/// Flags of `tokenizer train`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct TrainArgs {
    /// Parquet files, folders or globs to learn from; give training shards only.
    #[arg(required = true, value_name = "SHARDS")]
    pub shards: Vec<String>,
    /// The file to write.
    #[arg(long, value_name = "FILE", default_value = "tokenizer.json")]
    pub out: PathBuf,
    /// Ids in all: 256 bytes, the merges, and end-of-text.
    #[arg(long, value_name = "N", default_value_t = BpeOptions::default().vocab_size)]
    pub vocab: usize,
    /// Pairs that are seen less often are not merged.
    #[arg(long, value_name = "N", default_value_t = BpeOptions::default().min_frequency)]
    pub min_frequency: u64,
    /// Bytes of text to read at most; 0 = all.
    #[arg(long, value_name = "BYTES", default_value_t = BpeOptions::default().max_bytes)]
    pub max_bytes: u64,
    /// How the shards are read.
    #[command(flatten)]
    pub text: TextArgs,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Runs it.
///
/// # Errors
/// Shards that cannot be read, a file that cannot be written.
pub fn run(command: Command) -> anyhow::Result<()> {
    let Command::Train(args) = command;
    let options = BpeOptions {
        vocab_size: args.vocab,
        text_column: args.text.text_column,
        on_bad_shard: args.text.on_bad_shard,
        invalid_utf8: args.text.invalid_utf8,
        min_frequency: args.min_frequency,
        max_bytes: args.max_bytes,
    };
    let report = train_bpe(&args.shards, &args.out, &options)?;
    if args.json {
        return output::json(&report);
    }
    output::line(format_args!(
        "{}: {} ids from {} documents ({} bytes)",
        report.path.display(),
        report.vocab_size,
        report.documents,
        report.text_bytes
    ))
}
