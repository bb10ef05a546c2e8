//! Learning curves: one picture a task, a line a model, and one of all tasks.

use std::path::Path;

use atpm_data::synthetic::Task;

use super::protocol::Findings;
use super::trial::Outcome;
use crate::report::plot::grid::{Grid, Panel};
use crate::report::plot::trace::Point;
use crate::report::plot::{self, MAX_RUNS, Options, Picture as _, Trace};

/// Draws the curves of every model with the first seed: for each task loss of the steps and marks for validation, and
/// validation of all tasks in one picture where there are several.
///
/// # Errors
/// A picture that cannot be drawn or written.
pub fn draw(findings: &Findings, folder: &Path) -> anyhow::Result<()> {
    if let Some(left_out) = left_out(findings) {
        tracing::warn!("{left_out}");
    }
    let mut tasks: Vec<_> = findings.outcomes.iter().map(|outcome| outcome.task).collect();
    tasks.dedup();
    let files = |name: &str| ["svg", "png"].map(|extension| folder.join(format!("{name}.{extension}")));
    for &task in &tasks {
        let outcomes = shown(findings).filter_map(|model| first(findings, task, model));
        let title = Some(format!("{}: nats of an answer token", task.name()));
        let options = Options { title, ..Options::default() };
        let [svg, png] = files(task.name());
        plot::write_traces(&outcomes.map(trace).collect::<Vec<_>>(), &options, &svg, &png)?;
    }
    if tasks.len() > 1 {
        let [svg, png] = files("all");
        overview(findings, &tasks).write(&svg, &png)?;
    }
    Ok(())
}

/// The models that a picture has room for.
fn shown(findings: &Findings) -> impl Iterator<Item = &str> {
    findings.models.iter().take(MAX_RUNS).map(|model| model.name.as_str())
}

/// A model's outcome on a task with the first seed.
fn first<'a>(findings: &'a Findings, task: Task, model: &str) -> Option<&'a Outcome> {
    findings.outcomes.iter().find(|outcome| outcome.task == task && outcome.model == model)
}

fn trace(outcome: &Outcome) -> Trace {
    let validation = outcome.curve.iter().map(|point| Point {
        step: point.step,
        loss: Some(point.cross_entropy).filter(|loss| loss.is_finite()),
    });
    Trace {
        name: outcome.model.clone(),
        points: (1..).zip(&outcome.losses).map(|(step, &loss)| Point { step, loss }).collect(),
        validation: validation.collect(),
        tokens: None,
    }
}

/// Validation of every task.
fn overview(findings: &Findings, tasks: &[Task]) -> Grid {
    let line = |task, model| {
        let curve = first(findings, task, model).map(|outcome| outcome.curve.as_slice());
        curve.unwrap_or_default().iter().map(|point| (point.step as f64, point.cross_entropy)).collect()
    };
    Grid {
        title: "Nats of an answer token, validation".into(),
        note: "teacher-forced, at training's lengths, first seed; what is below 0.001 is drawn there".into(),
        names: shown(findings).map(String::from).collect(),
        panels: tasks
            .iter()
            .map(|&task| Panel {
                name: task.name().into(),
                lines: shown(findings).map(|model| line(task, model)).collect(),
            })
            .collect(),
    }
}

/// What is said of models that a picture has no room for.
pub(super) fn left_out(findings: &Findings) -> Option<String> {
    let names: Vec<_> = findings.models.iter().skip(MAX_RUNS).map(|model| model.name.as_str()).collect();
    (!names.is_empty())
        .then(|| format!("the learning curves hold {MAX_RUNS} models; left out: {}", names.join(", ")))
}
