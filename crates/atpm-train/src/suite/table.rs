//! The comparison as numbers (JSON) and as text (Markdown, also what the command prints).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use atpm_data::synthetic::{Split, Task};
use serde::Serialize;

use super::evaluation::SplitScore;
use super::protocol::{Findings, Model};
use super::trial::{Outcome, Scores};
use crate::run::program::UNKNOWN;

/// The splits of the table, in its order.
const SPLITS: [(Split, &str); 3] = [(Split::Iid, "IID"), (Split::Ood, "OOD"), (Split::Stress, "Stress")];

/// What a table shows: its title, the value, its factor and digits.
type Metric = (&'static str, fn(&SplitScore) -> f64, f64, usize);
const METRICS: [Metric; 3] = [
    ("Exact match, %", |score| score.exact_match, 100.0, 1),
    ("Token accuracy, %", |score| score.token_accuracy, 100.0, 1),
    ("Cross-entropy, nats, teacher-forced", |score| score.cross_entropy, 1.0, 3),
];

/// A value over the seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

/// One model on one split of one task.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The task.
    pub task: Task,
    /// The model.
    pub model: String,
    /// The split.
    pub split: Split,
    /// Seeds.
    pub seeds: usize,
    /// Share of samples whose whole answer is right, autoregressively.
    pub exact_match: Spread,
    /// Share of answer tokens that are right, autoregressively.
    pub token_accuracy: Spread,
    /// Nats of an answer token, teacher-forced.
    pub cross_entropy: Spread,
}

/// A trial whose training ended early.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Diverged {
    /// The task.
    pub task: Task,
    /// The model.
    pub model: String,
    /// The seed.
    pub seed: u64,
    /// The step at which it ended.
    pub step: u64,
}

/// The whole comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// The models, their sizes and learning rates.
    pub models: Vec<Model>,
    /// Scores, task by task and model by model.
    pub rows: Vec<Row>,
    /// Seconds of training, over all trials.
    pub training_seconds: f64,
    /// Trials that diverged; their scores are those of the weights before the steps that were not finite.
    pub diverged: Vec<Diverged>,
    /// How many trials each program made ([`crate::run::program::fingerprint`]).
    pub programs: BTreeMap<String, usize>,
    #[serde(skip)]
    tasks: Vec<Task>,
    #[serde(skip)]
    findings: Findings,
}

impl Table {
    /// The table of a suite's outcomes.
    pub fn of(findings: Findings) -> Self {
        let mut tasks: Vec<Task> = Vec::new();
        for outcome in &findings.outcomes {
            if !tasks.contains(&outcome.task) {
                tasks.push(outcome.task);
            }
        }
        let mut rows = Vec::new();
        for &task in &tasks {
            for model in &findings.models {
                for (split, _) in SPLITS {
                    let scores = scores(&findings, task, &model.name, split);
                    let spread = |of: fn(&SplitScore) -> f64| spread(scores.iter().map(of));
                    rows.push(Row {
                        task,
                        model: model.name.clone(),
                        split,
                        seeds: scores.len(),
                        exact_match: spread(|score| score.exact_match),
                        token_accuracy: spread(|score| score.token_accuracy),
                        cross_entropy: spread(|score| score.cross_entropy),
                    });
                }
            }
        }
        let training_seconds = findings.outcomes.iter().map(|outcome| outcome.seconds).sum();
        let diverged = findings.outcomes.iter().filter_map(|outcome| {
            let (task, model, seed) = (outcome.task, outcome.model.clone(), outcome.seed);
            outcome.diverged().map(|step| Diverged { task, model, seed, step })
        });
        let diverged = diverged.collect();
        let mut programs = BTreeMap::new();
        for Outcome { program, .. } in &findings.outcomes {
            let program = if program.is_empty() { UNKNOWN } else { program };
            *programs.entry(program.to_owned()).or_default() += 1;
        }
        let models = findings.models.clone();
        Self { models, rows, training_seconds, diverged, programs, tasks, findings }
    }

    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::from(
            "| model | parameters | MFLOP a token | learning rate | sweep (rate: nats) |\n|---|--:|--:|--:|---|\n",
        );
        for Model { name, parameters, training_flop_per_token, lr, sweep } in &self.models {
            let sweep: Vec<_> = sweep.iter().map(|&(lr, loss)| shown(lr, loss)).collect();
            let mflop = training_flop_per_token / 1e6;
            let _ = writeln!(text, "| {name} | {parameters} | {mflop:.3} | {lr} | {} |", sweep.join(", "));
        }
        for (title, value, factor, digits) in METRICS {
            for (split, name) in SPLITS {
                let _ = write!(text, "\n{title}, {name}\n\n| task |");
                for model in &self.models {
                    let _ = write!(text, " {} |", model.name);
                }
                let _ = writeln!(text, "\n|---|{}", "--:|".repeat(self.models.len()));
                for &task in &self.tasks {
                    let of = |model: &Model| {
                        spread(scores(&self.findings, task, &model.name, split).iter().map(value))
                    };
                    self.line(&mut text, task.name(), of, factor, digits);
                }
                if self.tasks.len() > 1 {
                    self.line(&mut text, "mean", |model| self.mean(model, split, value), factor, digits);
                }
            }
        }
        if !self.diverged.is_empty() {
            text.push_str("\nDiverged, and measured as they stood then:\n\n");
        }
        for Diverged { task, model, seed, step } in &self.diverged {
            let _ = writeln!(text, "- {model} on {}, seed {seed}, at step {step}", task.name());
        }
        if self.programs.len() > 1 {
            let trials = self.programs.iter().map(|(program, trials)| format!("{program} {trials}"));
            let trials: Vec<_> = trials.collect();
            let _ = writeln!(
                text,
                "\nTrials by program: {}. Each repeats its own results to the bit; another build may differ by as much as a seed.",
                trials.join(", ")
            );
        }
        text
    }

    fn line(&self, text: &mut String, name: &str, of: impl Fn(&Model) -> Spread, factor: f64, digits: usize) {
        let _ = write!(text, "| {name} |");
        for model in &self.models {
            let Spread { mean, min, max } = of(model);
            let (mean, min, max) = (factor * mean, factor * min, factor * max);
            let _ = write!(text, " {mean:.digits$}");
            if min < max {
                let _ = write!(text, " ({min:.digits$}–{max:.digits$})");
            }
            text.push_str(" |");
        }
        text.push('\n');
    }

    /// The mean over the tasks: of each seed, and then over the seeds.
    fn mean(&self, model: &Model, split: Split, value: fn(&SplitScore) -> f64) -> Spread {
        let by_task: Vec<Vec<SplitScore>> =
            self.tasks.iter().map(|&task| scores(&self.findings, task, &model.name, split)).collect();
        let seeds = by_task.iter().map(Vec::len).min().unwrap_or(0);
        let mean = |seed: usize| {
            by_task.iter().map(|scores| value(&scores[seed])).sum::<f64>() / by_task.len() as f64
        };
        spread((0..seeds).map(mean))
    }
}

/// A rate of the sweep and what it came to.
fn shown(lr: f64, loss: f64) -> String {
    if loss.is_finite() { format!("{lr}: {loss:.3}") } else { format!("{lr}: diverged") }
}

/// The scores of a model on a split of a task, seed by seed.
fn scores(findings: &Findings, task: Task, model: &str, split: Split) -> Vec<SplitScore> {
    let own = findings.outcomes.iter().filter(|outcome| outcome.task == task && outcome.model == model);
    own.filter_map(|outcome| outcome.scores)
        .map(|Scores { iid, ood, stress }| match split {
            Split::Ood => ood,
            Split::Stress => stress,
            _ => iid,
        })
        .collect()
}

fn spread(values: impl Iterator<Item = f64>) -> Spread {
    let values: Vec<f64> = values.collect();
    Spread {
        mean: values.iter().sum::<f64>() / values.len() as f64,
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trial whose scores are all told apart: hundredths of `base` in IID, and one and two tenths more in the others.
    fn outcome(task: Task, model: &str, seed: u64, base: f64) -> Outcome {
        let score = |more: f64| SplitScore {
            exact_match: base + more,
            token_accuracy: base + more + 0.01,
            cross_entropy: base + more + 3.0,
        };
        Outcome {
            digest: String::new(),
            task,
            model: model.into(),
            seed,
            lr: 1e-3,
            parameters: 7,
            losses: Vec::new(),
            curve: Vec::new(),
            scores: Some(Scores { iid: score(0.0), ood: score(0.1), stress: score(0.2) }),
            seconds: 1.0,
            settings: String::new(),
            program: if seed == 2 { String::new() } else { "0123".into() },
        }
    }

    // Two tasks, two models, three seeds, reckoned by hand.
    #[test]
    fn means_and_ranges_are_those_of_the_seeds() {
        let model = |name: &str| Model {
            name: name.into(),
            parameters: 7,
            training_flop_per_token: 1e6,
            lr: 1e-3,
            sweep: Vec::new(),
        };
        let mut outcomes = Vec::new();
        for (task, name, bases) in [
            (Task::Copy, "a", [0.10, 0.20, 0.60]),
            (Task::Copy, "b", [0.50, 0.50, 0.50]),
            (Task::Sort, "a", [0.40, 0.40, 0.10]),
            (Task::Sort, "b", [0.00, 0.30, 0.30]),
        ] {
            outcomes.extend((0..3).zip(bases).map(|(seed, base)| outcome(task, name, seed, base)));
        }
        let table = Table::of(Findings { models: vec![model("a"), model("b")], outcomes });
        let row = &table.rows[2];
        assert_eq!((row.task, row.model.as_str(), row.split, row.seeds), (Task::Copy, "a", Split::Stress, 3));
        let near = |got: Spread, want: [f64; 3]| {
            let got = [got.mean, got.min, got.max];
            assert!(got.iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-12), "{got:?} {want:?}");
        };
        near(row.exact_match, [0.5, 0.3, 0.8]);
        near(row.token_accuracy, [0.51, 0.31, 0.81]);
        near(row.cross_entropy, [3.5, 3.3, 3.8]);
        let text = table.markdown();
        for lines in [
            // Over the seeds of one task; then the tasks' mean of each seed, 25, 30 and 35 for `a`.
            "Exact match, %, IID\n\n| task | a | b |\n|---|--:|--:|\n| copy | 30.0 (10.0–60.0) | 50.0 |\n\
             | sort | 30.0 (10.0–40.0) | 20.0 (0.0–30.0) |\n| mean | 30.0 (25.0–35.0) | 35.0 (25.0–40.0) |\n",
            "Exact match, %, OOD\n\n| task | a | b |\n|---|--:|--:|\n| copy | 40.0 (20.0–70.0) | 60.0 |\n",
            "Exact match, %, Stress\n\n| task | a | b |\n|---|--:|--:|\n| copy | 50.0 (30.0–80.0) | 70.0 |\n",
            "Token accuracy, %, IID\n\n| task | a | b |\n|---|--:|--:|\n| copy | 31.0 (11.0–61.0) | 51.0 |\n",
            "nats, teacher-forced, Stress\n\n| task | a | b |\n|---|--:|--:|\n| copy | 3.500 (3.300–3.800) | 3.700 |\n",
        ] {
            assert!(text.contains(lines), "{lines}\n{text}");
        }

        // The third seeds are of files that do not tell their program.
        assert!(text.contains("\nTrials by program: 0123 8, unknown 4. "), "{text}");
        let Findings { models, mut outcomes } = table.findings;
        outcomes.retain(|outcome| !outcome.program.is_empty());
        let table = Table::of(Findings { models, outcomes });
        assert!(!table.markdown().contains("program"));
        assert_eq!(table.programs, BTreeMap::from([("0123".to_owned(), 8)]));
    }
}
