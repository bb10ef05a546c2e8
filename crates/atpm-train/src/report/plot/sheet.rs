//! Values over the tokens of one sequence: panels below each other, heat maps or lines, over one axis of words.

use super::Picture;
use super::axis::{Span, labels, ticks};
use super::figure::PALETTE;
use super::panel::{GRID, INK, MUTED, PAPER, SPINE};
use super::svg::{Anchor, Font, Frame, Stroke, Svg};

/// Most tokens that a sheet holds.
pub const MOST_TOKENS: usize = 1024;

/// What is marked: words, and what stands above them.
pub(super) const MARK: &str = "#b42318";
const BAND: &str = "#fdebdc";
/// A cell without a value.
const MISSING: &str = "#d0d7de";
const LEFT: f64 = 112.0;
/// Room for a heat map's scale.
const RIGHT: f64 = 74.0;
const TOP: f64 = 76.0;
/// Space above a panel for its name.
const HEADING: f64 = 26.0;
const LEAST_WIDTH: f64 = 640.0;
/// Width of all tokens that a sheet aims at, and of one of them within these bounds.
const ACROSS: f64 = 980.0;
const CELL: (f64, f64) = (4.0, 24.0);
/// Height of a heat map's row within these bounds, and of all its rows.
const ROW: (f64, f64) = (5.0, 18.0);
const ROWS: f64 = 140.0;
/// Height of a panel of lines.
const LINES: f64 = 96.0;
/// Width of a token from which on lines have a dot at each.
const DOTTED: f64 = 8.0;
/// Width of an upright word.
const WORD: f64 = 11.0;
/// More characters of a word are not shown.
const LONGEST_WORD: usize = 16;
/// Widths that a character and a legend's entry take up.
const CHARACTER: f64 = 6.4;
const LEGEND: f64 = 92.0;

/// One line or row: a value for each token; what is not finite is a gap in a line, and grey in a heat map.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What it is called.
    pub name: String,
    /// One value a token.
    pub values: Vec<f64>,
}

/// How a panel shows its rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A row of coloured cells each, from white at the lowest value to dark blue at the highest.
    Heat,
    /// A line each.
    Lines,
}

/// One panel.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// Its name.
    pub name: String,
    /// The values that it reaches from and to.
    pub span: Span,
    /// How it shows them.
    pub form: Form,
    /// Its rows, from top to bottom.
    pub rows: Vec<Row>,
}

/// A picture of panels.
#[derive(Debug, Clone, PartialEq)]
pub struct Sheet {
    /// Its title.
    pub title: String,
    /// A line below the title.
    pub note: String,
    /// The tokens, at most [`MOST_TOKENS`].
    pub words: Vec<String>,
    /// Positions that are marked, in ascending order.
    pub marks: Vec<usize>,
    /// From top to bottom. Panels of lines have rows of the same names in the same order.
    pub panels: Vec<Panel>,
}

impl Panel {
    fn height(&self) -> f64 {
        let rows = self.rows.len().max(1) as f64;
        match self.form {
            Form::Heat => rows * (ROWS / rows).clamp(ROW.0, ROW.1),
            Form::Lines => LINES,
        }
    }
}

impl Picture for Sheet {
    fn draw(&self) -> String {
        let across = LEFT + self.cell() * self.words.len() as f64 + RIGHT;
        let longest = self.words.iter().map(|word| shortened(word).chars().count()).max().unwrap_or(0);
        let panels = self.panels.iter().map(|panel| panel.height() + HEADING).sum::<f64>();
        let axis = 30.0 + CHARACTER * longest as f64;
        let mut svg = Svg::new(across.max(LEAST_WIDTH), TOP + panels + axis, PAPER, &self.title);
        heading(&mut svg, &self.title, &self.note);
        self.legend(&mut svg);
        let mut top = TOP;
        for panel in &self.panels {
            svg.text((LEFT, top + HEADING - 8.0), font(13.0, INK, Anchor::Start), &panel.name);
            top += HEADING;
            let right = LEFT + self.cell() * self.words.len() as f64;
            let frame = Frame { left: LEFT, right, top, bottom: top + panel.height() };
            match panel.form {
                Form::Heat => self.heat(&mut svg, panel, frame),
                Form::Lines => self.lines(&mut svg, panel, frame),
            }
            top = frame.bottom;
        }
        self.axis(&mut svg, top);
        svg.finish()
    }
}

impl Sheet {
    fn cell(&self) -> f64 {
        (ACROSS / self.words.len().max(1) as f64).clamp(CELL.0, CELL.1)
    }

    /// The middle of a token.
    fn x(&self, token: usize) -> f64 {
        LEFT + (token as f64 + 0.5) * self.cell()
    }

    /// The colours of the lines.
    fn legend(&self, svg: &mut Svg) {
        let Some(panel) = self.panels.iter().find(|panel| panel.form == Form::Lines) else { return };
        for (at, (row, color)) in panel.rows.iter().zip(PALETTE).enumerate() {
            let left = LEFT + LEGEND * at as f64;
            svg.line((left, TOP - 4.0), (left + 18.0, TOP - 4.0), Stroke::solid(color, 2.2));
            svg.text((left + 24.0, TOP), font(12.0, INK, Anchor::Start), &row.name);
        }
    }

    fn heat(&self, svg: &mut Svg, panel: &Panel, frame: Frame) {
        let none = Stroke { width: 0.0, ..Stroke::solid("none", 0.0) };
        let height = frame.height() / panel.rows.len().max(1) as f64;
        let named = every(height);
        for (index, row) in panel.rows.iter().enumerate() {
            let top = frame.top + index as f64 * height;
            for (token, &value) in row.values.iter().enumerate() {
                let left = self.x(token) - 0.5 * self.cell();
                let cell = Frame { left, right: left + self.cell(), top, bottom: top + height };
                let known = value.is_finite().then(|| color(share(panel.span, value)));
                svg.rect(cell, known.as_deref().unwrap_or(MISSING), none);
            }
            if index.is_multiple_of(named) {
                let at = (frame.left - 7.0, top + 0.5 * height + 4.0);
                svg.text(at, font(11.0, MUTED, Anchor::End), &row.name);
            }
        }
        outline(svg, frame, SPINE, 1.0);
        for (first, last) in self.marked_runs() {
            let (left, right) = (self.x(first) - 0.5 * self.cell(), self.x(last) + 0.5 * self.cell());
            outline(svg, Frame { left, right, ..frame }, MARK, 1.4);
        }
        scale(svg, panel.span, frame);
    }

    fn lines(&self, svg: &mut Svg, panel: &Panel, frame: Frame) {
        let none = Stroke { width: 0.0, ..Stroke::solid("none", 0.0) };
        for (first, last) in self.marked_runs() {
            let (left, right) = (self.x(first) - 0.5 * self.cell(), self.x(last) + 0.5 * self.cell());
            svg.rect(Frame { left, right, ..frame }, BAND, none);
        }
        let y = |value: f64| frame.bottom - share(panel.span, value) * frame.height();
        let marks = ticks(panel.span, 3);
        for (&mark, label) in marks.iter().zip(labels(&marks)) {
            svg.line((frame.left, y(mark)), (frame.right, y(mark)), Stroke::solid(GRID, 1.0));
            svg.text((frame.left - 7.0, y(mark) + 4.0), font(11.0, MUTED, Anchor::End), &label);
        }
        svg.line((frame.left, frame.top), (frame.left, frame.bottom), Stroke::solid(SPINE, 1.0));
        svg.line((frame.left, frame.bottom), (frame.right, frame.bottom), Stroke::solid(SPINE, 1.0));
        for (row, color) in panel.rows.iter().zip(PALETTE.iter().cycle()) {
            let places: Vec<(f64, f64)> =
                row.values.iter().enumerate().map(|(token, &value)| (self.x(token), y(value))).collect();
            for piece in places.split(|place| !place.1.is_finite()).filter(|piece| !piece.is_empty()) {
                if piece.len() > 1 {
                    svg.polyline(piece, Stroke::solid(color, 1.6));
                }
                let dots = if piece.len() == 1 || self.cell() >= DOTTED { piece } else { &[] };
                for &place in dots {
                    svg.circle(place, 2.3, color, none);
                }
            }
        }
    }

    /// Numbers, and words from bottom to top; those that are marked stand out.
    fn axis(&self, svg: &mut Svg, top: f64) {
        let every = every(self.cell());
        let is_marked = |token: usize| self.marks.contains(&token);
        let in_the_way = |token: usize| self.marks.iter().any(|&mark| mark.abs_diff(token) < every);
        for (token, word) in self.words.iter().enumerate() {
            let x = self.x(token);
            if token.is_multiple_of(every * 5) {
                svg.text((x, top + 14.0), font(10.0, MUTED, Anchor::Middle), &token.to_string());
            }
            let marked = is_marked(token);
            if marked || token.is_multiple_of(every) && !in_the_way(token) {
                let color = if marked { MARK } else { INK };
                let font = Font { strong: marked, ..font(11.0, color, Anchor::End) };
                svg.text_upwards((x + 4.0, top + 20.0), font, &shortened(word));
            }
        }
    }

    /// First and last of each run of marked tokens.
    fn marked_runs(&self) -> Vec<(usize, usize)> {
        let runs = self.marks.chunk_by(|a, b| a + 1 == *b);
        runs.filter_map(|run| Some((*run.first()?, *run.last()?))).collect()
    }
}

/// How many steps of this size a word needs.
fn every(step: f64) -> usize {
    (1..MOST_TOKENS).find(|&steps| steps as f64 * step >= WORD).unwrap_or(MOST_TOKENS)
}

/// Where a value stands between the ends of the span, 0 to 1; what is not finite stays so.
fn share(span: Span, value: f64) -> f64 {
    ((value - span.low) / span.length()).clamp(0.0, 1.0)
}

/// A heat map's colours with their values, at its right.
fn scale(svg: &mut Svg, span: Span, frame: Frame) {
    let none = Stroke { width: 0.0, ..Stroke::solid("none", 0.0) };
    let (left, right) = (frame.right + 12.0, frame.right + 22.0);
    let (top, height) = (frame.top, frame.height().max(28.0));
    for step in 0..16 {
        let part = f64::from(step) / 16.0;
        let bar = Frame { left, right, top: top + part * height, bottom: top + (part + 1.0 / 16.0) * height };
        svg.rect(bar, &color(1.0 - f64::from(step) / 15.0), none);
    }
    // As many decimals as tell values within the span apart.
    let unit = if span.length() < 0.1 { 1000.0 } else { 100.0 };
    let ends = labels(&[span.low, span.high].map(|end| (end * unit).round() / unit));
    for (label, y) in ends.iter().zip([top + height, top + 9.0]) {
        svg.text((right + 5.0, y), font(11.0, MUTED, Anchor::Start), label);
    }
}

/// Title and note at the top of a picture.
pub(super) fn heading(svg: &mut Svg, title: &str, note: &str) {
    svg.text((22.0, 32.0), Font { strong: true, ..font(19.0, INK, Anchor::Start) }, title);
    svg.text((22.0, 53.0), font(12.5, MUTED, Anchor::Start), note);
}

pub(super) fn outline(svg: &mut Svg, frame: Frame, color: &str, width: f64) {
    let Frame { left, top, right, bottom } = frame;
    let corners = [(left, top), (right, top), (right, bottom), (left, bottom)];
    svg.polygon(&corners, "none", Stroke::solid(color, width));
}

/// White at 0, over a light and a strong blue, to nearly black at 1; always darker.
fn color(share: f64) -> String {
    const STOPS: [[f64; 3]; 4] =
        [[255.0, 255.0, 255.0], [158.0, 202.0, 225.0], [33.0, 113.0, 181.0], [8.0, 29.0, 68.0]];
    let place = share.clamp(0.0, 1.0) * 3.0;
    let below = (0..2).find(|&stop| place <= (stop + 1) as f64).unwrap_or(2);
    let channel = |index: usize| {
        let (from, to) = (STOPS[below][index], STOPS[below + 1][index]);
        (from + (place - below as f64) * (to - from)).round() as i64
    };
    format!("#{:02x}{:02x}{:02x}", channel(0), channel(1), channel(2))
}

fn shortened(word: &str) -> String {
    if word.chars().count() <= LONGEST_WORD {
        return word.to_owned();
    }
    word.chars().take(LONGEST_WORD - 1).chain(['…']).collect()
}

pub(super) fn font(size: f64, color: &str, anchor: Anchor) -> Font<'_> {
    Font { size, color, anchor, strong: false }
}
