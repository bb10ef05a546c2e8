//! `atpm-train data`: write demo shards, look into shards.

use std::fmt::Write as _;
use std::path::PathBuf;

use atpm_data::demo::{self, DemoOptions};
use atpm_data::{Inspection, Tokenizer};
use clap::Subcommand;

use super::exit::OrUser;
use crate::report::output;

/// What to do with shards.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write small parquet shards of generated English.
    Demo(DemoArgs),
    /// Show what shards hold: schema, rows, documents, tokens, bytes per token, problems.
    Inspect(InspectArgs),
}

const DEMO_EXAMPLES: &str = "\
Examples:
  atpm-train data demo                                  data/demo/train_*.parquet and val_*.parquet
  atpm-train data demo --out /tmp/demo --train-bytes 500000

The text states facts, keeps them, revises and overwrites them (who lives where, and who moved), so that a
model with a memory has something to remember. The same options always write the same bytes.";

/// Flags of `data demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = DEMO_EXAMPLES)]
pub struct DemoArgs {
    /// Folder to write into; made if it is missing.
    #[arg(long, value_name = "DIR", default_value = "data/demo")]
    pub out: PathBuf,
    /// Seed of the text.
    #[arg(long, default_value_t = DemoOptions::default().seed)]
    pub seed: u64,
    /// Bytes of training text, about.
    #[arg(long, value_name = "BYTES", default_value_t = DemoOptions::default().train_bytes)]
    pub train_bytes: usize,
    /// Bytes of validation text, about.
    #[arg(long, value_name = "BYTES", default_value_t = DemoOptions::default().val_bytes)]
    pub val_bytes: usize,
    /// Training shards.
    #[arg(long, value_name = "N", default_value_t = DemoOptions::default().shards)]
    pub shards: usize,
    /// Print one JSON object: train, val (paths), documents, text_bytes.
    #[arg(long)]
    pub json: bool,
}

const INSPECT_EXAMPLES: &str = "\
Examples:
  atpm-train data inspect data/demo
  atpm-train data inspect 'shards/train_*.parquet' --tokenizer tokenizer.json --json

With --json: files (path, bytes, row_groups, rows, problem), schema, row_groups, rows, documents (with at least
one token), tokens (end-of-text not counted), text_bytes, bytes_per_token, longest_document_tokens, nulls,
empties, invalid_utf8, problems.";

/// Flags of `data inspect`.
#[derive(Debug, clap::Args)]
#[command(after_help = INSPECT_EXAMPLES)]
pub struct InspectArgs {
    /// Parquet files, folders or globs.
    #[arg(required = true, value_name = "SHARDS")]
    pub shards: Vec<String>,
    /// The tokenizer to count with: `gpt2`, `bytes`, or the path of a tokenizer.json.
    #[arg(long, default_value = "gpt2")]
    pub tokenizer: String,
    /// The column that holds the documents.
    #[arg(long, value_name = "NAME", default_value = "text")]
    pub text_column: String,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Runs one of them.
///
/// # Errors
/// Shards that cannot be read or written.
pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Demo(args) => write_demo(&args),
        Command::Inspect(args) => inspect(&args),
    }
}

fn write_demo(args: &DemoArgs) -> anyhow::Result<()> {
    let DemoArgs { seed, train_bytes, val_bytes, shards, .. } = *args;
    let options = DemoOptions { seed, train_bytes, val_bytes, shards, ..DemoOptions::default() };
    let report = demo::write(&args.out, &options)?;
    if args.json {
        return output::json(&report);
    }
    for path in report.train.iter().chain(&report.val) {
        output::line(path.display())?;
    }
    output::line(format_args!("{} documents, {} bytes of text", report.documents, report.text_bytes))
}

fn inspect(args: &InspectArgs) -> anyhow::Result<()> {
    let tokenizer = Tokenizer::open(&args.tokenizer).or_user()?;
    let report = atpm_data::inspect(&args.shards, &args.text_column, &tokenizer)?;
    if args.json { output::json(&report) } else { output::part(describe(&report)) }
}

fn describe(report: &Inspection) -> String {
    let mut text = String::new();
    for file in &report.files {
        let _ = write!(
            text,
            "{}: {} bytes, {} row groups, {} rows",
            file.path.display(),
            file.bytes,
            file.row_groups,
            file.rows
        );
        let _ = writeln!(text, "{}", file.problem.as_ref().map_or(String::new(), |p| format!(" — {p}")));
    }
    let _ = writeln!(text, "\ncolumns of the first readable shard:");
    for column in &report.schema {
        let nullable = if column.nullable { "" } else { ", never null" };
        let _ = writeln!(text, "  {}: {}{nullable}", column.name, column.kind);
    }
    let _ = writeln!(text);
    for (name, value) in [
        ("rows", report.rows),
        ("documents", report.documents),
        ("tokens", report.tokens),
        ("bytes of text", report.text_bytes),
        ("tokens of the longest document", report.longest_document_tokens),
        ("null rows", report.nulls),
        ("empty rows", report.empties),
        ("rows with invalid UTF-8", report.invalid_utf8),
    ] {
        let _ = writeln!(text, "{name:32}{value:>14}");
    }
    let _ = writeln!(text, "{:32}{:>14.3}", "bytes per token", report.bytes_per_token);
    let _ = writeln!(text, "\ncolumn `{}`, tokenizer `{}`", report.text_column, report.tokenizer);
    for problem in &report.problems {
        let _ = writeln!(text, "problem: {problem}");
    }
    text
}
