//! `bench ops`: each op beside its reference in plain candle operations.

use atpm_model::ModelKind;
use candle_core::{Device, Tensor};
use serde::Serialize;

use super::cases::{Case, Cases, Pass, Reference};
use super::clock::{median, seconds};
use super::sizes::{Block, SizeArgs};
use crate::report::output;
use crate::run::exit::user;

/// Flags of `bench ops`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    sizes: SizeArgs,
    /// Rows.
    #[arg(long, default_value_t = 2)]
    batch: usize,
    /// Tokens of a row.
    #[arg(long, default_value_t = 256)]
    seq: usize,
    /// Runs that count, after one that does not.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// One JSON object: `batch`, `seq`, `threads`, and `ops`: `op`, `pass` (`forward`, or `both` for forward and
    /// backward together), `seconds` (median), `rate`, `unit`, and, where the op has a reference in plain candle
    /// operations, `reference_seconds` and `speedup`.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    batch: usize,
    seq: usize,
    threads: usize,
    pub(super) ops: Vec<Row>,
}

/// One op in one direction.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) op: &'static str,
    pub(super) pass: &'static str,
    pub(super) seconds: f64,
    rate: f64,
    unit: &'static str,
    pub(super) reference_seconds: Option<f64>,
    speedup: Option<f64>,
}

/// Measures and reports.
///
/// # Errors
/// Sizes that cannot be built, or an op that refuses.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let sizes = args.sizes.resolve(&Device::Cpu)?;
    if sizes.model.kind != ModelKind::Atpm {
        let kind = sizes.model.kind.name();
        return Err(user(format!("model.kind = \"{kind}\": only \"atpm\" can be measured op by op")));
    }
    let block = Block { rows: args.batch, tokens: args.seq };
    let cases = Cases::new(&sizes.model, block, sizes.precision).all()?;
    let report = measure(&cases, block, args.repeats)?;
    if args.json { output::json(&report) } else { output::part(report.render()) }
}

/// Times every case.
///
/// # Errors
/// As [`run`].
pub(super) fn measure(cases: &[Case], block: Block, repeats: usize) -> anyhow::Result<Report> {
    let mut ops = Vec::new();
    for case in cases {
        let forward = case.forward.as_ref().map(|pass| time(pass, repeats)).transpose()?;
        let backward = case.backward.as_ref().map(|pass| time(pass, repeats)).transpose()?;
        let (mut slow_forward, mut slow_both) = (None, None);
        if let Some(reference) = &case.reference {
            slow_forward = Some(median(seconds(1, repeats, || (reference.value)().map(drop))?));
            slow_both = Some(median(seconds(1, repeats, || differentiate(reference))?));
        }
        if let (Some(pass), Some(time)) = (&case.forward, forward) {
            ops.push(row(case.name, "forward", pass, time, time, slow_forward));
        }
        if let (Some(pass), Some(time)) = (&case.backward, backward) {
            // A fused backward (no forward call in a step) is both passes already.
            let apart = case.forward.as_ref().is_some_and(|pass| pass.calls > 0);
            let both = time + if apart { forward.unwrap_or(0.0) } else { 0.0 };
            ops.push(row(case.name, "both", pass, time, both, slow_both));
        }
    }
    Ok(Report { batch: block.rows, seq: block.tokens, threads: rayon::current_num_threads(), ops })
}

fn time(pass: &Pass, repeats: usize) -> anyhow::Result<f64> {
    Ok(median(seconds(1, repeats, &pass.run)?))
}

/// The reference's value and every gradient of it, by autograd.
fn differentiate(reference: &Reference) -> anyhow::Result<()> {
    let value: Tensor = (reference.value)()?;
    value.sum_all()?.backward()?;
    Ok(())
}

/// A row; the rate is that of the pass alone, `seconds` what it takes with the forward pass before it.
fn row(
    op: &'static str,
    pass_name: &'static str,
    pass: &Pass,
    alone: f64,
    seconds: f64,
    reference_seconds: Option<f64>,
) -> Row {
    let (rate, unit) = pass.work.rate(alone);
    let speedup = reference_seconds.map(|slow| slow / seconds);
    Row { op, pass: pass_name, seconds, rate, unit, reference_seconds, speedup }
}

impl Report {
    fn render(&self) -> String {
        use std::fmt::Write as _;
        let mut text = format!("{} × {} tokens, {} threads\n", self.batch, self.seq, self.threads);
        let _ = writeln!(
            text,
            "{:18}{:9}{:>10}{:>16}{:>14}{:>9}",
            "op", "pass", "ms", "rate", "reference ms", "speedup"
        );
        for Row { op, pass, seconds, rate, unit, reference_seconds, speedup } in &self.ops {
            let _ = write!(text, "{op:18}{pass:9}{:>10.3}{rate:>8.1} {unit:7}", 1e3 * seconds);
            let _ = match (reference_seconds, speedup) {
                (Some(slow), Some(speedup)) => writeln!(text, "{:>14.3}{speedup:>8.1}×", 1e3 * slow),
                _ => writeln!(text),
            };
        }
        text
    }
}
