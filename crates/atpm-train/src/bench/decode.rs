//! `bench decode`: neither time nor memory of a token depends on how much was read before it.

use atpm_core::{Precision, Segments};
use atpm_model::{Decoder, ModelConfig, ParameterSpec};
use candle_core::Device;
use serde::Serialize;

use super::clock::{PeakSizes, median, memory_peak_on, seconds};
use super::sizes::{Random, SizeArgs, Sizes};
use crate::report::output;
use crate::run::device;

/// Tokens that are read at once on the way to a longer past.
const READ_AT_ONCE: usize = 500;

/// Flags of `bench decode`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    sizes: SizeArgs,
    /// How many tokens the model has read when it is measured.
    #[arg(long, value_delimiter = ',', default_value = "0,1000,10000")]
    after: Vec<usize>,
    /// Tokens of a sequence that count at each point.
    #[arg(long, default_value_t = 64)]
    tokens: usize,
    /// Sequences that are decoded together, each with its own memory.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    rows: u16,
    /// Where to compute: `auto` (the CPU), `cpu`, `cuda` or `cuda:N`; the last two in a build with CUDA.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    device: String,
    /// One JSON object: `params`, `rows`, `threads`, `peak_gb_per_s` (reading memory in the same run; on a GPU copying within it), and
    /// `points`: `read` (tokens before, of each sequence), `tokens_per_s` (of all sequences together, median),
    /// `tokens_per_s_per_row`, `gb_per_s` (weights read once, states read and written), `state_bytes`.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    params: usize,
    rows: usize,
    threads: usize,
    peak_gb_per_s: f64,
    points: Vec<Point>,
}

/// Speed and memory after so many tokens.
#[derive(Debug, Serialize)]
pub(super) struct Point {
    pub(super) read: usize,
    tokens_per_s: f64,
    tokens_per_s_per_row: f64,
    gb_per_s: f64,
    pub(super) state_bytes: usize,
}

/// Measures and reports.
///
/// # Errors
/// Sizes that cannot be built, or an op that refuses.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let device = device::open(&args.device)?;
    let Sizes { model: config, precision, .. } = args.sizes.resolve(&device)?;
    let rows = usize::from(args.rows);
    let report = Report {
        params: atpm_model::specs(&config)?.iter().map(ParameterSpec::elements).sum(),
        rows,
        threads: rayon::current_num_threads(),
        points: measure(&config, precision, rows, &args.after, args.tokens, &device)?,
        peak_gb_per_s: memory_peak_on(&device, PeakSizes::of(&device).elements)?.read,
    };
    if args.json { output::json(&report) } else { output::part(report.render()) }
}

/// Reads on from point to point and measures at each.
///
/// # Errors
/// As [`run`].
pub(super) fn measure(
    config: &ModelConfig,
    precision: Precision,
    rows: usize,
    after: &[usize],
    tokens: usize,
    device: &Device,
) -> anyhow::Result<Vec<Point>> {
    let model = Decoder::new(config, 0, device)?.with_precision(precision);
    let mut random = Random(3);
    let mut state = model.decode_state(rows)?;
    let weight_bytes = weight_bytes(config)?;
    let mut read = 0;
    let mut ascending = after.to_vec();
    ascending.sort_unstable();
    let mut points = Vec::new();
    for target in ascending {
        while read < target {
            let count = READ_AT_ONCE.min(target - read);
            let ids = random.ids(&[rows, count], config.vocab)?;
            model.prefill(&ids, &Segments::continuous(rows, count), &mut state)?;
            read += count;
        }
        let state_bytes = state.bytes();
        // Measuring reads on too, on a state of its own, so that the next point counts from this one.
        let mut own = model.decode_state_from(rows, state.tensors().clone())?;
        let ids = vec![1; rows];
        let step = median(seconds(4, tokens, || {
            model.step(&ids, &mut own)?;
            Ok(device.synchronize()?)
        })?);
        points.push(Point {
            read,
            tokens_per_s: rows as f64 / step,
            tokens_per_s_per_row: 1.0 / step,
            // The state is read and written.
            gb_per_s: (weight_bytes + 2 * state_bytes) as f64 / step / 1e9,
            state_bytes,
        });
    }
    Ok(points)
}

/// Bytes of the parameters that a step reads whole; of an embedding that is not the head as well it reads a line a row.
fn weight_bytes(config: &ModelConfig) -> anyhow::Result<usize> {
    let whole = |spec: &&ParameterSpec| config.tied || spec.name != "embedding.weight";
    let elements: usize = atpm_model::specs(config)?.iter().filter(whole).map(ParameterSpec::elements).sum();
    Ok(size_of::<f32>() * elements)
}

impl Report {
    fn render(&self) -> String {
        use std::fmt::Write as _;
        let Self { params, rows, threads, peak_gb_per_s, points } = self;
        let mut text = format!(
            "{params} parameters, sequences: {rows}, threads: {threads}; memory reads {peak_gb_per_s:.1} GB/s\n\
             {:>12}{:>12}{:>16}{:>8}{:>16}{:>14}\n",
            "tokens read", "tokens/s", "a sequence", "GB/s", "of memory's", "state bytes"
        );
        for point in points {
            let Point { read, tokens_per_s, tokens_per_s_per_row, gb_per_s, state_bytes } = point;
            let share = 100.0 * gb_per_s / peak_gb_per_s;
            let _ = writeln!(
                text,
                "{read:>12}{tokens_per_s:>12.1}{tokens_per_s_per_row:>16.1}{gb_per_s:>8.1}{share:>15.0}%{state_bytes:>14}"
            );
        }
        text
    }
}
