//! Heat maps below each other over one time axis: values from 0 to 1, white to dark blue.

use super::Picture;
use super::panel::{INK, MUTED, PAPER, SPINE};
use super::svg::{Anchor, Font, Frame, Stroke, Svg};

/// Width of the picture, in units.
const WIDTH: f64 = 900.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = WIDTH - 26.0;
const TOP: f64 = 62.0;
/// Space above a map for its name.
const HEADING: f64 = 30.0;
/// Height of a map's line, within these bounds.
const LINE: (f64, f64) = (3.0, 9.0);
/// Height that a map aims at.
const HEIGHT: f64 = 300.0;
/// Values below this are not drawn: a tenth of a shade.
const FAINT: f32 = 0.004;

/// One map: a value for each step and line.
#[derive(Debug, Clone, PartialEq)]
pub struct Map {
    name: String,
    /// What its lines are.
    lines: String,
    /// `[step][line]`; negative values are drawn by their size, in another colour.
    values: Vec<Vec<f32>>,
}

impl Map {
    /// `values[step][line]`.
    pub fn new(name: impl Into<String>, lines: impl Into<String>, values: Vec<Vec<f32>>) -> Self {
        Self { name: name.into(), lines: lines.into(), values }
    }

    fn line_count(&self) -> usize {
        self.values.iter().map(Vec::len).max().unwrap_or(0)
    }

    fn height(&self) -> f64 {
        let lines = self.line_count().max(1) as f64;
        lines * (HEIGHT / lines).clamp(LINE.0, LINE.1)
    }
}

/// A picture of maps.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatMaps {
    /// Its title.
    pub title: String,
    /// What the steps are.
    pub across: String,
    /// From top to bottom.
    pub maps: Vec<Map>,
}

impl Picture for HeatMaps {
    fn draw(&self) -> String {
        let steps = self.maps.iter().map(|map| map.values.len()).max().unwrap_or(0).max(1);
        let height = TOP + self.maps.iter().map(|map| map.height() + HEADING).sum::<f64>() + 34.0;
        let mut svg = Svg::new(WIDTH, height, PAPER, &self.title);
        let strong = Font { strong: true, ..font(20.0, INK, Anchor::Start) };
        svg.text((22.0, 34.0), strong, &self.title);
        let mut top = TOP;
        for map in &self.maps {
            svg.text((LEFT, top + HEADING - 10.0), font(13.0, INK, Anchor::Start), &map.name);
            top += HEADING;
            let frame = Frame { left: LEFT, right: RIGHT, top, bottom: top + map.height() };
            draw_map(&mut svg, map, frame, steps);
            top = frame.bottom;
        }
        let cell = (RIGHT - LEFT) / steps as f64;
        for step in (0..steps).step_by(steps.div_ceil(10)) {
            let x = LEFT + (step as f64 + 0.5) * cell;
            svg.text((x, top + 16.0), font(12.0, MUTED, Anchor::Middle), &step.to_string());
        }
        svg.text((f64::midpoint(LEFT, RIGHT), top + 32.0), font(13.0, INK, Anchor::Middle), &self.across);
        svg.finish()
    }
}

fn draw_map(svg: &mut Svg, map: &Map, frame: Frame, steps: usize) {
    let lines = map.line_count().max(1);
    let (across, up) = (frame.width() / steps as f64, frame.height() / lines as f64);
    let none = Stroke { width: 0.0, ..Stroke::solid("none", 0.0) };
    for (step, values) in map.values.iter().enumerate() {
        for (line, &value) in values.iter().enumerate() {
            if value.abs() < FAINT || !value.is_finite() {
                continue;
            }
            let left = frame.left + step as f64 * across;
            let bottom = frame.bottom - line as f64 * up;
            let cell = Frame { left, right: left + across, top: bottom - up, bottom };
            svg.rect(cell, &color(value), none);
        }
    }
    for (from, to) in [
        ((frame.left, frame.top), (frame.left, frame.bottom)),
        ((frame.left, frame.bottom), (frame.right, frame.bottom)),
        ((frame.right, frame.top), (frame.right, frame.bottom)),
        ((frame.left, frame.top), (frame.right, frame.top)),
    ] {
        svg.line(from, to, Stroke::solid(SPINE, 1.0));
    }
    let edge = font(12.0, MUTED, Anchor::End);
    svg.text((frame.left - 7.0, frame.bottom - 1.0), edge, "0");
    svg.text((frame.left - 7.0, frame.top + 10.0), edge, &(lines - 1).to_string());
    let middle = (frame.left - 34.0, f64::midpoint(frame.top, frame.bottom));
    svg.text_upwards(middle, font(13.0, INK, Anchor::Middle), &map.lines);
}

/// White at 0; dark blue at 1, dark red at −1.
fn color(value: f32) -> String {
    let full = if value >= 0.0 { [11, 60, 111] } else { [140, 29, 24] };
    // The root lifts small weights, which would be invisible. In 256ths, so that colours are whole numbers.
    let share = (0..=256).take_while(|&n| (n as f32 / 256.0).powi(2) <= value.abs().min(1.0)).count() - 1;
    let [r, g, b] = full.map(|channel: usize| 255 - (255 - channel) * share / 256);
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn font(size: f64, color: &str, anchor: Anchor) -> Font<'_> {
    Font { size, color, anchor, strong: false }
}
