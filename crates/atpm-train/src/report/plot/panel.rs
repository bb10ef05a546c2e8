//! Curves, markers and grid lines inside one frame.

use super::axis::{Span, labels, short, ticks};
use super::svg::{Anchor, Font, Frame, Stroke, Svg};
use super::trace::Point;

/// Colours of everything that is not a curve.
pub(super) const INK: &str = "#1f2328";
pub(super) const MUTED: &str = "#59636e";
pub(super) const SPINE: &str = "#8c959f";
pub(super) const GRID: &str = "#e9ecef";
pub(super) const PAPER: &str = "#ffffff";

/// Nearer to a frame's edge than this no value of the loss axis stands.
const EDGE: f64 = 6.0;

/// A frame of the picture and the part of the data that it shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Panel {
    pub(super) frame: Frame,
    pub(super) steps: Span,
    pub(super) losses: Span,
}

impl Panel {
    /// Where a step and a loss are in the picture.
    pub(super) fn place(&self, step: f64, loss: f64) -> (f64, f64) {
        let across = (step - self.steps.low) / self.steps.length();
        let up = (loss - self.losses.low) / self.losses.length();
        (self.frame.left + across * self.frame.width(), self.frame.bottom - up * self.frame.height())
    }

    /// Horizontal grid lines with their values at the left, about `count` of them.
    pub(super) fn loss_grid(&self, svg: &mut Svg, count: usize, size: f64) {
        let marks = ticks(self.losses, count);
        for (mark, label) in marks.iter().zip(labels(&marks)) {
            let (_, y) = self.place(self.steps.low, *mark);
            // A value at the very edge would stand in a break mark.
            if y - self.frame.top < EDGE || (self.frame.bottom - y < EDGE && self.frame.bottom - y > 0.5) {
                continue;
            }
            svg.line((self.frame.left, y), (self.frame.right, y), Stroke::solid(GRID, 1.0));
            let font = Font { size, color: MUTED, anchor: Anchor::End, strong: false };
            svg.text((self.frame.left - 7.0, y + size * 0.35), font, &label);
        }
    }

    /// Vertical grid lines.
    pub(super) fn step_grid(&self, svg: &mut Svg, count: usize) {
        for mark in ticks(self.steps, count) {
            let (x, _) = self.place(mark, self.losses.low);
            svg.line((x, self.frame.top), (x, self.frame.bottom), Stroke::solid(GRID, 1.0));
        }
    }

    /// The steps' values below the frame, but none within `keep_clear` of its right edge.
    pub(super) fn step_labels(&self, svg: &mut Svg, count: usize, size: f64, keep_clear: f64) {
        let whole = |mark: &f64| (mark - mark.round()).abs() < 1e-9;
        for mark in ticks(self.steps, count).into_iter().filter(whole) {
            let (x, y) = self.place(mark, self.losses.low);
            if self.frame.right - x < keep_clear {
                continue;
            }
            let font = Font { size, color: MUTED, anchor: Anchor::Middle, strong: false };
            svg.text((x, y + size + 5.0), font, &short(mark));
        }
    }

    /// A curve, with a gap wherever a step has no loss.
    pub(super) fn curve(&self, svg: &mut Svg, points: &[Point], stroke: Stroke<'_>) {
        for piece in points.split(|point| point.loss.is_none()) {
            let places: Vec<(f64, f64)> =
                piece.iter().filter_map(|point| Some(self.place(point.step as f64, point.loss?))).collect();
            for visible in self.visible(&thinned(&places)) {
                if let [only] = visible[..] {
                    svg.circle(only, stroke.width, stroke.color, Stroke { width: 0.0, ..stroke });
                } else {
                    svg.polyline(&visible, stroke);
                }
            }
        }
    }

    /// The stretches of a line that touch the frame, each with one point beyond it on either side.
    fn visible(&self, places: &[(f64, f64)]) -> Vec<Vec<(f64, f64)>> {
        let side = |&(x, y): &(f64, f64)| {
            let beyond = |value: f64, low: f64, high: f64| i8::from(value > high) - i8::from(value < low);
            (
                beyond(x, self.frame.left - 1.0, self.frame.right + 1.0),
                beyond(y, self.frame.top - 1.0, self.frame.bottom + 1.0),
            )
        };
        if let [only] = places {
            return if side(only) == (0, 0) { vec![vec![*only]] } else { Vec::new() };
        }
        let mut stretches: Vec<Vec<(f64, f64)>> = Vec::new();
        let mut open = false;
        for pair in places.windows(2) {
            let ((x0, y0), (x1, y1)) = (side(&pair[0]), side(&pair[1]));
            let outside = (x0 != 0 && x0 == x1) || (y0 != 0 && y0 == y1);
            if outside {
                open = false;
                continue;
            }
            match stretches.last_mut().filter(|_| open) {
                Some(stretch) => stretch.push(pair[1]),
                None => stretches.push(pair.to_vec()),
            }
            open = true;
        }
        stretches
    }
}

/// At most two places a unit of width, the lowest and the highest, in their order: the picture is
/// the same, and a long run's file stays small.
fn thinned(places: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut kept = Vec::new();
    for column in places.chunk_by(|a, b| a.0.floor() == b.0.floor()) {
        if column.len() <= 2 {
            kept.extend_from_slice(column);
            continue;
        }
        let by_height = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
        let ends = (column.iter().min_by(by_height), column.iter().max_by(by_height));
        if let (Some(&top), Some(&bottom)) = ends {
            kept.extend(if top.0 <= bottom.0 { [top, bottom] } else { [bottom, top] });
        }
    }
    kept
}
