//! The picture: title, broken axis, curves, inset, legend.

use super::Options;
use super::axis::{LossAxis, Span, short};
use super::panel::{GRID, INK, MUTED, PAPER, Panel, SPINE};
use super::svg::{Anchor, Font, Frame, Stroke, Svg};
use super::trace::{Point, Trace};

/// Width of the picture, in units: a README's column.
pub(super) const WIDTH: f64 = 900.0;
const PLOT: Frame = Frame { left: 66.0, top: 74.0, right: WIDTH - 26.0, bottom: 500.0 };
/// Height of the early fall's frame, as a share of the plot.
const UPPER_SHARE: f64 = 0.44;
/// Space between the two frames of a broken axis.
const BREAK: f64 = 14.0;
const LEGEND_TOP: f64 = PLOT.bottom + 62.0;
const LEGEND_ROW: f64 = 24.0;
/// Share of the steps, at the end, that the inset magnifies.
const INSET_SHARE: f64 = 0.4;
/// Fewer points than this are not worth an inset.
const INSET_POINTS: usize = 10;

/// Okabe and Ito's palette, and two colours that keep apart from it under every common colour
/// blindness; yellow is left out because paper is white.
pub(super) const PALETTE: [&str; super::MAX_RUNS] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#332288", "#6e7781"];

/// One run, ready to draw.
struct Curve<'a> {
    trace: &'a Trace,
    smoothed: Vec<Point>,
    color: &'static str,
    shape: usize,
}

/// The SVG document of these traces, one to [`super::MAX_RUNS`] of them.
pub(super) fn draw(traces: &[Trace], options: &Options) -> String {
    let pairs: Vec<_> = traces.iter().map(|trace| (trace, trace.smoothed(options.smoothing))).collect();
    let axis = LossAxis::place(&pairs);
    let curves: Vec<Curve<'_>> = pairs
        .into_iter()
        .zip(PALETTE)
        .enumerate()
        .map(|(shape, ((trace, smoothed), color))| Curve { trace, smoothed, color, shape })
        .collect();
    let columns = if curves.len() > 2 { 2 } else { 1 };
    let rows = curves.len().div_ceil(columns) as f64;
    let title = options.title.clone().unwrap_or_else(|| default_title(traces));
    let mut svg = Svg::new(WIDTH, LEGEND_TOP + rows * LEGEND_ROW + 4.0, PAPER, &title);
    heading(&mut svg, &title, options.smoothing);
    plot(&mut svg, &curves, &axis, step_span(traces));
    legend(&mut svg, &curves, columns, options.smoothing);
    svg.finish()
}

fn default_title(traces: &[Trace]) -> String {
    match traces {
        [only] => format!("Loss of {}", only.name),
        several => format!("Loss of {} runs", several.len()),
    }
}

fn step_span(traces: &[Trace]) -> Span {
    let points = traces.iter().flat_map(|trace| trace.points.iter().chain(&trace.validation));
    let span = Span::of(points.map(|point| point.step as f64)).unwrap_or(Span { low: 0.0, high: 1.0 });
    if span.length() > 0.0 {
        Span { high: span.high + span.length() * 0.01, ..span }
    } else {
        Span { low: span.low - 1.0, high: span.high + 1.0 }
    }
}

fn font(size: f64, color: &str, anchor: Anchor) -> Font<'_> {
    Font { size, color, anchor, strong: false }
}

fn heading(svg: &mut Svg, title: &str, smoothing: f64) {
    let strong = Font { strong: true, ..font(20.0, INK, Anchor::Start) };
    svg.text((22.0, 34.0), strong, &shortened(title, 76));
    let lines = if smoothing > 0.0 { "bold: smoothed · faint: every step" } else { "line: every step" };
    let caption = format!("{lines} · marks: validation");
    svg.text((22.0, 56.0), font(13.0, MUTED, Anchor::Start), &caption);
}

fn plot(svg: &mut Svg, curves: &[Curve<'_>], axis: &LossAxis, steps: Span) {
    match *axis {
        LossAxis::Whole(losses) => {
            let panel = Panel { frame: PLOT, steps, losses };
            frame_of(svg, &panel, 7);
            content(svg, &panel, curves, 1.0);
            panel.step_labels(svg, 8, 13.0, 0.0);
        }
        LossAxis::Broken { upper, lower } => {
            let split = PLOT.top + (PLOT.height() - BREAK) * UPPER_SHARE;
            let above = Panel { frame: Frame { bottom: split, ..PLOT }, steps, losses: upper };
            let below = Panel { frame: Frame { top: split + BREAK, ..PLOT }, steps, losses: lower };
            for (panel, count) in [(&above, 4), (&below, 5)] {
                frame_of(svg, panel, count);
                content(svg, panel, curves, 1.0);
            }
            break_marks(svg, split);
            below.step_labels(svg, 8, 13.0, 0.0);
            inset(svg, &above, &below, curves);
        }
    }
    svg.text(
        (f64::midpoint(PLOT.left, PLOT.right), PLOT.bottom + 40.0),
        font(13.0, INK, Anchor::Middle),
        "step",
    );
    let middle = (20.0, f64::midpoint(PLOT.top, PLOT.bottom));
    svg.text_upwards(middle, font(13.0, INK, Anchor::Middle), "loss, nats per token");
}

/// Grid lines, tick values and the spine at the left.
fn frame_of(svg: &mut Svg, panel: &Panel, loss_ticks: usize) {
    panel.step_grid(svg, 8);
    panel.loss_grid(svg, loss_ticks, 13.0);
    let Frame { left, top, right, bottom } = panel.frame;
    svg.line((left, top), (left, bottom), Stroke::solid(SPINE, 1.0));
    if bottom >= PLOT.bottom {
        svg.line((left, bottom), (right, bottom), Stroke::solid(SPINE, 1.0));
    }
}

/// The two slanted strokes at either side that say: the scale changes here.
fn break_marks(svg: &mut Svg, split: f64) {
    for x in [PLOT.left, PLOT.right] {
        for y in [split, split + BREAK] {
            svg.line((x - 6.0, y + 3.5), (x + 6.0, y - 3.5), Stroke::solid(SPINE, 1.4));
        }
    }
    for y in [split, split + BREAK] {
        let dashed = Stroke { dashes: "2 4", ..Stroke::solid(SPINE, 0.8) };
        svg.line((PLOT.left + 9.0, y), (PLOT.right - 9.0, y), dashed);
    }
}

/// The curves of all runs: raw traces below, smoothed lines over them, validation marks on top.
fn content(svg: &mut Svg, panel: &Panel, curves: &[Curve<'_>], weight: f64) {
    let faint = if curves.len() > 3 { 0.16 } else { 0.28 };
    // Marks at the frame's edge may stand out of it by their radius.
    let Frame { left, top, right, bottom } = panel.frame;
    let wide = Frame { left, top: top - 1.0, right: right + 6.0, bottom: bottom + 1.0 };
    svg.clipped(wide, |svg| {
        for curve in curves {
            let stroke = Stroke { opacity: faint, ..Stroke::solid(curve.color, 1.0) };
            panel.curve(svg, &curve.trace.points, stroke);
        }
        for curve in curves {
            panel.curve(svg, &curve.smoothed, Stroke::solid(curve.color, 2.2 * weight));
        }
        for curve in curves {
            for point in &curve.trace.validation {
                let Some(loss) = point.loss.filter(|&loss| panel.losses.holds(loss)) else { continue };
                if panel.steps.holds(point.step as f64) {
                    marker(svg, panel.place(point.step as f64, loss), curve, 4.2 * weight);
                }
            }
        }
    });
}

/// A validation mark; the shape tells runs apart as the colour does.
fn marker(svg: &mut Svg, (x, y): (f64, f64), curve: &Curve<'_>, size: f64) {
    let stroke = Stroke::solid(curve.color, 1.6);
    let corners: &[(f64, f64)] = match curve.shape % 4 {
        0 => return svg.circle((x, y), size, PAPER, stroke),
        1 => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        2 => &[(0.0, -1.2), (1.1, 0.9), (-1.1, 0.9)],
        _ => &[(0.0, -1.25), (1.25, 0.0), (0.0, 1.25), (-1.25, 0.0)],
    };
    let corners: Vec<_> = corners.iter().map(|&(dx, dy)| (x + dx * size, y + dy * size)).collect();
    svg.polygon(&corners, PAPER, stroke);
}

/// The stable part once more, magnified into the free corner of the upper frame.
fn inset(svg: &mut Svg, above: &Panel, below: &Panel, curves: &[Curve<'_>]) {
    let Some((steps, losses)) = inset_part(below, curves) else { return };
    let Frame { left, top, right, bottom } = above.frame;
    let frame = Frame {
        left: left + 0.34 * (right - left),
        top: top + 10.0,
        right: below.place(steps.high, losses.low).0,
        bottom: bottom - 30.0,
    };
    let panel = Panel { frame, steps, losses };
    let around = Frame { left: frame.left - 50.0, top, right: right + 1.0, bottom: bottom - 1.0 };
    svg.rect(around, PAPER, Stroke::solid(PAPER, 0.0));
    zoom_lines(svg, below, &panel);
    svg.rect(frame, PAPER, Stroke::solid(PAPER, 0.0));
    panel.step_grid(svg, 5);
    panel.loss_grid(svg, 4, 12.0);
    content(svg, &panel, curves, 0.9);
    panel.step_labels(svg, 5, 12.0, 12.0);
    svg.rect(frame, "none", Stroke::solid(SPINE, 1.0));
}

/// The steps and losses that the inset shows, if there is something to magnify.
fn inset_part(below: &Panel, curves: &[Curve<'_>]) -> Option<(Span, Span)> {
    let end = curves.iter().flat_map(|curve| &curve.trace.points).map(|point| point.step).max()? as f64;
    let steps = Span { low: end - INSET_SHARE * (end - below.steps.low), high: end };
    let shown = |points: &[Point]| {
        let inside = points.iter().filter(|point| steps.holds(point.step as f64));
        inside.filter_map(|point| point.loss).collect::<Vec<_>>()
    };
    let mut losses = Vec::new();
    let mut most = 0;
    for curve in curves {
        let smoothed = shown(&curve.smoothed);
        most = most.max(smoothed.len());
        losses.extend(smoothed);
        losses.extend(shown(&curve.trace.validation));
    }
    let span = Span::of(losses).filter(|span| most >= INSET_POINTS && span.length() > 0.0)?.padded(0.12);
    // What is not smaller than the frame around it is not magnified.
    (span.length() < 0.8 * below.losses.length()).then_some((steps, span))
}

/// The magnified part's outline in the lower frame, tied to the inset's corners.
fn zoom_lines(svg: &mut Svg, below: &Panel, panel: &Panel) {
    let (left, top) = below.place(panel.steps.low, panel.losses.high.min(below.losses.high));
    let (right, bottom) = below.place(panel.steps.high, panel.losses.low.max(below.losses.low));
    let thin = Stroke { opacity: 0.7, dashes: "3 3", ..Stroke::solid(SPINE, 0.9) };
    svg.rect(Frame { left, top, right, bottom }, "none", thin);
    svg.line((left, top), (panel.frame.left, panel.frame.bottom), thin);
    svg.line((right, top), (panel.frame.right, panel.frame.bottom), thin);
}

fn legend(svg: &mut Svg, curves: &[Curve<'_>], columns: usize, smoothing: f64) {
    let width = (PLOT.right - PLOT.left) / columns as f64;
    let longest = if columns == 1 { 60 } else { 22 };
    svg.line((PLOT.left, LEGEND_TOP - 13.0), (PLOT.right, LEGEND_TOP - 13.0), Stroke::solid(GRID, 1.0));
    for (index, curve) in curves.iter().enumerate() {
        let x = PLOT.left + (index % columns) as f64 * width;
        let y = LEGEND_TOP + (index / columns) as f64 * LEGEND_ROW + 8.0;
        svg.line((x, y - 4.5), (x + 30.0, y - 4.5), Stroke::solid(curve.color, 2.4));
        marker(svg, (x + 15.0, y - 4.5), curve, 4.2);
        let name = shortened(&curve.trace.name, longest);
        let values = format!("   {}", final_values(curve, smoothing));
        let pieces = [(name.as_str(), INK), (values.as_str(), MUTED)];
        svg.spans((x + 40.0, y), font(13.0, INK, Anchor::Start), &pieces, "");
    }
}

fn final_values(curve: &Curve<'_>, smoothing: f64) -> String {
    let summary = curve.trace.summary(smoothing);
    let mut parts = Vec::new();
    parts.extend(summary.final_loss.map(|loss| format!("train {loss:.3}")));
    parts.extend(summary.final_validation.map(|loss| format!("val {loss:.3}")));
    parts.extend(summary.tokens.map(|tokens| format!("{} tokens", short(tokens as f64))));
    if parts.is_empty() { "no finite loss".into() } else { parts.join(" · ") }
}

/// A text of at most `longest` characters: its middle gives way.
fn shortened(text: &str, longest: usize) -> String {
    let characters: Vec<char> = text.chars().collect();
    if characters.len() <= longest {
        return text.to_owned();
    }
    let (head, tail) = (longest / 2, longest - longest / 2 - 1);
    let (head, tail) = (&characters[..head], &characters[characters.len() - tail..]);
    format!("{}…{}", head.iter().collect::<String>(), tail.iter().collect::<String>())
}
