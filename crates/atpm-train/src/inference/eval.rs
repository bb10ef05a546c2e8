//! `atpm-train eval`: loss of a checkpoint or an export on any shards.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use atpm_data::{DataConfig, TextConfig};
use serde::Serialize;

use super::model;
use super::token_losses::{self, TokenLosses};
use crate::report::metrics::Evaluation;
use crate::report::output;
use crate::run::cli::TextArgs;
use crate::run::device;
use crate::run::exit::user;
use crate::training::evaluation::evaluate;
use crate::training::signals::StopFlag;

const EXAMPLES: &str = "\
Examples:
  atpm-train eval --model runs/tiny --data 'shards/val_*.parquet'
  atpm-train eval --model export/tiny --data shards/val_00000.parquet --tokens 2048 --json
  atpm-train eval --model export/tiny --data shards/val_00000.parquet --batches 4 --token-losses losses.safetensors

With --json: model, step, loss (nats), perplexity, bits_per_byte, target_tokens, target_bytes, by_position (from, to,
loss, target_tokens), seconds.";

/// Flags of `eval`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A run folder (its newest complete checkpoint is taken), a checkpoint, or an export.
    #[arg(long, value_name = "PATH")]
    pub model: PathBuf,
    /// Parquet shards: files, folders or globs.
    #[arg(long, value_name = "SHARDS", required = true, num_args = 1..)]
    pub data: Vec<String>,
    /// How the shards are read.
    #[command(flatten)]
    pub text: TextArgs,
    /// Tokens of a row; a document that runs over a row's end is cut, and its rest starts without memory.
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub tokens: usize,
    /// Rows at once; more are faster, up to a point, and need more memory.
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub rows: usize,
    /// Most batches of `rows × tokens` tokens; 0 reads everything.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub batches: u64,
    /// Write what was read and the loss of every token to this safetensors file (docs/checkpoint-format.md): for
    /// comparison with another implementation, or a closer look.
    #[arg(long, value_name = "FILE")]
    pub token_losses: Option<PathBuf>,
    /// Where to compute: `auto` (the CPU), `cpu`, `cuda` or `cuda:N`; the last two in a build with CUDA.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub device: String,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    model: &'a Path,
    step: Option<u64>,
    #[serde(flatten)]
    evaluation: Evaluation,
}

/// Measures, and prints.
///
/// # Errors
/// A model that cannot be opened, shards that cannot be read or hold no token to predict, a file that cannot be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    for (flag, value) in [("--tokens", args.tokens), ("--rows", args.rows)] {
        if value == 0 {
            return Err(user(format!("{flag} must be at least 1")));
        }
    }
    if let Some(path) = &args.token_losses {
        token_losses::expect_place(path)?;
    }
    let opened = model::open_on(&args.model, &device::open(&args.device)?)?;
    let data =
        DataConfig { val: args.data.clone(), bos: opened.bos, eos: opened.eos, ..args.text.data_config() };
    let config = TextConfig::new(data, 0, args.rows, args.tokens);
    let stop = StopFlag::default();
    let mut rows = TokenLosses::new(args.tokens);
    let evaluation =
        evaluate(&opened.model, &config, &opened.tokenizer, args.batches, &stop, |batch, losses| {
            if args.token_losses.is_some() {
                rows.add(batch, losses);
            }
        })?;
    let Some(evaluation) = evaluation else { return Ok(()) };
    if let Some(path) = &args.token_losses {
        rows.write(path)?;
    }
    if args.json {
        return output::json(&Report { model: &opened.path, step: opened.step, evaluation });
    }
    output::part(describe(&opened.path, &evaluation))
}

fn describe(path: &Path, evaluation: &Evaluation) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}", path.display());
    let _ = writeln!(
        text,
        "loss {:.4} nats · perplexity {:.3} · {:.4} bits per byte · {} target tokens · {:.1} s",
        evaluation.loss,
        evaluation.perplexity,
        evaluation.bits_per_byte,
        evaluation.target_tokens,
        evaluation.seconds
    );
    let _ = writeln!(text, "\n{:>16} {:>10} {:>10}", "tokens before", "loss", "targets");
    for range in &evaluation.by_position {
        let place = match range.to {
            Some(to) if to == range.from => to.to_string(),
            Some(to) => format!("{}–{to}", range.from),
            None => format!("{}…", range.from),
        };
        let _ = writeln!(text, "{place:>16} {:>10.4} {:>10}", range.loss, range.target_tokens);
    }
    text
}
