//! Ticks at round numbers, the map from values to places, and where the loss axis breaks.

use super::trace::{Point, Trace};

/// An interval of values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Lower end.
    pub low: f64,
    /// Upper end, above `low`.
    pub high: f64,
}

impl Span {
    /// The smallest interval that holds the values; `None` without any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        values.into_iter().fold(None, |span: Option<Self>, value| {
            let span = span.unwrap_or(Self { low: value, high: value });
            Some(Self { low: span.low.min(value), high: span.high.max(value) })
        })
    }

    /// The interval widened by a share of its length on both sides; a single value gets a tenth of
    /// its size, or one unit at zero, so that it can be drawn.
    #[must_use]
    pub fn padded(self, share: f64) -> Self {
        let length = self.high - self.low;
        let pad = if length > 0.0 {
            length * share
        } else if self.low == 0.0 {
            1.0
        } else {
            self.low.abs() * 0.1
        };
        Self { low: self.low - pad, high: self.high + pad }
    }

    /// Its length.
    pub fn length(&self) -> f64 {
        self.high - self.low
    }

    /// Whether the value lies inside.
    pub fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// Round numbers inside the span: about this many, at steps of 1, 2, 2.5 or 5 times a power of ten.
pub fn ticks(span: Span, about: usize) -> Vec<f64> {
    let rough = span.length() / about.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|f| f * power >= rough * 0.999).unwrap_or(10.0);
    let step = factor * power;
    let (first, last) = ((span.low / step).ceil(), (span.high / step + 1e-9).floor());
    let marks = std::iter::successors(Some(first), |mark| Some(mark + 1.0));
    // The bound ends the series where a value is so large that adding one changes nothing.
    marks.take_while(|&mark| mark <= last).take(64).map(|mark| mark * step).collect()
}

/// Labels of evenly spaced ticks, with as many decimals as tell them apart.
pub fn labels(ticks: &[f64]) -> Vec<String> {
    let step = ticks.windows(2).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min);
    let exact = |decimals: usize| {
        let unit = 10f64.powf(decimals as f64);
        ticks.iter().all(|tick| ((tick * unit).round() - tick * unit).abs() < step.min(1.0) * unit * 1e-6)
    };
    let decimals = (0..12).find(|&decimals| exact(decimals)).unwrap_or(12);
    ticks
        .iter()
        .map(|tick| if tick.abs() < 1e-12 { "0".into() } else { format!("{tick:.decimals$}") })
        .collect()
}

/// A count in short form: `950`, `12k`, `3.4M`, `1.2B`.
pub fn short(count: f64) -> String {
    for (unit, suffix) in [(1e9, "B"), (1e6, "M"), (1e3, "k")] {
        if count >= unit {
            let text = format!("{:.2}", count / unit);
            return format!("{}{suffix}", text.trim_end_matches('0').trim_end_matches('.'));
        }
    }
    format!("{count:.0}")
}

/// The share of a run's steps that the early fall may take: what comes later is convergence.
const EARLY_SHARE: f64 = 0.15;
/// Fewer points than this have no early and late part.
const MIN_POINTS: usize = 20;
/// The early fall must be this many times as high as the late range for the axis to break.
const MIN_RATIO: f64 = 0.8;

/// The loss axis: one scale, or two that meet at a break.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LossAxis {
    /// One scale for the whole trace.
    Whole(Span),
    /// The early fall in `upper`, convergence in `lower`; `upper.low == lower.high`.
    Broken {
        /// From the break to the highest loss.
        upper: Span,
        /// From the lowest loss to the break.
        lower: Span,
    },
}

impl LossAxis {
    /// The axis for these traces, each with its smoothed line.
    pub fn place(traces: &[(&Trace, Vec<Point>)]) -> Self {
        let losses = |points: &[Point]| points.iter().filter_map(|p| p.loss).collect::<Vec<_>>();
        let mut all = Vec::new();
        let mut late = Vec::new();
        for (trace, smoothed) in traces {
            all.extend(losses(&trace.points));
            all.extend(losses(&trace.validation));
            let early_end = early_end(&trace.points);
            let is_late = |point: &&Point| point.step as f64 >= early_end;
            let later =
                |points: &[Point]| losses(&points.iter().filter(is_late).copied().collect::<Vec<_>>());
            late.extend(later(smoothed));
            late.extend(later(&trace.validation));
            late.extend(inner_range(later(&trace.points)));
        }
        let whole = Span::of(all.iter().copied()).unwrap_or(Span { low: 0.0, high: 1.0 });
        let Some(stable) = Span::of(late).filter(|_| all.len() >= MIN_POINTS) else {
            return Self::Whole(whole.padded(0.05));
        };
        if whole.high - stable.high < MIN_RATIO * stable.length() || whole.high - stable.high <= 0.0 {
            return Self::Whole(whole.padded(0.05));
        }
        // A constant stable part still needs a scale: a fifth of the fall.
        let pad = (stable.length() * 0.06).max((whole.high - stable.high) * 0.02);
        let level = stable.high + pad;
        let upper = Span { low: level, high: whole.high + (whole.high - level) * 0.04 };
        Self::Broken { upper, lower: Span { low: stable.low - pad, high: level } }
    }
}

fn early_end(points: &[Point]) -> f64 {
    let (first, last) = (points.first().map_or(0, |p| p.step), points.last().map_or(0, |p| p.step));
    first as f64 + EARLY_SHARE * (last - first) as f64
}

/// The range of noisy values without the outermost hundredth on either side: single spikes must
/// not flatten everything else.
fn inner_range(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    let cut = values.len() / 100;
    match values.get(cut..values.len() - cut) {
        Some([low, .., high]) => vec![*low, *high],
        Some(few) => few.to_vec(),
        None => Vec::new(),
    }
}
