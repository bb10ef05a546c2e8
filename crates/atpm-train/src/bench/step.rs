//! `bench step`: a whole training step, and where its time goes.

use atpm_core::optim::adamw;
use atpm_core::{Precision, Segments};
use atpm_model::{Decoder, Flops, ModelConfig, Parameter, zero_gradients};
use candle_core::{Device, Tensor};
use serde::Serialize;

use super::cases::{Cases, Pass};
use super::clock::{PEAK_SIDE, Resident, matmul_peak, median, resident_bytes, seconds};
use super::sizes::{Block, Random, SizeArgs};
use crate::report::output;

/// Flags of `bench step`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    sizes: SizeArgs,
    /// Rows of a step. Default: the config's, or 4.
    #[arg(long)]
    batch: Option<usize>,
    /// Tokens of a row. Default: the config's, or 1024.
    #[arg(long)]
    seq: Option<usize>,
    /// Steps that count, after two that do not.
    #[arg(long, default_value_t = 5)]
    steps: usize,
    /// Leave the table of ops out.
    #[arg(long)]
    no_ops: bool,
    /// One JSON object: `params`, `batch`, `seq`, `threads`, `tokens_per_s` (median), `s_per_step`, `loss`,
    /// `flop_per_token`, `gflop_per_s`, `peak_gflop_per_s` (the best large matrix product of the same run, in the same dtype),
    /// `share_of_peak`, `peak_rss_bytes`, and `ops`: `op`, `pass`, `calls`, `seconds` (a step), `share`, `rate`, `unit`.
    #[arg(long)]
    json: bool,
}

/// What a measured step gives.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    params: usize,
    batch: usize,
    seq: usize,
    threads: usize,
    tokens_per_s: f64,
    s_per_step: f64,
    loss: f64,
    flop_per_token: f64,
    gflop_per_s: f64,
    peak_gflop_per_s: f64,
    share_of_peak: f64,
    peak_rss_bytes: Option<u64>,
    ops: Vec<OpRow>,
}

/// One op's part of a step.
#[derive(Debug, Serialize)]
pub(super) struct OpRow {
    op: &'static str,
    pass: &'static str,
    calls: usize,
    /// Of all calls of a step.
    seconds: f64,
    share: f64,
    rate: f64,
    unit: &'static str,
}

/// Measures and reports.
///
/// # Errors
/// Sizes that cannot be built, or an op that refuses.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let (model, block) = args.sizes.resolve()?;
    let block = Block {
        rows: args.batch.or(block.map(|block| block.rows)).unwrap_or(4),
        tokens: args.seq.or(block.map(|block| block.tokens)).unwrap_or(1024),
    };
    let settings = Settings {
        steps: args.steps,
        ops: !args.no_ops,
        precision: args.sizes.precision()?,
        peak_side: PEAK_SIDE,
    };
    let report = measure(&model, block, settings)?;
    if args.json { output::json(&report) } else { output::part(report.render()) }
}

/// How to measure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    /// Steps that count.
    pub(super) steps: usize,
    /// Whether each op is measured alone, too.
    pub(super) ops: bool,
    /// What the operands of matrix products are rounded to.
    pub(super) precision: Precision,
    /// Side of the square matrices whose product stands for the peak.
    pub(super) peak_side: usize,
}

/// Measures a step, the machine's peak, and each op alone if asked to.
///
/// # Errors
/// As [`run`].
pub(super) fn measure(model: &ModelConfig, block: Block, settings: Settings) -> anyhow::Result<Report> {
    let step = Step::new(model, block, settings.precision)?;
    let mut loss = f64::NAN;
    let mut number = 0;
    let s_per_step = median(seconds(2, settings.steps, || {
        number += 1;
        loss = step.run(number)?;
        Ok(())
    })?);
    let params = step.parameters.iter().map(|parameter| parameter.value.elem_count()).sum();
    let peak_rss_bytes = resident_bytes(Resident::Peak);
    drop(step);
    let peak_gflop_per_s = matmul_peak(settings.peak_side, settings.precision)?;
    let tokens_per_s = block.count() as f64 / s_per_step;
    let flop_per_token = Flops::of(model).training();
    let gflop_per_s = tokens_per_s * flop_per_token / 1e9;
    Ok(Report {
        params,
        batch: block.rows,
        seq: block.tokens,
        threads: rayon::current_num_threads(),
        tokens_per_s,
        s_per_step,
        loss,
        flop_per_token,
        gflop_per_s,
        peak_gflop_per_s,
        share_of_peak: gflop_per_s / peak_gflop_per_s,
        peak_rss_bytes,
        ops: if settings.ops { op_table(model, block, settings.precision, s_per_step)? } else { Vec::new() },
    })
}

/// A model, its optimiser's memory and one block of random tokens.
struct Step {
    model: Decoder,
    parameters: Vec<Parameter>,
    moments: Vec<(Tensor, Tensor)>,
    ids: Tensor,
    targets: Tensor,
    segments: Segments,
}

impl Step {
    fn new(config: &ModelConfig, block: Block, precision: Precision) -> anyhow::Result<Self> {
        let model = Decoder::new(config, 0, &Device::Cpu)?.with_precision(precision);
        let parameters = model.parameters();
        let moments = parameters
            .iter()
            .map(|parameter| Ok((parameter.value.zeros_like()?, parameter.value.zeros_like()?)));
        let moments = moments.collect::<candle_core::Result<_>>()?;
        let tokens = Random(7).ids(&[block.rows, block.tokens + 1], config.vocab)?;
        Ok(Self {
            ids: tokens.narrow(1, 0, block.tokens)?.contiguous()?,
            targets: tokens.narrow(1, 1, block.tokens)?.contiguous()?,
            segments: Segments::from_starts(block.tokens, vec![vec![0]; block.rows])?,
            model,
            parameters,
            moments,
        })
    }

    /// Forward, backward, clipping and update, as a run does them; gives the mean loss in nats.
    fn run(&self, step: u64) -> anyhow::Result<f64> {
        zero_gradients(&self.parameters)?;
        let scale = 1.0 / self.ids.elem_count() as f64;
        let output = self.model.train_step_backward(&self.ids, &self.targets, &self.segments, scale, 0.0)?;
        let mut square = 0.0;
        for parameter in &self.parameters {
            square += adamw::squared_norm(&parameter.gradient)?;
        }
        for (parameter, (m, v)) in self.parameters.iter().zip(&self.moments) {
            let config = adamw::Config {
                lr: 1e-4,
                beta1: 0.9,
                beta2: 0.95,
                eps: 1e-8,
                weight_decay: if parameter.decay { 0.1 } else { 0.0 },
                grad_scale: (1.0 / square.sqrt()).min(1.0),
                step,
            };
            adamw::update(&config, &parameter.value, m, v, &parameter.gradient)?;
        }
        let losses = atpm_core::read_f32(&output.token_losses)?;
        Ok(losses.into_iter().map(f64::from).sum::<f64>() * scale)
    }
}

fn op_table(
    model: &ModelConfig,
    block: Block,
    precision: Precision,
    s_per_step: f64,
) -> anyhow::Result<Vec<OpRow>> {
    let mut rows = Vec::new();
    for case in Cases::new(model, block, precision).all()? {
        for (direction, pass) in [("forward", &case.forward), ("backward", &case.backward)] {
            if let Some(pass) = pass.as_ref().filter(|pass| pass.calls > 0) {
                rows.push(op_row(case.name, direction, pass, s_per_step)?);
            }
        }
    }
    Ok(rows)
}

fn op_row(op: &'static str, direction: &'static str, pass: &Pass, s_per_step: f64) -> anyhow::Result<OpRow> {
    let once = median(seconds(1, 5, &pass.run)?);
    let seconds = once * pass.calls as f64;
    let (rate, unit) = pass.work.rate(once);
    Ok(OpRow { op, pass: direction, calls: pass.calls, seconds, share: seconds / s_per_step, rate, unit })
}

impl Report {
    fn render(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{} parameters, {} × {} tokens a step, {} threads\n{:.0} tokens/s, {:.3} s a step, {:.1} GFLOP/s: \
             {:.1} % of the {:.1} GFLOP/s of a large matrix product",
            self.params,
            self.batch,
            self.seq,
            self.threads,
            self.tokens_per_s,
            self.s_per_step,
            self.gflop_per_s,
            100.0 * self.share_of_peak,
            self.peak_gflop_per_s
        );
        if let Some(bytes) = self.peak_rss_bytes {
            let _ = writeln!(text, "{:.2} GB of memory at most", bytes as f64 / 1e9);
        }
        if !self.ops.is_empty() {
            let _ = writeln!(
                text,
                "\n{:18}{:10}{:>7}{:>10}{:>8}{:>16}",
                "op, alone", "pass", "calls", "ms", "share", "rate"
            );
        }
        for row in &self.ops {
            let OpRow { op, pass, calls, seconds, share, rate, unit } = row;
            let (ms, percent) = (1e3 * seconds, 100.0 * share);
            let _ = writeln!(text, "{op:18}{pass:10}{calls:>7}{ms:>10.1}{percent:>7.1}%{rate:>8.1} {unit:7}");
        }
        text
    }
}
