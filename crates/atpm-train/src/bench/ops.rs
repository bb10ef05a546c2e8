//! `bench ops`: each op beside the least time that the device needs for it, and beside its reference in plain candle
//! operations.

use atpm_model::ModelKind;
use candle_core::{Device, Tensor};
use serde::Serialize;

use super::cases::{Case, Cases, Pass, Reference};
use super::clock::{PeakSizes, Peaks, median, seconds, seconds_on};
use super::sizes::{self, Block, SizeArgs, Sizes};
use super::work::Floors;
use crate::report::output;
use crate::run::device;
use crate::run::exit::user;

/// Flags of `bench ops`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    sizes: SizeArgs,
    /// Rows. Default: the config's, or 2.
    #[arg(long)]
    batch: Option<usize>,
    /// Tokens of a row. Default: the config's, or 256.
    #[arg(long)]
    seq: Option<usize>,
    /// Only ops whose name begins with this.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    op: String,
    /// Runs that count, after one that does not.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Where to compute: `auto` (the CPU), `cpu`, `cuda` or `cuda:N`; the last two in a build with CUDA.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    device: String,
    /// One JSON object: `device`, `batch`, `seq`, `dtype`, `threads`, `peaks` of the same run (`f32_gflop_per_s`,
    /// `gflop_per_s` in `dtype`, `memory` with `mixed` and `read` in GB/s), and `ops`: `op`, `pass` (`forward`, or `both`
    /// for forward and backward together), `seconds` (median), `rate` and `unit` of the last of its passes,
    /// `memory_floor_seconds` (its bytes at the speed of memory), `product_floor_seconds` (its matrix products at their
    /// peak; null where there are none), `times_floor` (`seconds` over the higher floor), and, on the CPU where the op has a
    /// reference in plain candle operations, `reference_seconds` and `speedup`.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Report {
    device: String,
    batch: usize,
    seq: usize,
    dtype: &'static str,
    threads: usize,
    peaks: Peaks,
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
    pub(super) memory_floor_seconds: f64,
    pub(super) product_floor_seconds: Option<f64>,
    pub(super) times_floor: f64,
    pub(super) reference_seconds: Option<f64>,
    speedup: Option<f64>,
}

/// Measures and reports.
///
/// # Errors
/// Sizes that cannot be built, a device that cannot be opened, or an op that refuses.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let device = device::open(&args.device)?;
    let Sizes { model, block, precision } = args.sizes.resolve(&device)?;
    if model.kind != ModelKind::Atpm {
        let kind = model.kind.name();
        return Err(user(format!("model.kind = \"{kind}\": only \"atpm\" can be measured op by op")));
    }
    let block = Block {
        rows: args.batch.or(block.map(|block| block.rows)).unwrap_or(2),
        tokens: args.seq.or(block.map(|block| block.tokens)).unwrap_or(256),
    };
    let cases = Cases::new(&model, block, precision, &device)?.only(&args.op);
    let peaks = Peaks::measure(&device, precision, PeakSizes::of(&device))?;
    let report = Report {
        device: args.device.clone(),
        batch: block.rows,
        seq: block.tokens,
        dtype: sizes::name(precision),
        threads: rayon::current_num_threads(),
        peaks,
        ops: measure(cases, &device, &peaks, args.repeats)?,
    };
    if report.ops.is_empty() {
        return Err(user(format!("no op's name begins with `{}`; `bench ops` lists them", args.op)));
    }
    if args.json { output::json(&report) } else { output::part(report.render()) }
}

/// Times every case.
///
/// # Errors
/// An op that refuses.
pub(super) fn measure(
    cases: Cases<'_>,
    device: &Device,
    peaks: &Peaks,
    repeats: usize,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    cases.each(|case| {
        rows.extend(measure_one(&case, device, peaks, repeats)?);
        Ok(())
    })?;
    Ok(rows)
}

/// A pass as it was measured.
struct Measured {
    seconds: f64,
    rate: (f64, &'static str),
    floors: Floors,
}

impl Measured {
    /// With the other pass before it; the rate stays its own.
    fn after(self, first: &Self) -> Self {
        Self { seconds: first.seconds + self.seconds, floors: first.floors.and(self.floors), ..self }
    }
}

fn measure_one(case: &Case, device: &Device, peaks: &Peaks, repeats: usize) -> anyhow::Result<Vec<Row>> {
    let measured = |pass: &Pass| -> anyhow::Result<Measured> {
        let seconds = median(seconds_on(device, 1, repeats, &pass.run)?);
        Ok(Measured { seconds, rate: pass.work.rate(seconds), floors: pass.work.floors(peaks) })
    };
    let forward = case.forward.as_ref().map(measured).transpose()?;
    let backward = case.backward.as_ref().map(measured).transpose()?;
    let (mut slow_forward, mut slow_both) = (None, None);
    if let Some(reference) = &case.reference {
        slow_forward = Some(median(seconds(1, repeats, || (reference.value)().map(drop))?));
        slow_both = Some(median(seconds(1, repeats, || differentiate(reference))?));
    }
    // A fused backward (no forward call in a step) is both passes already.
    let apart = case.forward.as_ref().is_some_and(|pass| pass.calls > 0);
    let both = backward.map(|backward| match &forward {
        Some(forward) if apart => backward.after(forward),
        _ => backward,
    });
    let forward = forward.map(|pass| Row::new(case.name, "forward", &pass, slow_forward));
    Ok(forward.into_iter().chain(both.map(|pass| Row::new(case.name, "both", &pass, slow_both))).collect())
}

/// The reference's value and every gradient of it, by autograd.
fn differentiate(reference: &Reference) -> anyhow::Result<()> {
    let value: Tensor = (reference.value)()?;
    value.sum_all()?.backward()?;
    Ok(())
}

impl Row {
    fn new(
        op: &'static str,
        pass: &'static str,
        measured: &Measured,
        reference_seconds: Option<f64>,
    ) -> Self {
        let &Measured { seconds, rate: (rate, unit), floors } = measured;
        Self {
            op,
            pass,
            seconds,
            rate,
            unit,
            memory_floor_seconds: floors.memory,
            product_floor_seconds: floors.products,
            times_floor: seconds / floors.higher(),
            reference_seconds,
            speedup: reference_seconds.map(|slow| slow / seconds),
        }
    }
}

impl Report {
    fn render(&self) -> String {
        use std::fmt::Write as _;
        let Self { device, batch, seq, dtype, threads, peaks, ops } = self;
        let mut text = format!(
            "{batch} × {seq} tokens, {dtype}, device {device}, {threads} threads\n\
             peaks: products {:.1} GFLOP/s in {dtype}, {:.1} in f32; memory {:.1} GB/s\n",
            peaks.gflop_per_s, peaks.f32_gflop_per_s, peaks.memory.mixed
        );
        let _ = writeln!(
            text,
            "{:18}{:9}{:>10}{:>17}{:>11}{:>13}{:>9}{:>14}{:>9}",
            "op", "pass", "ms", "rate", "memory ms", "products ms", "× floor", "reference ms", "speedup"
        );
        let optional = |number: Option<f64>| number.map_or_else(String::new, |number| format!("{number:.3}"));
        for row in ops {
            let Row { op, pass, seconds, rate, unit, times_floor, .. } = row;
            let (memory, products) = (1e3 * row.memory_floor_seconds, row.product_floor_seconds);
            let _ = write!(
                text,
                "{op:18}{pass:9}{:>10.3}{rate:>9.1} {unit:7}{memory:>11.3}{:>13}{times_floor:>9.1}",
                1e3 * seconds,
                optional(products.map(|seconds| 1e3 * seconds))
            );
            let _ = match (row.reference_seconds, row.speedup) {
                (Some(slow), Some(speedup)) => writeln!(text, "{:>14.3}{speedup:>8.1}×", 1e3 * slow),
                _ => writeln!(text),
            };
        }
        text
    }
}
