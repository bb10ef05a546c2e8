//! A few lines over one axis, with their points marked: accuracy over length, and the like.

use super::Picture;
use super::axis::{Span, labels, ticks};
use super::figure::PALETTE;
use super::panel::{GRID, INK, MUTED, PAPER, SPINE};
use super::svg::{Anchor, Font, Frame, Stroke, Svg};

const WIDTH: f64 = 900.0;
const PLOT: Frame = Frame { left: 66.0, top: 60.0, right: WIDTH - 26.0, bottom: 430.0 };
const HEIGHT: f64 = PLOT.bottom + 84.0;

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// What it is called in the legend.
    pub name: String,
    /// Points from left to right.
    pub points: Vec<(f64, f64)>,
}

/// A picture of lines, at most [`super::MAX_RUNS`].
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    /// Its title.
    pub title: String,
    /// What stands on the horizontal axis.
    pub across: String,
    /// What stands on the vertical axis.
    pub up: String,
    /// Where a dashed vertical line stands.
    pub mark: Option<f64>,
    /// The lines.
    pub lines: Vec<Line>,
}

impl Picture for Lines {
    fn draw(&self) -> String {
        let points = || self.lines.iter().flat_map(|line| line.points.iter().copied());
        let whole = Span { low: 0.0, high: 1.0 };
        let xs = Span::of(points().map(|point| point.0).chain(self.mark)).unwrap_or(whole).padded(0.02);
        let ys = Span::of(points().map(|point| point.1)).unwrap_or(whole).padded(0.05);
        let place = |(x, y): (f64, f64)| {
            let (right, up) = ((x - xs.low) / xs.length(), (y - ys.low) / ys.length());
            (PLOT.left + right * PLOT.width(), PLOT.bottom - up * PLOT.height())
        };
        let mut svg = Svg::new(WIDTH, HEIGHT, PAPER, &self.title);
        let strong = Font { strong: true, ..font(20.0, INK, Anchor::Start) };
        svg.text((22.0, 34.0), strong, &self.title);
        for (mark, label) in labelled(xs) {
            let (x, _) = place((mark, ys.low));
            svg.line((x, PLOT.top), (x, PLOT.bottom), Stroke::solid(GRID, 1.0));
            svg.text((x, PLOT.bottom + 18.0), font(13.0, MUTED, Anchor::Middle), &label);
        }
        for (mark, label) in labelled(ys) {
            let (_, y) = place((xs.low, mark));
            svg.line((PLOT.left, y), (PLOT.right, y), Stroke::solid(GRID, 1.0));
            svg.text((PLOT.left - 7.0, y + 4.5), font(13.0, MUTED, Anchor::End), &label);
        }
        svg.line((PLOT.left, PLOT.top), (PLOT.left, PLOT.bottom), Stroke::solid(SPINE, 1.0));
        svg.line((PLOT.left, PLOT.bottom), (PLOT.right, PLOT.bottom), Stroke::solid(SPINE, 1.0));
        if let Some(mark) = self.mark {
            let (x, _) = place((mark, ys.low));
            svg.line((x, PLOT.top), (x, PLOT.bottom), Stroke { dashes: "4 4", ..Stroke::solid(SPINE, 1.2) });
        }
        for (at, (line, color)) in self.lines.iter().zip(PALETTE).enumerate() {
            let places: Vec<_> = line.points.iter().map(|&point| place(point)).collect();
            svg.polyline(&places, Stroke::solid(color, 2.2));
            for &at in &places {
                svg.circle(at, 3.5, PAPER, Stroke::solid(color, 1.8));
            }
            let left = PLOT.left + 220.0 * at as f64;
            let y = PLOT.bottom + 66.0;
            svg.line((left, y), (left + 24.0, y), Stroke::solid(color, 2.2));
            svg.text((left + 32.0, y + 4.5), font(13.0, INK, Anchor::Start), &line.name);
        }
        let middle = f64::midpoint(PLOT.left, PLOT.right);
        svg.text((middle, PLOT.bottom + 40.0), font(13.0, INK, Anchor::Middle), &self.across);
        let middle = (20.0, f64::midpoint(PLOT.top, PLOT.bottom));
        svg.text_upwards(middle, font(13.0, INK, Anchor::Middle), &self.up);
        svg.finish()
    }
}

fn labelled(span: Span) -> Vec<(f64, String)> {
    let marks = ticks(span, 7);
    marks.iter().copied().zip(labels(&marks)).collect()
}

fn font(size: f64, color: &str, anchor: Anchor) -> Font<'_> {
    Font { size, color, anchor, strong: false }
}
