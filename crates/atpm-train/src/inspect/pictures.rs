//! The pictures: heat maps of all layers, a sheet of lines a layer, the (λ, ρ) portrait, and groups of tokens compared.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use atpm_model::{MemoryTrace, ModelConfig, Quantity};

use super::subject::{Marked, Subject};
use super::{Means, has_value, pinned};
use crate::report::plot::Picture as _;
use crate::report::plot::axis::Span;
use crate::report::plot::contrast::{self, Contrast};
use crate::report::plot::portrait::{Portrait, Spot, Square};
use crate::report::plot::sheet::{Form, Panel, Row, Sheet};

/// What is drawn, with its name in pictures; `‖e‖` is in the table alone.
const DRAWN: [(Quantity, &str); 6] = [
    (Quantity::Rho, "ρ, transport of the write address"),
    (Quantity::Lambda, "λ, correction of the recall"),
    (Quantity::BetaKey, "β_K, write strength of the key block"),
    (Quantity::BetaValue, "β_V, write strength of the value block"),
    (Quantity::Alpha, "α, decay of the state"),
    (Quantity::Residual, "|r|, residual: what memory lacks of the entity"),
];

/// The corners of the (λ, ρ) square: (0, 0), (1, 0), (0, 1), (1, 1). docs/suite.md trains them as models.
const CORNERS: [&str; 4] = ["PSM / Gated DeltaNet", "stable revision", "directed", "RCQP"];

/// What all pictures are about.
pub struct Pictures<'a> {
    /// The model.
    pub config: &'a ModelConfig,
    /// What it read.
    pub subject: &'a Subject,
    /// What moved its memory, a layer each.
    pub traces: &'a [MemoryTrace],
    /// The groups' means, a place each.
    pub means: &'a [Means],
}

impl Pictures<'_> {
    /// Draws all of them into the folder; the files, each SVG before its PNG.
    ///
    /// # Errors
    /// A picture that is too large, or a file that cannot be written.
    pub fn write(&self, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        let mut paths = |name: &str| {
            let paths = [format!("{name}.svg"), format!("{name}.png")].map(|name| folder.join(name));
            files.extend(paths.clone());
            paths
        };
        let [svg, png] = paths("heat");
        self.heat().write(&svg, &png)?;
        for layer in 0..self.traces.len() {
            let [svg, png] = paths(&format!("layer-{layer}"));
            self.lines(layer).write(&svg, &png)?;
        }
        let [svg, png] = paths("portrait");
        self.portrait().write(&svg, &png)?;
        if self.means.iter().any(|means| means.groups.len() > 1) {
            let [svg, png] = paths("contrast");
            self.contrast().write(&svg, &png)?;
        }
        Ok(files)
    }

    /// Every quantity, a row a layer and head.
    pub fn heat(&self) -> Sheet {
        let rows = |quantity| -> Vec<Row> {
            let of = |(layer, trace): (usize, &MemoryTrace)| -> Vec<Row> {
                (0..trace.heads())
                    .map(|head| Row { name: place(layer, head), values: self.values(layer, quantity, head) })
                    .collect()
            };
            self.traces.iter().enumerate().flat_map(of).collect()
        };
        self.sheet(format!("{}: controllers", self.subject.title), Form::Heat, &rows)
    }

    /// Every quantity of a layer, a line a head.
    pub fn lines(&self, layer: usize) -> Sheet {
        let rows = |quantity| -> Vec<Row> {
            (0..self.traces[layer].heads())
                .map(|head| Row { name: format!("head {head}"), values: self.values(layer, quantity, head) })
                .collect()
        };
        self.sheet(format!("{}: layer {layer}", self.subject.title), Form::Lines, &rows)
    }

    /// The (λ, ρ) square of each layer, a point a token and head.
    pub fn portrait(&self) -> Portrait {
        let square = |(layer, trace): (usize, &MemoryTrace)| {
            let spot = |token: usize, head: usize| Spot {
                at: (trace.at(Quantity::Lambda, token, head), trace.at(Quantity::Rho, token, head)),
                series: head,
                marked: self.subject.marks.contains(&token),
            };
            let heads = |token| (0..trace.heads()).map(move |head| spot(token, head));
            Square { name: format!("layer {layer}"), spots: (0..trace.tokens()).flat_map(heads).collect() }
        };
        let heads = self.traces.first().map_or(0, MemoryTrace::heads);
        Portrait {
            title: format!("{}: λ and ρ", self.subject.title),
            note: self.note("a point a token; ringed: "),
            axes: ["λ".into(), "ρ".into()],
            corners: CORNERS,
            series: (0..heads).map(|head| format!("head {head}")).collect(),
            squares: self.traces.iter().enumerate().map(square).collect(),
        }
    }

    /// Groups of tokens beside each other.
    pub fn contrast(&self) -> Contrast {
        let heads = |(layer, trace): (usize, &MemoryTrace)| {
            (0..trace.heads()).map(|head| place(layer, head)).collect::<Vec<_>>()
        };
        let panel = |means: &Means, (quantity, name): (Quantity, &str)| {
            let all = self.means.iter().flat_map(|means| means.of(quantity)).flatten();
            let span = Span::of(all.filter(|mean| mean.is_finite())).unwrap_or(WHOLE).padded(0.08);
            contrast::Panel { name: name.into(), span, means: means.of(quantity) }
        };
        let column = |means: &Means| contrast::Column {
            name: means.place.into(),
            panels: DRAWN.map(|drawn| panel(means, drawn)).into(),
        };
        let counted = |group: &(&str, usize)| format!("{} (mean of {})", group.0, group.1);
        Contrast {
            title: format!("{}: what changes", self.subject.title),
            note: self.note("every axis has its own scale; red: "),
            groups: self
                .means
                .first()
                .map_or_else(Vec::new, |means| means.groups.iter().map(counted).collect()),
            rows: self.traces.iter().enumerate().flat_map(heads).collect(),
            columns: self.means.iter().map(column).collect(),
        }
    }

    fn sheet(&self, title: String, form: Form, rows: &dyn Fn(Quantity) -> Vec<Row>) -> Sheet {
        let panel = |(quantity, name): (Quantity, &str)| Panel {
            name: name.into(),
            span: self.span(quantity),
            form,
            rows: rows(quantity),
        };
        Sheet {
            title,
            note: self.note("marked: "),
            words: self.subject.words.iter().map(|word| visible(word)).collect(),
            marks: self.subject.marks.clone(),
            panels: DRAWN.into_iter().map(panel).collect(),
        }
    }

    /// What stands below a title.
    fn note(&self, marks: &str) -> String {
        let marked = match self.subject.marked {
            _ if self.subject.marks.is_empty() => String::new(),
            Marked::Revisions => format!("{marks}the words of writes that revise a fact"),
            Marked::ByUser => format!("{marks}tokens of --mark"),
        };
        let parts = [marked, pinned(self.config).join(", ")];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
    }

    /// A value a token; none for α at the first token, where nothing stands before that could decay.
    fn values(&self, layer: usize, quantity: Quantity, head: usize) -> Vec<f64> {
        let trace = &self.traces[layer];
        let value =
            |token| if has_value(quantity, token) { trace.at(quantity, token, head) } else { f64::NAN };
        (0..trace.tokens()).map(value).collect()
    }

    /// The span of a quantity in all layers: whole for controllers, from the least for α, from 0 for the residual.
    fn span(&self, quantity: Quantity) -> Span {
        let values = || {
            let heads = move |layer: usize| {
                (0..self.traces[layer].heads()).flat_map(move |head| self.values(layer, quantity, head))
            };
            (0..self.traces.len()).flat_map(heads).filter(|value| value.is_finite())
        };
        match quantity {
            Quantity::Alpha => Span { low: values().fold(0.99, f64::min), high: 1.0 },
            Quantity::Residual | Quantity::Entity => Span { low: 0.0, high: values().fold(1e-6, f64::max) },
            _ => WHOLE,
        }
    }
}

/// Removes the pictures that an earlier inspection left in the folder, which this one may not have: it may be of more layers,
/// or have compared something. Nothing else is touched.
///
/// # Errors
/// A folder that cannot be listed, or a picture that cannot be removed.
pub fn remove_earlier(folder: &Path) -> anyhow::Result<()> {
    let listed = std::fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    for entry in listed.with_context(|| format!("cannot list {}", folder.display()))? {
        if entry.file_name().to_str().is_some_and(is_picture) && entry.path().is_file() {
            let path = entry.path();
            std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// Whether an inspection writes a picture of this name.
fn is_picture(name: &str) -> bool {
    let is_layer = |stem: &str| {
        let number = stem.strip_prefix("layer-").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    match name.rsplit_once('.') {
        Some((stem, "svg" | "png")) => ["heat", "portrait", "contrast"].contains(&stem) || is_layer(stem),
        _ => false,
    }
}

const WHOLE: Span = Span { low: 0.0, high: 1.0 };

/// What a row is called.
pub fn place(layer: usize, head: usize) -> String {
    format!("layer {layer} head {head}")
}

/// Blanks and line ends as signs that can be seen.
fn visible(word: &str) -> String {
    word.replace(' ', "·").replace('\n', "↵").replace('\t', "→")
}
