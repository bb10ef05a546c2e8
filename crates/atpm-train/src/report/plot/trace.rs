//! From a run's metrics.jsonl to points, and the smoothed line through them.

use std::path::Path;

use serde_json::Value;

use super::{Error, Result, Summary};
use crate::report::jsonl::METRICS;

/// Steps over which the smoothing window opens: at step `n` of the trace it spans `n / OPENING`
/// steps at most, so that the early fall is not smeared to the right.
const OPENING: f64 = 10.0;

/// One training step: its loss in nats per token, absent where the step had no finite loss.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The step's number.
    pub step: u64,
    /// Its loss, nats per token.
    pub loss: Option<f64>,
}

/// The loss curve of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The run's name: its folder's.
    pub name: String,
    /// Training steps, ascending.
    pub points: Vec<Point>,
    /// Validation points, ascending.
    pub validation: Vec<Point>,
    /// Input tokens read at the end, where recorded.
    pub tokens: Option<u64>,
}

impl Trace {
    /// Reads a run's folder, or a metrics file itself.
    ///
    /// A last line without its end is what a killed run leaves, and is passed over. A step that
    /// appears again (a run resumed from an older step) replaces what was recorded from it on.
    ///
    /// # Errors
    /// No such file, no record in it, or a line that is no record.
    pub fn read(run: &Path) -> Result<Self> {
        let path = if run.is_dir() { run.join(METRICS) } else { run.to_owned() };
        let none = |problem: String| Error::NoMetrics { path: path.clone(), problem };
        let text = std::fs::read_to_string(&path).map_err(|error| none(error.to_string()))?;
        let trace = Self::parse(&name_of(run), &text).map_err(|(line, problem)| Error::BadRecord {
            path: path.clone(),
            line,
            problem,
        })?;
        if trace.points.is_empty() && trace.validation.is_empty() {
            return Err(none("it holds no record".into()));
        }
        Ok(trace)
    }

    /// Reads records, one a line; an error names its line, from 1.
    ///
    /// # Errors
    /// A complete line that is no record, with its number and what is wrong with it.
    pub fn parse(name: &str, text: &str) -> std::result::Result<Self, (usize, String)> {
        let mut trace =
            Self { name: name.to_owned(), points: Vec::new(), validation: Vec::new(), tokens: None };
        for (index, line) in text.split_inclusive('\n').enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            match serde_json::from_str(line) {
                Ok(record) => trace.add(&record).map_err(|problem| (index + 1, problem))?,
                Err(_) if !line.ends_with('\n') => {}
                Err(error) => return Err((index + 1, error.to_string())),
            }
        }
        Ok(trace)
    }

    fn add(&mut self, record: &Value) -> std::result::Result<(), String> {
        let step = record.get("step").and_then(Value::as_u64).ok_or("the record has no `step`")?;
        let keep = |points: &mut Vec<Point>| points.truncate(points.partition_point(|p| p.step < step));
        keep(&mut self.points);
        keep(&mut self.validation);
        let finite = |value: &Value| value.as_f64().filter(|loss| loss.is_finite());
        // A skipped step has no loss; a record that is an evaluation alone is no step.
        let skipped = record.get("skipped").is_some();
        if skipped || record.get("loss").is_some() {
            let loss = record.get("loss").and_then(finite).filter(|_| !skipped);
            self.points.push(Point { step, loss });
        }
        if let Some(loss) = record.get("eval").and_then(|eval| eval.get("loss")) {
            self.validation.push(Point { step, loss: finite(loss) });
        }
        self.tokens = record.get("tokens").and_then(Value::as_u64).or(self.tokens);
        Ok(())
    }

    /// The trace under a two-sided exponential window with this weight from one step to the next,
    /// so that a falling line is not drawn late. Steps without a loss stay without one and do not
    /// enter the window.
    pub fn smoothed(&self, weight: f64) -> Vec<Point> {
        let losses: Vec<f64> = self.points.iter().filter_map(|point| point.loss).collect();
        // How much of a loss reaches over from the `n`-th to the one after it.
        let reach = |n: usize| weight.min((n + 1) as f64 / (n as f64 + 1.0 + OPENING));
        let add =
            |(sum, weights): (f64, f64), loss: f64, reach: f64| (loss + reach * sum, 1.0 + reach * weights);
        let mut before = Vec::with_capacity(losses.len());
        let mut total = (0.0, 0.0);
        for (n, &loss) in losses.iter().enumerate() {
            total = add(total, loss, n.checked_sub(1).map_or(0.0, reach));
            before.push(total);
        }
        let mut smooth = vec![0.0; losses.len()];
        total = (0.0, 0.0);
        for (n, &loss) in losses.iter().enumerate().rev() {
            total = add(total, loss, reach(n));
            smooth[n] = (before[n].0 + total.0 - loss) / (before[n].1 + total.1 - 1.0);
        }
        let mut smooth = smooth.into_iter();
        let take = |point: &Point| Point { step: point.step, loss: point.loss.and_then(|_| smooth.next()) };
        self.points.iter().map(take).collect()
    }

    /// What the curve ends with.
    pub fn summary(&self, smoothing: f64) -> Summary {
        let last = |points: &[Point]| points.iter().rev().find_map(|point| point.loss);
        let all = self.points.iter().chain(&self.validation);
        Summary {
            run: self.name.clone(),
            last_step: all.map(|point| point.step).max().unwrap_or(0),
            final_loss: last(&self.smoothed(smoothing)),
            final_validation: last(&self.validation),
            best_validation: self.validation.iter().filter_map(|point| point.loss).min_by(f64::total_cmp),
            gaps: self.points.iter().filter(|point| point.loss.is_none()).count(),
            tokens: self.tokens,
        }
    }
}

fn name_of(run: &Path) -> String {
    let folder = if run.is_file() { run.parent().unwrap_or(run) } else { run };
    let full = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    full.components()
        .next_back()
        .map_or_else(String::new, |part| part.as_os_str().to_string_lossy().into_owned())
}
