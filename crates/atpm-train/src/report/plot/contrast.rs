//! Means of groups beside each other: a column a place, in it a panel a quantity, a row a head, a dot a group.

use super::Picture;
use super::axis::{Span, labels, ticks};
use super::panel::{GRID, INK, MUTED, PAPER, SPINE};
use super::sheet::{MARK, font, heading, outline};
use super::svg::{Anchor, Font, Frame, Stroke, Svg};

const LEFT: f64 = 118.0;
const WIDTH: f64 = 300.0;
/// Between two columns.
const GAP: f64 = 40.0;
const TOP: f64 = 92.0;
/// Above a column's first panel, for the column's name.
const NAME: f64 = 16.0;
const ROW: f64 = 17.0;
/// Above a panel, for its name, and below it, for its values.
const HEADING: f64 = 26.0;
const VALUES: f64 = 22.0;
const LEAST_WIDTH: f64 = 640.0;

/// Colours of the groups.
const GROUPS: [&str; 3] = ["#0072b2", MARK, "#6e7781"];

/// One panel.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Its name.
    pub name: String,
    /// The values that it reaches from and to.
    pub span: Span,
    /// For each row, a mean a group; what is not finite is left out.
    pub means: Vec<Vec<f64>>,
}

/// Panels below each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// From top to bottom.
    pub panels: Vec<Panel>,
}

/// A picture of columns, the same number of panels in each.
#[derive(Debug, Clone, PartialEq)]
pub struct Contrast {
    /// Its title.
    pub title: String,
    /// A line below the title.
    pub note: String,
    /// What the dots are, at most three.
    pub groups: Vec<String>,
    /// What the rows are.
    pub rows: Vec<String>,
    /// From left to right.
    pub columns: Vec<Column>,
}

impl Picture for Contrast {
    fn draw(&self) -> String {
        let inside = ROW * self.rows.len() as f64;
        let panels = self.columns.iter().map(|column| column.panels.len()).max().unwrap_or(0) as f64;
        let width = LEFT + (WIDTH + GAP) * self.columns.len() as f64;
        let height = TOP + NAME + (HEADING + inside + VALUES) * panels + 10.0;
        let mut svg = Svg::new(width.max(LEAST_WIDTH), height, PAPER, &self.title);
        heading(&mut svg, &self.title, &self.note);
        let mut left = LEFT;
        for (group, color) in self.groups.iter().zip(GROUPS) {
            svg.circle((left, TOP - 18.0), 4.5, color, Stroke::solid(PAPER, 0.8));
            svg.text((left + 10.0, TOP - 14.0), font(12.0, INK, Anchor::Start), group);
            left += 34.0 + 6.4 * group.chars().count() as f64;
        }
        for (at, column) in self.columns.iter().enumerate() {
            let left = LEFT + (WIDTH + GAP) * at as f64;
            svg.text(
                (left, TOP + 12.0),
                Font { strong: true, ..font(13.0, INK, Anchor::Start) },
                &column.name,
            );
            for (index, panel) in column.panels.iter().enumerate() {
                let top = TOP + NAME + HEADING + (HEADING + inside + VALUES) * index as f64;
                let frame = Frame { left, right: left + WIDTH, top, bottom: top + inside };
                self.panel(&mut svg, panel, frame, at == 0);
            }
        }
        svg.finish()
    }
}

impl Contrast {
    fn panel(&self, svg: &mut Svg, panel: &Panel, frame: Frame, names: bool) {
        let x = |value: f64| frame.left + (value - panel.span.low) / panel.span.length() * frame.width();
        svg.text((frame.left, frame.top - 7.0), font(13.0, INK, Anchor::Start), &panel.name);
        let marks = ticks(panel.span, 4);
        for (&mark, label) in marks.iter().zip(labels(&marks)) {
            svg.line((x(mark), frame.top), (x(mark), frame.bottom), Stroke::solid(GRID, 1.0));
            svg.text((x(mark), frame.bottom + 14.0), font(11.0, MUTED, Anchor::Middle), &label);
        }
        outline(svg, frame, SPINE, 1.0);
        for (row, (name, means)) in self.rows.iter().zip(&panel.means).enumerate() {
            let y = frame.top + (row as f64 + 0.5) * ROW;
            if names {
                svg.text((frame.left - 8.0, y + 4.0), font(11.0, MUTED, Anchor::End), name);
            }
            let finite: Vec<(f64, &str)> =
                means.iter().copied().zip(GROUPS).filter(|(mean, _)| mean.is_finite()).collect();
            if let Some(ends) = Span::of(finite.iter().map(|(mean, _)| *mean)) {
                svg.line((x(ends.low), y), (x(ends.high), y), Stroke::solid(SPINE, 1.2));
            }
            for (mean, color) in finite {
                svg.circle((x(mean), y), 4.5, color, Stroke::solid(PAPER, 0.8));
            }
        }
    }
}
