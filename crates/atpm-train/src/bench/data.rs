//! `bench data`: from parquet to packed rows, in tokens a second, with memory over time.

use std::sync::Arc;
use std::time::Instant;

use atpm_data::{BatchSource as _, DataConfig, TextConfig, TextSource, Tokenizer};
use serde::Serialize;

use super::clock::{Resident, resident_bytes};
use crate::report::output;
use crate::run::cli::TextArgs;
use crate::run::exit::OrUser as _;

/// Points in time at which memory is looked at.
const SAMPLES: usize = 10;

/// Flags of `bench data`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Shards: files, folders or globs.
    #[arg(long, required = true, num_args = 1.., value_name = "SHARDS")]
    data: Vec<String>,
    /// `gpt2`, `bytes`, or the path of a tokenizer.json.
    #[arg(long, default_value = "gpt2")]
    tokenizer: String,
    /// How the shards are read.
    #[command(flatten)]
    text: TextArgs,
    /// Rows of a batch.
    #[arg(long, default_value_t = 16)]
    batch: usize,
    /// Tokens of a row.
    #[arg(long, default_value_t = 1024)]
    seq: usize,
    /// Batches to read; the shards are read again from the start as often as needed.
    #[arg(long, default_value_t = 300)]
    batches: usize,
    /// One JSON object: `tokens`, `seconds`, `tokens_per_s`, `threads`, and `resident_bytes`: this process's memory
    /// at ten evenly spaced moments (null where the system does not tell).
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    tokens: usize,
    seconds: f64,
    tokens_per_s: f64,
    threads: usize,
    resident_bytes: Vec<Option<u64>>,
}

/// Measures and reports.
///
/// # Errors
/// Shards or a tokenizer that cannot be read.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let report = measure(args)?;
    if args.json {
        return output::json(&report);
    }
    let Report { tokens, seconds, tokens_per_s, threads, resident_bytes } = &report;
    output::line(format_args!(
        "{tokens_per_s:.0} tokens/s: {tokens} tokens in {seconds:.2} s, {threads} threads"
    ))?;
    let megabytes =
        |bytes: &Option<u64>| bytes.map_or("?".into(), |bytes| format!("{:.0}", bytes as f64 / 1e6));
    let memory: Vec<String> = resident_bytes.iter().map(megabytes).collect();
    output::line(format_args!("memory over time, MB: {}", memory.join(" ")))
}

fn measure(args: &Args) -> anyhow::Result<Report> {
    let data =
        DataConfig { train: args.data.clone(), tokenizer: args.tokenizer.clone(), ..args.text.data_config() };
    let tokenizer = Arc::new(Tokenizer::open(&args.tokenizer).or_user()?);
    let config = TextConfig::new(data, 0, args.batch, args.seq);
    // From before the shards are opened, so that nothing prepared ahead of its use comes for free.
    let start = Instant::now();
    let mut source = TextSource::open(&config, tokenizer, None)?;
    let mut resident = Vec::with_capacity(SAMPLES);
    for batch in 0..args.batches {
        source.next_batch()?;
        if (batch + 1) * SAMPLES / args.batches.max(1) > resident.len() {
            resident.push(resident_bytes(Resident::Now));
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let tokens = args.batches * args.batch * args.seq;
    Ok(Report {
        tokens,
        seconds,
        tokens_per_s: tokens as f64 / seconds,
        threads: rayon::current_num_threads(),
        resident_bytes: resident,
    })
}
