//! `bench decode`: neither time nor memory of a token depends on how much was read before it.

use atpm_core::{Precision, Segments};
use atpm_model::{DecodeState, Decoder, ModelConfig};
use candle_core::Device;
use serde::Serialize;

use super::clock::{median, seconds};
use super::sizes::{Random, SizeArgs};
use crate::report::output;

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
    /// Tokens that count at each point.
    #[arg(long, default_value_t = 64)]
    tokens: usize,
    /// One JSON object: `params`, `threads`, and `points`: `read` (tokens before), `tokens_per_s` (median),
    /// `state_bytes`.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    params: usize,
    threads: usize,
    points: Vec<Point>,
}

/// Speed and memory after so many tokens.
#[derive(Debug, Serialize)]
pub(super) struct Point {
    pub(super) read: usize,
    tokens_per_s: f64,
    pub(super) state_bytes: usize,
}

/// Measures and reports.
///
/// # Errors
/// Sizes that cannot be built, or an op that refuses.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let (config, _) = args.sizes.resolve()?;
    let points = measure(&config, args.sizes.precision()?, &args.after, args.tokens)?;
    let params = atpm_model::specs(&config)?.iter().map(atpm_model::ParameterSpec::elements).sum();
    let report = Report { params, threads: rayon::current_num_threads(), points };
    if args.json {
        return output::json(&report);
    }
    output::line(format_args!("{params} parameters, one sequence, {} threads", report.threads))?;
    output::line(format_args!("{:>12}{:>12}{:>14}", "tokens read", "tokens/s", "state bytes"))?;
    for Point { read, tokens_per_s, state_bytes } in &report.points {
        output::line(format_args!("{read:>12}{tokens_per_s:>12.1}{state_bytes:>14}"))?;
    }
    Ok(())
}

/// Reads on from point to point and measures at each.
///
/// # Errors
/// As [`run`].
pub(super) fn measure(
    config: &ModelConfig,
    precision: Precision,
    after: &[usize],
    tokens: usize,
) -> anyhow::Result<Vec<Point>> {
    let model = Decoder::new(config, 0, &Device::Cpu)?.with_precision(precision);
    let mut random = Random(3);
    let mut state = model.decode_state(1)?;
    let mut read = 0;
    let mut ascending = after.to_vec();
    ascending.sort_unstable();
    let mut points = Vec::new();
    for target in ascending {
        while read < target {
            let count = READ_AT_ONCE.min(target - read);
            advance(&model, &mut state, &mut random, count)?;
            read += count;
        }
        let state_bytes = state.bytes();
        // Measuring reads on too, on a state of its own, so that the next point counts from this one.
        let mut own = model.decode_state_from(1, state.tensors().clone())?;
        let once = median(seconds(4, tokens, || Ok(model.step(&[1], &mut own).map(drop)?))?);
        points.push(Point { read, tokens_per_s: 1.0 / once, state_bytes });
    }
    Ok(points)
}

fn advance(
    model: &Decoder,
    state: &mut DecodeState,
    random: &mut Random,
    count: usize,
) -> anyhow::Result<()> {
    let ids = random.ids(&[1, count], model.config().vocab)?;
    Ok(model.prefill(&ids, &Segments::continuous(1, count), state).map(drop)?)
}
