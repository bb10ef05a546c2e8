//! What a suite compares: its TOML file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use atpm_data::synthetic::Task;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::overrides::Override;
use crate::run::cli::ConfigArgs;
use crate::run::exit::{OrUser, user};

/// Bytes of a model's name: file names have 255, and a trial's has task, rate and seed besides.
const LONGEST_NAME: usize = 150;

/// A suite's settings. Those without a default here must be given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteConfig {
    /// Folder of the results.
    pub out: PathBuf,
    /// The tasks.
    pub tasks: Vec<Task>,
    /// The models, by name: those of [`super::models`], or sections of `variants`.
    pub models: Vec<String>,
    /// Seeds of initialisation and samples; every model is trained once with each.
    #[serde(default = "first_seed")]
    pub seeds: Vec<u64>,
    /// Trials that run side by side, the cores shared out among them.
    #[serde(default = "one")]
    pub jobs: usize,
    /// Whether the trained weights of each trial are kept. No setting of a trial: results do not depend on it.
    #[serde(default)]
    pub keep: bool,
    /// What all models have in common with the reference.
    #[serde(default, rename = "match")]
    pub matched: Matched,
    /// Tokens of the documents in which FLOPs a token are counted: attention's grow with them.
    #[serde(default = "usual_tokens")]
    pub match_tokens: usize,
    /// `[model]` of the reference, as in a run's config; the vocabulary is the suite's.
    pub model: Table,
    /// More models: each section's keys are laid over `[model]`, or over the model of that name in [`super::models`].
    #[serde(default)]
    pub variants: BTreeMap<String, Table>,
    /// Steps and rows.
    #[serde(default)]
    pub train: Train,
    /// `[optimizer]`, as in a run's config; `lr` is the rate of models that the sweep is not asked about.
    #[serde(default)]
    pub optimizer: Table,
    /// `[schedule]`, as in a run's config.
    #[serde(default)]
    pub schedule: Table,
    /// How each model's learning rate is chosen.
    #[serde(default)]
    pub sweep: Sweep,
    /// Evaluation.
    #[serde(default)]
    pub eval: Eval,
}

/// What models are matched in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Matched {
    /// Parameters that can learn, within 2 %.
    #[default]
    Params,
    /// FLOPs of training a token, within 2 %.
    Flops,
    /// Nothing: widths are as they stand.
    None,
}

/// `[train]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Train {
    /// Steps of a trial.
    pub steps: u64,
    /// Samples of a step.
    pub rows: usize,
}

impl Default for Train {
    fn default() -> Self {
        Self { steps: 3000, rows: 64 }
    }
}

/// `[sweep]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sweep {
    /// Learning rates that each model is tried with; none or one means that nothing is tried.
    pub lrs: Vec<f64>,
    /// Tasks of the trials; the rate of the lowest mean loss is taken.
    pub tasks: Vec<Task>,
    /// Steps of a trial.
    pub steps: u64,
    /// Seed of the trials, apart from those of the suite.
    pub seed: u64,
    /// Learning rates that models have already, by name; none of these is swept.
    pub chosen: BTreeMap<String, f64>,
}

impl Default for Sweep {
    fn default() -> Self {
        Self { lrs: Vec::new(), tasks: vec![Task::MixedAll], steps: 600, seed: 1000, chosen: BTreeMap::new() }
    }
}

/// `[eval]`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Eval {
    /// Samples of each split at the end.
    pub samples: u64,
    /// Steps between points of the learning curve.
    pub every: u64,
    /// Validation samples of such a point.
    pub curve_samples: u64,
}

impl Default for Eval {
    fn default() -> Self {
        Self { samples: 512, every: 100, curve_samples: 128 }
    }
}

fn one() -> usize {
    1
}

/// About the mean length of a training sample of the nine tasks.
fn usual_tokens() -> usize {
    32
}

fn first_seed() -> Vec<u64> {
    vec![0]
}

impl SuiteConfig {
    /// Reads the file and lays the overrides over it.
    ///
    /// # Errors
    /// A missing file, or a mistake in it or in an override.
    pub fn load(args: &ConfigArgs) -> anyhow::Result<Self> {
        let Some(path) = &args.config else {
            return Err(user("no config given; try `atpm-train suite --config configs/suite/smoke.toml`"));
        };
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the config {}", path.display()))
            .or_user()?;
        Self::from_toml(&text, path, &args.set)
    }

    /// Reads text; `origin` is named in messages.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn from_toml<S: AsRef<str>>(text: &str, origin: &Path, overrides: &[S]) -> anyhow::Result<Self> {
        let origin = origin.display().to_string();
        let mut table: Table = text.parse().with_context(|| origin.clone()).or_user()?;
        for setting in overrides {
            overlay(&mut table, setting.as_ref())?;
        }
        let config: Self = table.try_into().with_context(|| origin.clone()).or_user()?;
        config.validate().map_err(|problem| user(format!("{origin}: {problem}")))?;
        Ok(config)
    }

    /// The rates that a model is tried with; none where it has its own, or there is but one.
    pub fn sweep_rates(&self, model: &str) -> &[f64] {
        let Sweep { lrs, chosen, .. } = &self.sweep;
        if lrs.len() > 1 && !chosen.contains_key(model) { lrs } else { &[] }
    }

    fn validate(&self) -> Result<(), String> {
        for (what, empty) in [
            ("tasks", self.tasks.is_empty()),
            ("models", self.models.is_empty()),
            ("seeds", self.seeds.is_empty()),
        ] {
            if empty {
                return Err(format!("`{what}` is empty; name at least one"));
            }
        }
        for (what, number) in [
            ("jobs", self.jobs as u64),
            ("match_tokens", self.match_tokens as u64),
            ("train.steps", self.train.steps),
            ("train.rows", self.train.rows as u64),
            ("eval.samples", self.eval.samples),
            ("eval.every", self.eval.every),
            ("eval.curve_samples", self.eval.curve_samples),
            ("sweep.steps", self.sweep.steps),
        ] {
            if number == 0 {
                return Err(format!("{what} = 0: must be at least 1"));
            }
        }
        for (what, twice) in [
            ("tasks", repeated(&self.tasks)),
            ("models", repeated(&self.models)),
            ("seeds", repeated(&self.seeds)),
        ] {
            if twice {
                return Err(format!("`{what}` names something twice"));
            }
        }
        if let Some(name) = self.variants.keys().find(|name| !names_a_file(name)) {
            return Err(format!(
                "[variants.{name:?}]: a model's name is part of its files' names; take at most {LONGEST_NAME} letters, \
                 digits, `_` and the like, and none of / \\ : * ? \" < > |, no `.` in front"
            ));
        }
        if self.seeds.contains(&self.sweep.seed) {
            return Err(format!("sweep.seed = {} is also one of `seeds`; take another", self.sweep.seed));
        }
        if self.sweep.lrs.len() > 1 && self.sweep.tasks.is_empty() {
            return Err("sweep.lrs has rates to choose from, but `sweep.tasks` is empty".into());
        }
        Ok(())
    }
}

fn repeated<T: PartialEq>(list: &[T]) -> bool {
    list.iter().enumerate().any(|(index, one)| list[..index].contains(one))
}

/// Whether a model's name, a part of its files' names, is one that every file system takes.
fn names_a_file(name: &str) -> bool {
    let is_bad = |c: char| c.is_control() || r#"/\:*?"<>|"#.contains(c);
    !name.is_empty() && name.len() <= LONGEST_NAME && !name.starts_with('.') && !name.contains(is_bad)
}

/// Lays an override over the table; sections that are not there are made.
fn overlay(table: &mut Table, setting: &str) -> anyhow::Result<()> {
    let given = Override::parse(setting)?;
    let Some((last, sections)) = given.path.split_last() else { return Ok(()) };
    let mut place = table;
    for key in sections {
        let section = place.entry(*key).or_insert_with(|| Value::Table(Table::new()));
        place = section.as_table_mut().ok_or_else(|| given.refuse(&format!("`{key}` is no section")))?;
    }
    place.insert((*last).into(), given.value);
    Ok(())
}
