//! Small multiples: a panel a task, a line a model, all on the same two axes, the vertical one logarithmic.

use super::Picture;
use super::axis::{Span, short, ticks};
use super::figure::PALETTE;
use super::panel::{GRID, INK, MUTED, PAPER, SPINE};
use super::sheet::{font, heading, outline};
use super::svg::{Anchor, Font, Frame, Stroke, Svg};

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 58.0;
const TOP: f64 = 92.0;
/// Most panels beside each other.
const COLUMNS: usize = 5;
/// Between two panels.
const GAP: f64 = 14.0;
const HEIGHT: f64 = 150.0;
/// Above a panel, for its name, and below it, for its steps.
const HEADING: f64 = 24.0;
const STEPS: f64 = 24.0;
/// What is lower is drawn here: a loss that has gone needs no room, and a logarithm has no zero.
const FLOOR: f64 = 1e-3;

/// One panel.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Its name.
    pub name: String,
    /// For each line of the picture, its points (step, value) from left to right; none where it has no part here.
    pub lines: Vec<Vec<(f64, f64)>>,
}

/// A picture of panels.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// Its title.
    pub title: String,
    /// A line below the title.
    pub note: String,
    /// What the lines are, at most [`super::MAX_RUNS`].
    pub names: Vec<String>,
    /// Row by row.
    pub panels: Vec<Panel>,
}

impl Picture for Grid {
    fn draw(&self) -> String {
        let columns = self.panels.len().clamp(1, COLUMNS);
        let rows = self.panels.len().div_ceil(columns) as f64;
        let height = TOP + (HEADING + HEIGHT + STEPS) * rows + 26.0;
        let mut svg = Svg::new(WIDTH, height, PAPER, &self.title);
        heading(&mut svg, &self.title, &self.note);
        self.legend(&mut svg);
        let axes = self.axes();
        let width = (WIDTH - LEFT - GAP) / columns as f64 - GAP;
        for (index, panel) in self.panels.iter().enumerate() {
            let left = LEFT + (width + GAP) * (index % columns) as f64;
            let top = TOP + HEADING + (HEADING + HEIGHT + STEPS) * (index / columns) as f64;
            let frame = Frame { left, top, right: left + width, bottom: top + HEIGHT };
            axes.draw(&mut svg, panel, frame, index % columns == 0);
        }
        svg.text((f64::midpoint(LEFT, WIDTH), height - 12.0), font(12.0, INK, Anchor::Middle), "step");
        svg.finish()
    }
}

impl Grid {
    fn legend(&self, svg: &mut Svg) {
        let mut left = LEFT;
        for (name, color) in self.names.iter().zip(PALETTE) {
            svg.line((left, TOP - 18.0), (left + 22.0, TOP - 18.0), Stroke::solid(color, 2.2));
            svg.text((left + 29.0, TOP - 14.0), font(12.5, INK, Anchor::Start), name);
            left += 56.0 + 7.0 * name.chars().count() as f64;
        }
    }

    /// Axes that hold every panel's points.
    fn axes(&self) -> Axes {
        let points = || {
            self.panels.iter().flat_map(|panel| &panel.lines).flatten().filter(|point| point.1.is_finite())
        };
        let steps = Span::of(points().map(|point| point.0).chain([0.0]));
        let powers = Span::of(points().map(|point| power(point.1)));
        Axes {
            steps: steps.filter(|steps| steps.length() > 0.0).unwrap_or(Span { low: 0.0, high: 1.0 }),
            powers: powers.unwrap_or(Span { low: power(FLOOR), high: 0.0 }).padded(0.04),
        }
    }
}

/// What all panels share.
struct Axes {
    steps: Span,
    /// Logarithms to base ten.
    powers: Span,
}

impl Axes {
    fn draw(&self, svg: &mut Svg, panel: &Panel, frame: Frame, first: bool) {
        let x = |step: f64| frame.left + (step - self.steps.low) / self.steps.length() * frame.width();
        let y = |power: f64| frame.bottom - (power - self.powers.low) / self.powers.length() * frame.height();
        let strong = Font { strong: true, ..font(12.5, INK, Anchor::Start) };
        svg.text((frame.left, frame.top - 7.0), strong, &panel.name);
        for step in ticks(self.steps, 3) {
            svg.line((x(step), frame.top), (x(step), frame.bottom), Stroke::solid(GRID, 1.0));
            svg.text((x(step), frame.bottom + 15.0), font(11.0, MUTED, Anchor::Middle), &short(step));
        }
        let (lowest, highest) = (self.powers.low.ceil() as i32, self.powers.high.floor() as i32);
        for exponent in lowest..=highest {
            let y = y(f64::from(exponent));
            svg.line((frame.left, y), (frame.right, y), Stroke::solid(GRID, 1.0));
            if first {
                let label = format!("{}", 10f64.powi(exponent));
                svg.text((frame.left - 7.0, y + 4.0), font(11.0, MUTED, Anchor::End), &label);
            }
        }
        outline(svg, frame, SPINE, 1.0);
        for (points, color) in panel.lines.iter().zip(PALETTE) {
            let finite = points.iter().filter(|point| point.1.is_finite());
            let places: Vec<_> = finite.map(|&(step, value)| (x(step), y(power(value)))).collect();
            svg.polyline(&places, Stroke::solid(color, 1.8));
        }
    }
}

fn power(value: f64) -> f64 {
    value.max(FLOOR).log10()
}
