//! Points in the unit square of two controllers, one square a layer, its corners named.

use super::Picture;
use super::figure::PALETTE;
use super::panel::{GRID, INK, MUTED, PAPER, SPINE};
use super::sheet::{MARK, font, heading, outline};
use super::svg::{Anchor, Font, Frame, Stroke, Svg};

const SIDE: f64 = 270.0;
/// Around a square: left, above, right, below.
const AROUND: Frame = Frame { left: 52.0, top: 50.0, right: 24.0, bottom: 60.0 };
const TOP: f64 = 84.0;
const COLUMNS: usize = 3;
const LEAST_WIDTH: f64 = 640.0;

/// A token's point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spot {
    /// Across and up, each 0 to 1.
    pub at: (f64, f64),
    /// Which colour it has.
    pub series: usize,
    /// Whether it is ringed.
    pub marked: bool,
}

/// One square.
#[derive(Debug, Clone, PartialEq)]
pub struct Square {
    /// Its name.
    pub name: String,
    /// Its points; what is not finite is left out.
    pub spots: Vec<Spot>,
}

/// A picture of squares.
#[derive(Debug, Clone, PartialEq)]
pub struct Portrait {
    /// Its title.
    pub title: String,
    /// A line below the title.
    pub note: String,
    /// What the axes are, across and up.
    pub axes: [String; 2],
    /// Names of the corners (0, 0), (1, 0), (0, 1), (1, 1).
    pub corners: [&'static str; 4],
    /// What the colours are.
    pub series: Vec<String>,
    /// The squares, row by row.
    pub squares: Vec<Square>,
}

impl Picture for Portrait {
    fn draw(&self) -> String {
        let columns = self.squares.len().clamp(1, COLUMNS);
        let rows = self.squares.len().div_ceil(columns);
        let (across, down) = (AROUND.left + SIDE + AROUND.right, AROUND.top + SIDE + AROUND.bottom);
        let width = (across * columns as f64 + 10.0).max(LEAST_WIDTH);
        let mut svg = Svg::new(width, TOP + down * rows as f64, PAPER, &self.title);
        heading(&mut svg, &self.title, &self.note);
        for (at, (name, color)) in self.series.iter().zip(PALETTE).enumerate() {
            let left = AROUND.left + 92.0 * at as f64;
            svg.circle((left + 5.0, TOP - 8.0), 4.0, color, Stroke::solid(PAPER, 0.8));
            svg.text((left + 15.0, TOP - 4.0), font(12.0, INK, Anchor::Start), name);
        }
        for (at, square) in self.squares.iter().enumerate() {
            let left = AROUND.left + across * (at % columns) as f64;
            let top = TOP + AROUND.top + down * (at / columns) as f64;
            let frame = Frame { left, top, right: left + SIDE, bottom: top + SIDE };
            self.square(&mut svg, square, frame);
        }
        svg.finish()
    }
}

impl Portrait {
    fn square(&self, svg: &mut Svg, square: &Square, frame: Frame) {
        let Frame { left, top, right, bottom } = frame;
        let place = |(x, y): (f64, f64)| (left + x * frame.width(), bottom - y * frame.height());
        let middle = f64::midpoint(left, right);
        svg.text((left, top - 26.0), Font { strong: true, ..font(13.0, INK, Anchor::Start) }, &square.name);
        for (share, label) in [(0.0, "0"), (0.25, ""), (0.5, "0.5"), (0.75, ""), (1.0, "1")] {
            let (x, y) = place((share, share));
            svg.line((x, top), (x, bottom), Stroke::solid(GRID, 1.0));
            svg.line((left, y), (right, y), Stroke::solid(GRID, 1.0));
            svg.text((x, bottom + 15.0), font(11.0, MUTED, Anchor::Middle), label);
            svg.text((left - 6.0, y + 4.0), font(11.0, MUTED, Anchor::End), label);
        }
        outline(svg, frame, SPINE, 1.0);
        let [zero, across, up, both] = self.corners;
        for (x, y, anchor, name) in [
            (left, bottom + 32.0, Anchor::Start, zero),
            (right, bottom + 32.0, Anchor::End, across),
            (left, top - 8.0, Anchor::Start, up),
            (right, top - 8.0, Anchor::End, both),
        ] {
            svg.text((x, y), font(11.0, INK, anchor), name);
        }
        svg.text((middle, bottom + 48.0), font(12.0, INK, Anchor::Middle), &self.axes[0]);
        let side = (left - 34.0, f64::midpoint(top, bottom));
        svg.text_upwards(side, font(12.0, INK, Anchor::Middle), &self.axes[1]);
        // Marked ones last, so that they are seen.
        for marked in [false, true] {
            for spot in square.spots.iter().filter(|spot| spot.marked == marked) {
                if !(spot.at.0.is_finite() && spot.at.1.is_finite()) {
                    continue;
                }
                let color = PALETTE[spot.series % PALETTE.len()];
                svg.circle(place(spot.at), 3.6, color, Stroke::solid(PAPER, 0.8));
                if marked {
                    svg.circle(place(spot.at), 6.2, "none", Stroke::solid(MARK, 1.6));
                }
            }
        }
    }
}
