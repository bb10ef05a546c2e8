//! `bench step`: a whole training step, and where its time goes.

use atpm_core::optim::adamw;
use atpm_core::{Precision, Segments};
use atpm_model::{Decoder, Flops, ModelConfig, ModelKind, Parameter, zero_gradients};
use candle_core::{Device, Tensor};
use serde::Serialize;

use super::cases::Cases;
use super::cases::update::ADAMW;
use super::clock::{PeakSizes, Peaks, Resident, matmul_peak_on, median, resident_bytes, seconds};
use super::op_table::OpTable;
use super::sizes::{self, Block, Random, SizeArgs, Sizes};
use crate::report::output;
use crate::run::device;
use crate::training::step::{clip_scale, global_norm, members, zero_moments};

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
    /// Leave the table of ops out, as for other kinds than ATPM.
    #[arg(long)]
    no_ops: bool,
    /// Where to compute: `auto` (the CPU), `cpu`, `cuda` or `cuda:N`; the last two in a build with CUDA.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    device: String,
    /// One JSON object: `params`, `batch`, `seq`, `dtype`, `threads`, `tokens_per_s` (median), `s_per_step`, `loss`,
    /// `flop_per_token`, `gflop_per_s`, `peak_gflop_per_s` (the best large matrix product of the same run, in the same
    /// dtype), `share_of_peak`, `peak_rss_bytes`, and `table`: `peak_f32_gflop_per_s`, `memory` (`mixed` and `read`,
    /// GB/s), `not_products_share`, `unlisted_share`, and `ops`: `op`, `pass`, `calls`, `seconds` (a step), `share`, `flop`
    /// (a call; null where the op is not made of matrix products), `gflop_per_s`, `share_of_peak`, `bytes` (a call),
    /// `gb_per_s`, `share_of_memory`.
    #[arg(long)]
    json: bool,
}

/// What a measured step gives.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    params: usize,
    batch: usize,
    seq: usize,
    dtype: &'static str,
    threads: usize,
    tokens_per_s: f64,
    s_per_step: f64,
    loss: f64,
    flop_per_token: f64,
    gflop_per_s: f64,
    peak_gflop_per_s: f64,
    share_of_peak: f64,
    peak_rss_bytes: Option<u64>,
    table: Option<OpTable>,
}

/// Measures and reports.
///
/// # Errors
/// Sizes that cannot be built, or an op that refuses.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let device = device::open(&args.device)?;
    let Sizes { model, block, precision } = args.sizes.resolve(&device)?;
    let block = Block {
        rows: args.batch.or(block.map(|block| block.rows)).unwrap_or(4),
        tokens: args.seq.or(block.map(|block| block.tokens)).unwrap_or(1024),
    };
    let settings =
        Settings { steps: args.steps, ops: !args.no_ops, precision, peaks: PeakSizes::of(&device) };
    let report = measure(&model, block, settings, &device)?;
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
    /// What the machine's peaks are measured on.
    pub(super) peaks: PeakSizes,
}

/// Measures a step, the machine's peak, and each op alone if asked to.
///
/// # Errors
/// As [`run`].
pub(super) fn measure(
    model: &ModelConfig,
    block: Block,
    settings: Settings,
    device: &Device,
) -> anyhow::Result<Report> {
    let step = Step::new(model, block, settings.precision, device)?;
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
    let peak_gflop_per_s = matmul_peak_on(device, settings.peaks.side, settings.precision)?;
    let table = if settings.ops && model.kind == ModelKind::Atpm {
        let peaks = Peaks::beside(peak_gflop_per_s, device, settings.precision, settings.peaks)?;
        let cases = Cases::new(model, block, settings.precision, device)?;
        Some(OpTable::measure(cases, device, peaks, s_per_step)?)
    } else {
        None
    };
    let tokens_per_s = block.count() as f64 / s_per_step;
    let flop_per_token = Flops::of_documents(model, block.tokens).training();
    let gflop_per_s = tokens_per_s * flop_per_token / 1e9;
    Ok(Report {
        params,
        batch: block.rows,
        seq: block.tokens,
        dtype: sizes::name(settings.precision),
        threads: rayon::current_num_threads(),
        tokens_per_s,
        s_per_step,
        loss,
        flop_per_token,
        gflop_per_s,
        peak_gflop_per_s,
        share_of_peak: gflop_per_s / peak_gflop_per_s,
        peak_rss_bytes,
        table,
    })
}

/// A model, its optimiser's memory and one block of random tokens.
struct Step {
    model: Decoder,
    parameters: Vec<Parameter>,
    m: Vec<Tensor>,
    v: Vec<Tensor>,
    ids: Tensor,
    targets: Tensor,
    segments: Segments,
}

impl Step {
    fn new(
        config: &ModelConfig,
        block: Block,
        precision: Precision,
        device: &Device,
    ) -> anyhow::Result<Self> {
        let model = Decoder::new(config, 0, device)?.with_precision(precision);
        let parameters = model.parameters();
        let tokens = Random(7).ids(&[block.rows, block.tokens + 1], config.vocab)?;
        Ok(Self {
            ids: tokens.narrow(1, 0, block.tokens)?.contiguous()?,
            targets: tokens.narrow(1, 1, block.tokens)?.contiguous()?,
            segments: Segments::from_starts(block.tokens, vec![vec![0]; block.rows])?,
            model,
            m: zero_moments(&parameters)?,
            v: zero_moments(&parameters)?,
            parameters,
        })
    }

    /// Forward, backward, clipping and update, as a run does them with `train.accumulate = 1`; gives the mean loss in nats.
    fn run(&self, step: u64) -> anyhow::Result<f64> {
        zero_gradients(&self.parameters)?;
        let scale = 1.0 / self.ids.elem_count() as f64;
        let output = self.model.train_step_backward(&self.ids, &self.targets, &self.segments, scale, 0.0)?;
        let gradients: Vec<_> = self.parameters.iter().map(|parameter| &parameter.gradient).collect();
        let norm = global_norm(&gradients)?;
        let config = adamw::Config { grad_scale: clip_scale(norm, 1.0), step, ..ADAMW };
        adamw::update_all(&config, &members(&self.parameters, &self.m, &self.v))?;
        let losses = atpm_core::read_f32(&output.token_losses)?;
        Ok(losses.into_iter().map(f64::from).sum::<f64>() * scale)
    }
}

impl Report {
    fn render(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{} parameters, {} × {} tokens a step, {}, {} threads\n{:.0} tokens/s, {:.3} s a step, {:.1} GFLOP/s: \
             {:.1} % of the {:.1} GFLOP/s of a large matrix product",
            self.params,
            self.batch,
            self.seq,
            self.dtype,
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
        if let Some(table) = &self.table {
            let _ = write!(text, "\n{}", table.render());
        }
        text
    }
}
