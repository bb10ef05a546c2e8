//! Loss curves of one or more runs, as SVG and PNG beside each other.
//!
//! The vertical axis is broken: the early fall stands above, late convergence below at its own
//! scale, and an inset magnifies the stable part. The raw trace is faint, its smoothed line is on
//! top, validation points are markers. The picture is a pure function of the runs' metrics.
//!
//! Reading order: [`trace`] (metrics.jsonl → points, smoothing), [`axis`] (ticks and the break),
//! [`figure`] (the picture), [`panel`] (curves inside one frame), [`svg`] (the writer), [`png`]. Other pictures:
//! [`lines`] (one axis, a few lines), [`grid`] (many axes, the same lines), [`heat_map`]; of a sequence that a model read, [`sheet`], [`portrait`] and [`contrast`].

pub mod axis;
mod command;
pub mod contrast;
mod figure;
pub mod grid;
pub mod heat_map;
pub mod lines;
mod panel;
mod png;
pub mod portrait;
pub mod sheet;
pub mod svg;
pub mod trace;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::run::whole;

pub use command::{Args, run};
pub use png::PIXELS_PER_UNIT;
pub use trace::Trace;

/// Most runs that one picture can tell apart.
pub const MAX_RUNS: usize = 8;

/// Smoothing weight unless told otherwise: a window of about fifty steps.
pub const DEFAULT_SMOOTHING: f64 = 0.98;

/// How a picture is drawn.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The title; the run's name, or the number of runs, when absent.
    pub title: Option<String>,
    /// Weight of the past in the smoothed line, in `[0, 1)`; 0 draws the raw trace alone.
    pub smoothing: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self { title: None, smoothing: DEFAULT_SMOOTHING }
    }
}

/// What can go wrong on the way to a picture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A run without metrics.
    #[error(
        "{path}: no metrics to plot ({problem}); give the folder of a run that has trained at least one step"
    )]
    NoMetrics {
        /// The file that was looked for.
        path: PathBuf,
        /// Why it gives nothing.
        problem: String,
    },
    /// A line of metrics that is not a record.
    #[error("{path}, line {line}: {problem}; the file was changed after the run wrote it")]
    BadRecord {
        /// The metrics file.
        path: PathBuf,
        /// Its offending line, from 1.
        line: usize,
        /// What is wrong with the line.
        problem: String,
    },
    /// A number of runs that one picture cannot hold.
    #[error("{got} runs given; a picture holds 1 to {MAX_RUNS}")]
    RunCount {
        /// How many were given.
        got: usize,
    },
    /// A smoothing weight outside its range.
    #[error("smoothing weight {got} is outside 0 ≤ weight < 1")]
    Smoothing {
        /// The weight that was given.
        got: f64,
    },
    /// The picture could not be turned into pixels.
    #[error("cannot rasterise the plot: {problem}")]
    Rasterise {
        /// What the rasteriser said.
        problem: String,
    },
    /// A picture file could not be written.
    #[error("cannot write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

impl Error {
    /// Whether the user can put it right by giving other arguments.
    pub fn is_users(&self) -> bool {
        !matches!(self, Self::Rasterise { .. } | Self::Write { .. })
    }
}

/// Shorthand for results of this room.
pub type Result<T> = std::result::Result<T, Error>;

/// What one run's curve ends with.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// The run's name: its folder's.
    pub run: String,
    /// The last step recorded.
    pub last_step: u64,
    /// Training loss at the end, smoothed, nats per token.
    pub final_loss: Option<f64>,
    /// The last validation loss, nats per token.
    pub final_validation: Option<f64>,
    /// The lowest validation loss, nats per token.
    pub best_validation: Option<f64>,
    /// Steps without a finite loss.
    pub gaps: usize,
    /// Input tokens read at the end, where the run recorded them.
    pub tokens: Option<u64>,
}

/// Draws the runs' loss curves into two files and says what each run ends with.
///
/// # Errors
/// A run without readable metrics, more than [`MAX_RUNS`] runs, a smoothing weight outside
/// `[0, 1)`, or a file that cannot be written.
pub fn write(runs: &[PathBuf], options: &Options, svg: &Path, png: &Path) -> Result<Vec<Summary>> {
    if runs.is_empty() || runs.len() > MAX_RUNS {
        return Err(Error::RunCount { got: runs.len() });
    }
    if !(0.0..1.0).contains(&options.smoothing) {
        return Err(Error::Smoothing { got: options.smoothing });
    }
    let traces = runs.iter().map(|run| Trace::read(run)).collect::<Result<Vec<_>>>()?;
    write_traces(&traces, options, svg, png)?;
    Ok(traces.iter().map(|trace| trace.summary(options.smoothing)).collect())
}

/// Draws loss curves that are in memory, 1 to [`MAX_RUNS`] of them, into two files.
///
/// # Errors
/// A file that cannot be written.
pub fn write_traces(traces: &[Trace], options: &Options, svg: &Path, png: &Path) -> Result<()> {
    write_picture(&figure::draw(traces, options), svg, png)
}

fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    whole::replace(path, bytes).map_err(|source| Error::Write { path: path.to_owned(), source })
}

/// What can be drawn.
pub trait Picture {
    /// The SVG document.
    fn draw(&self) -> String;

    /// Draws it into two files.
    ///
    /// # Errors
    /// A picture that is too large, or a file that cannot be written.
    fn write(&self, svg: &Path, png: &Path) -> Result<()> {
        write_picture(&self.draw(), svg, png)
    }
}

fn write_picture(picture: &str, svg: &Path, png: &Path) -> Result<()> {
    let pixels = png::rasterise(picture)?;
    replace(svg, picture.as_bytes())?;
    replace(png, &pixels)
}
