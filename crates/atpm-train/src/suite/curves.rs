//! Learning curves: one picture a task, a line a model.

use std::path::Path;

use super::protocol::Findings;
use crate::report::plot::trace::Point;
use crate::report::plot::{self, MAX_RUNS, Options, Trace};

/// Draws, for each task, the curves of every model with the first seed: loss of the steps, marks for validation.
///
/// # Errors
/// A picture that cannot be drawn or written.
pub fn draw(findings: &Findings, folder: &Path) -> anyhow::Result<()> {
    if let Some(left_out) = left_out(findings) {
        tracing::warn!("{left_out}");
    }
    let mut tasks: Vec<_> = findings.outcomes.iter().map(|outcome| outcome.task).collect();
    tasks.dedup();
    for task in tasks {
        let first = |model: &str| {
            findings.outcomes.iter().find(|outcome| outcome.task == task && outcome.model == model)
        };
        let traces: Vec<Trace> = findings
            .models
            .iter()
            .filter_map(|model| first(&model.name))
            .take(MAX_RUNS)
            .map(|outcome| Trace {
                name: outcome.model.clone(),
                points: (1..).zip(&outcome.losses).map(|(step, &loss)| Point { step, loss }).collect(),
                validation: outcome
                    .curve
                    .iter()
                    .map(|point| Point {
                        step: point.step,
                        loss: Some(point.cross_entropy).filter(|loss| loss.is_finite()),
                    })
                    .collect(),
                tokens: None,
            })
            .collect();
        let title = Some(format!("{}: nats of an answer token", task.name()));
        let options = Options { title, ..Options::default() };
        let path = |extension| folder.join(format!("{}.{extension}", task.name()));
        plot::write_traces(&traces, &options, &path("svg"), &path("png"))?;
    }
    Ok(())
}

/// What is said of models that a picture has no room for.
pub(super) fn left_out(findings: &Findings) -> Option<String> {
    let names: Vec<_> = findings.models.iter().skip(MAX_RUNS).map(|model| model.name.as_str()).collect();
    (!names.is_empty())
        .then(|| format!("the learning curves hold {MAX_RUNS} models; left out: {}", names.join(", ")))
}
