//! Where a step's time goes: every op alone, beside what the machine can do.
//!
//! Two peaks are measured in the same run: that of a large matrix product and that of moving memory. An op made of
//! matrix products (projections, the mixer, the loss with its projection) is judged by the first, any other by the second.

use std::fmt::Write as _;

use candle_core::Device;
use serde::Serialize;

use super::cases::{Cases, Pass};
use super::clock::{MemoryPeak, Peaks, median, seconds_on};
use super::work::Products;

/// All ops of a step, and the peaks that they are held to.
#[derive(Debug, Serialize)]
pub(super) struct OpTable {
    /// The f32 products' peak: of the controllers, and on the CPU of the mixer, whatever the step's dtype is.
    peak_f32_gflop_per_s: f64,
    memory: MemoryPeak,
    /// Of the step's time: all ops of the table that are not made of matrix products.
    not_products_share: f64,
    /// Of the step's time: what no op of the table took (residual additions, and what alone goes faster than in a step).
    unlisted_share: f64,
    ops: Vec<OpRow>,
}

/// One op's part of a step.
#[derive(Debug, Serialize)]
struct OpRow {
    op: &'static str,
    pass: &'static str,
    calls: usize,
    /// Of all calls of a step.
    seconds: f64,
    share: f64,
    flop: Option<f64>,
    gflop_per_s: Option<f64>,
    share_of_peak: Option<f64>,
    bytes: f64,
    gb_per_s: f64,
    share_of_memory: f64,
}

impl OpTable {
    /// Measures every op of a step that takes this long.
    ///
    /// # Errors
    /// An op that refuses.
    pub(super) fn measure(
        cases: Cases<'_>,
        device: &Device,
        peaks: Peaks,
        s_per_step: f64,
    ) -> anyhow::Result<Self> {
        let mut ops = Vec::new();
        cases.each(|case| {
            for (direction, pass) in [("forward", &case.forward), ("backward", &case.backward)] {
                if let Some(pass) = pass.as_ref().filter(|pass| pass.calls > 0) {
                    let once = median(seconds_on(device, 1, 5, &pass.run)?);
                    ops.push(OpRow::new(case.name, direction, pass, once, s_per_step, &peaks));
                }
            }
            Ok(())
        })?;
        let share = |rows: &mut dyn Iterator<Item = &OpRow>| rows.map(|row| row.share).sum::<f64>();
        Ok(Self {
            peak_f32_gflop_per_s: peaks.f32_gflop_per_s,
            memory: peaks.memory,
            not_products_share: share(&mut ops.iter().filter(|row| row.flop.is_none())),
            unlisted_share: 1.0 - share(&mut ops.iter()),
            ops,
        })
    }

    /// The table as aligned plain text.
    pub(super) fn render(&self) -> String {
        let mut text = format!(
            "{:18}{:10}{:>6}{:>9}{:>8}{:>10}{:>9}{:>10}{:>8}{:>9}\n",
            "op, alone", "pass", "calls", "ms", "share", "GFLOP/s", "of peak", "MB a call", "GB/s", "memory"
        );
        for row in &self.ops {
            let OpRow { op, pass, calls, .. } = row;
            let (ms, share) = (1e3 * row.seconds, 100.0 * row.share);
            let _ = write!(text, "{op:18}{pass:10}{calls:>6}{ms:>9.1}{share:>7.1}%");
            let _ = match (row.gflop_per_s, row.share_of_peak) {
                (Some(rate), Some(share)) => write!(text, "{rate:>10.1}{:>8.0}%", 100.0 * share),
                _ => write!(text, "{:>10}{:>9}", "", ""),
            };
            let (megabytes, memory) = (row.bytes / 1e6, 100.0 * row.share_of_memory);
            let _ = writeln!(text, "{megabytes:>10.1}{:>8.1}{memory:>8.0}%", row.gb_per_s);
        }
        let _ = writeln!(
            text,
            "not a matrix product: {:.1} % of the step; in no op of the table: {:.1} %\n\
             peaks: {:.1} GFLOP/s in f32; memory {:.1} GB/s copied or in a triad, {:.1} GB/s read",
            100.0 * self.not_products_share,
            100.0 * self.unlisted_share,
            self.peak_f32_gflop_per_s,
            self.memory.mixed,
            self.memory.read
        );
        text
    }
}

impl OpRow {
    /// `once`: seconds of a call.
    fn new(
        op: &'static str,
        direction: &'static str,
        pass: &Pass,
        once: f64,
        s_per_step: f64,
        peaks: &Peaks,
    ) -> Self {
        let seconds = once * pass.calls as f64;
        let products = pass.work.products;
        let rate = |products: Products| products.flop / once / 1e9;
        let gb_per_s = pass.work.bytes / once / 1e9;
        Self {
            op,
            pass: direction,
            calls: pass.calls,
            seconds,
            share: seconds / s_per_step,
            flop: products.map(|products| products.flop),
            gflop_per_s: products.map(rate),
            share_of_peak: products.map(|products| rate(products) / peaks.products(products.precision)),
            bytes: pass.work.bytes,
            gb_per_s,
            share_of_memory: gb_per_s / peaks.memory.mixed,
        }
    }
}
