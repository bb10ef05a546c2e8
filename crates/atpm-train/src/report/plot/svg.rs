//! A small SVG writer: the few elements that a plot is made of.

use std::fmt::Write as _;

/// The typeface of the PNG first, then what readers of the SVG are likely to have.
const FONTS: &str = "Ubuntu, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif";

/// A picture under construction. Coordinates are in user units, `y` grows downwards.
pub struct Svg {
    text: String,
    clips: usize,
}

/// An axis-aligned box.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Frame {
    /// Left edge.
    pub left: f64,
    /// Upper edge.
    pub top: f64,
    /// Right edge.
    pub right: f64,
    /// Lower edge.
    pub bottom: f64,
}

impl Frame {
    /// Distance between the side edges.
    pub fn width(&self) -> f64 {
        self.right - self.left
    }
    /// Distance between upper and lower edge.
    pub fn height(&self) -> f64 {
        self.bottom - self.top
    }
}

/// How a line looks.
#[derive(Debug, Clone, Copy)]
pub struct Stroke<'a> {
    /// Its colour.
    pub color: &'a str,
    /// Its width.
    pub width: f64,
    /// Its opacity, 0 to 1.
    pub opacity: f64,
    /// Dash pattern, empty for a solid line.
    pub dashes: &'a str,
}

impl<'a> Stroke<'a> {
    /// A solid line.
    pub fn solid(color: &'a str, width: f64) -> Self {
        Self { color, width, opacity: 1.0, dashes: "" }
    }

    fn attributes(&self) -> String {
        let mut text = format!(r#"stroke="{}" stroke-width="{}""#, self.color, number(self.width));
        if self.opacity < 1.0 {
            let _ = write!(text, r#" stroke-opacity="{}""#, number(self.opacity));
        }
        if !self.dashes.is_empty() {
            let _ = write!(text, r#" stroke-dasharray="{}""#, self.dashes);
        }
        text
    }
}

/// Where a text hangs on its point.
#[derive(Debug, Clone, Copy)]
pub enum Anchor {
    /// The point is where the text begins.
    Start,
    /// The point is its middle.
    Middle,
    /// The point is where it ends.
    End,
}

/// How a text looks.
#[derive(Debug, Clone, Copy)]
pub struct Font<'a> {
    /// Its size.
    pub size: f64,
    /// Its colour.
    pub color: &'a str,
    /// Where it hangs on its point.
    pub anchor: Anchor,
    /// Whether its strokes are thickened.
    pub strong: bool,
}

impl Svg {
    /// An empty picture of this size with this background.
    pub fn new(width: f64, height: f64, background: &str, description: &str) -> Self {
        let (w, h, description) = (number(width), number(height), escape(description));
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\" \
             font-family=\"{FONTS}\" role=\"img\">\n<title>{description}</title>\n\
             <rect width=\"{w}\" height=\"{h}\" fill=\"{background}\"/>\n"
        );
        Self { text, clips: 0 }
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: Stroke<'_>) {
        self.polyline(&[from, to], stroke);
    }

    /// A line through points.
    pub fn polyline(&mut self, points: &[(f64, f64)], stroke: Stroke<'_>) {
        let places: Vec<String> =
            points.iter().map(|&(x, y)| format!("{},{}", number(x), number(y))).collect();
        self.element(&format!(
            r#"<polyline points="{}" fill="none" stroke-linejoin="round" stroke-linecap="round" {}/>"#,
            places.join(" "),
            stroke.attributes()
        ));
    }

    /// A filled shape through points, closed.
    pub fn polygon(&mut self, points: &[(f64, f64)], fill: &str, stroke: Stroke<'_>) {
        let places: Vec<String> =
            points.iter().map(|&(x, y)| format!("{},{}", number(x), number(y))).collect();
        let attributes = stroke.attributes();
        self.element(&format!(r#"<polygon points="{}" fill="{fill}" {attributes}/>"#, places.join(" ")));
    }

    /// A filled circle.
    pub fn circle(&mut self, (x, y): (f64, f64), radius: f64, fill: &str, stroke: Stroke<'_>) {
        let (x, y, radius, attributes) = (number(x), number(y), number(radius), stroke.attributes());
        self.element(&format!(r#"<circle cx="{x}" cy="{y}" r="{radius}" fill="{fill}" {attributes}/>"#));
    }

    /// A filled box.
    pub fn rect(&mut self, frame: Frame, fill: &str, stroke: Stroke<'_>) {
        let attributes = stroke.attributes();
        self.element(&format!(r#"<rect {} fill="{fill}" {attributes}/>"#, extent(frame)));
    }

    /// A text whose baseline passes through the point.
    pub fn text(&mut self, (x, y): (f64, f64), font: Font<'_>, content: &str) {
        self.spans((x, y), font, &[(content, font.color)], "");
    }

    /// A text read from bottom to top.
    pub fn text_upwards(&mut self, (x, y): (f64, f64), font: Font<'_>, content: &str) {
        let turn = format!(r#" transform="rotate(-90 {} {})""#, number(x), number(y));
        self.spans((x, y), font, &[(content, font.color)], &turn);
    }

    /// A text in pieces, each with its own colour.
    pub fn spans(&mut self, (x, y): (f64, f64), font: Font<'_>, pieces: &[(&str, &str)], extra: &str) {
        let anchor = match font.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let mut content = String::new();
        for (piece, color) in pieces {
            let strong =
                if font.strong { format!(r#" stroke="{color}" stroke-width="0.6""#) } else { String::new() };
            let _ = write!(content, r#"<tspan fill="{color}"{strong}>{}</tspan>"#, escape(piece));
        }
        let (x, y, size) = (number(x), number(y), number(font.size));
        self.element(&format!(
            r#"<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" xml:space="preserve"{extra}>{content}</text>"#
        ));
    }

    /// Draws what `body` draws, cut off at the frame.
    pub fn clipped(&mut self, frame: Frame, body: impl FnOnce(&mut Self)) {
        self.clips += 1;
        let id = format!("clip{}", self.clips);
        self.element(&format!(r#"<clipPath id="{id}"><rect {}/></clipPath>"#, extent(frame)));
        self.element(&format!(r#"<g clip-path="url(#{id})">"#));
        body(self);
        self.element("</g>");
    }

    /// The finished document.
    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    fn element(&mut self, element: &str) {
        self.text.push_str(element);
        self.text.push('\n');
    }
}

fn extent(frame: Frame) -> String {
    format!(
        r#"x="{}" y="{}" width="{}" height="{}""#,
        number(frame.left),
        number(frame.top),
        number(frame.width()),
        number(frame.height())
    )
}

/// A coordinate in at most two decimals: finer than a pixel, and the file stays small.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

/// Makes any text safe inside an element or attribute; characters that XML 1.0 cannot hold become
/// U+FFFD.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push(char::REPLACEMENT_CHARACTER),
            other => escaped.push(other),
        }
    }
    escaped
}
