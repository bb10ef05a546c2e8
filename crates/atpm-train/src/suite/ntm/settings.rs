//! The settings of a run: the task's defaults, then the file, then `--set`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use atpm_data::synthetic::vector::VectorTask;
use atpm_model::ntm::NtmConfig;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use crate::run::exit::{OrUser, user};
use crate::run::nearest::nearest;
use crate::suite::overrides::Override;

/// All settings; docs/ntm.md lists them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The task.
    pub task: VectorTask,
    /// Seed of the parameters and of the samples.
    pub seed: u64,
    /// CPU threads; 0 = all cores.
    pub threads: usize,
    /// The run's folder.
    pub run_dir: PathBuf,
    /// The machine; `inputs` and `outputs` are the task's.
    pub model: NtmConfig,
    /// Training.
    pub train: Train,
    /// Validation.
    pub eval: Eval,
    /// Checkpoints.
    pub checkpoint: Checkpoint,
}

/// `[train]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Train {
    /// Steps of the whole run.
    pub steps: u64,
    /// Sequences of a step.
    pub rows: usize,
    /// The smallest size, in the task's unit.
    pub least: usize,
    /// The largest size.
    pub most: usize,
    /// Steps over which the largest size grows from `least` to `most`; 0 = from the start.
    pub curriculum: u64,
    /// Learning rate of AdamW after warm-up.
    pub lr: f64,
    /// Steps of linear warm-up.
    pub warmup: u64,
    /// The last step's rate, as a share of `lr`; it falls along a cosine.
    pub final_ratio: f64,
    /// Decoupled weight decay of the matrices.
    pub weight_decay: f64,
    /// Largest gradient norm; 0 = no clipping.
    pub clip: f64,
    /// The factor on every β at the first step; it reaches 1 after `beta_steps`.
    pub beta_start: f64,
    /// Steps of β annealing; 0 = none.
    pub beta_steps: u64,
    /// Steps between progress lines.
    pub log_every: u64,
}

/// `[eval]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Eval {
    /// Steps between validations; 0 = only at the end.
    pub every: u64,
    /// Batches of a validation.
    pub batches: u64,
}

/// `[checkpoint]`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Steps between checkpoints; 0 = only at the end.
    pub every: u64,
    /// Newest ones that are kept.
    pub keep_last: u64,
}

impl Settings {
    /// What a task is trained with unless told otherwise.
    pub fn of(task: VectorTask) -> Self {
        let (least, most) = task.sizes();
        // What was found to converge, docs/ntm.md.
        let (steps, lr, heads) = match task {
            VectorTask::Copy => (5_000, 3e-3, 1),
            VectorTask::RepeatCopy => (10_000, 1e-2, 1),
            VectorTask::AssociativeRecall => (10_000, 1e-3, 1),
            VectorTask::PrioritySort => (15_000, 1e-3, 4),
        };
        Self {
            task,
            seed: 0,
            threads: 0,
            run_dir: format!("runs/ntm-{}", task.name()).into(),
            model: NtmConfig {
                read_heads: heads,
                write_heads: heads,
                ..NtmConfig::new(task.inputs(), task.outputs())
            },
            train: Train {
                steps,
                rows: 16,
                least,
                most,
                curriculum: 0,
                lr,
                warmup: 100,
                final_ratio: 0.1,
                weight_decay: 0.0,
                clip: 1.0,
                beta_start: 1.0,
                beta_steps: 0,
                log_every: 100,
            },
            eval: Eval { every: 500, batches: 8 },
            checkpoint: Checkpoint { every: 1_000, keep_last: 2 },
        }
    }

    /// The task's defaults with a file and overrides laid over them. The task is `task`, or the override's, or the file's.
    ///
    /// # Errors
    /// No task or two, a key or value that cannot be, each named with its place.
    pub fn load(task: Option<&str>, config: Option<&Path>, overrides: &[String]) -> anyhow::Result<Self> {
        let (table, origin) = match config {
            Some(path) => (read(path)?, path.display().to_string()),
            None => (Table::new(), "the flags".into()),
        };
        let overrides =
            overrides.iter().map(|setting| Override::parse(setting)).collect::<anyhow::Result<Vec<_>>>()?;
        let task = chosen(task, &overrides, &table, &origin)?;
        let mut all = Table::try_from(Self::of(task)).context("cannot write the defaults as TOML")?;
        overlay(&mut all, table, "").map_err(|problem| user(format!("{origin}: {problem}")))?;
        for given in &overrides {
            overlay(&mut all, given.table(), "").map_err(|problem| given.refuse(&problem))?;
        }
        // What the file says may be another.
        all.insert("task".into(), Value::String(task.name().into()));
        let settings: Self = all.try_into().with_context(|| origin.clone()).or_user()?;
        settings.validate().map_err(|problem| user(format!("{origin}: {problem}")))?;
        Ok(settings)
    }

    /// Settings that were written by [`Self::to_toml`].
    ///
    /// # Errors
    /// Text that is none.
    pub fn from_toml(text: &str) -> anyhow::Result<Self> {
        toml::from_str(text).context("these are no settings of an NTM run").or_user()
    }

    /// All settings as TOML.
    ///
    /// # Errors
    /// A path that is not UTF-8.
    pub fn to_toml(&self) -> anyhow::Result<String> {
        toml::to_string(self).context("cannot write the settings as TOML")
    }

    /// The smallest and the largest size at a step, counted from 1.
    pub fn sizes_at(&self, step: u64) -> (usize, usize) {
        let Train { least, most, curriculum, .. } = self.train;
        if step > curriculum {
            return (least, most);
        }
        let grown = (most - least) as u64 * (step - 1) / curriculum;
        (least, least + usize::try_from(grown).unwrap_or(usize::MAX))
    }

    /// The factor on β at a step, counted from 1.
    pub fn beta_scale_at(&self, step: u64) -> f64 {
        let Train { beta_start, beta_steps, .. } = self.train;
        if step > beta_steps {
            return 1.0;
        }
        beta_start + (1.0 - beta_start) * (step - 1) as f64 / beta_steps as f64
    }

    fn validate(&self) -> Result<(), String> {
        let Train {
            steps,
            rows,
            least,
            most,
            lr,
            final_ratio,
            weight_decay,
            clip,
            beta_start,
            log_every,
            ..
        } = self.train;
        let (task, (smallest, largest)) = (self.task.name(), self.task.limits());
        let positive = |name: &str, value: f64| {
            if value > 0.0 && value.is_finite() {
                Ok(())
            } else {
                Err(format!("{name} must be above 0, got {value}"))
            }
        };
        let not_negative = |name: &str, value: f64| {
            if value >= 0.0 && value.is_finite() {
                Ok(())
            } else {
                Err(format!("{name} must not be negative, got {value}"))
            }
        };
        if least < smallest || most < least || most > largest {
            return Err(format!(
                "train.least = {least} and train.most = {most}: {task} has sizes from {smallest} to {largest}, and \
                 train.most is not below train.least"
            ));
        }
        let counts = [
            ("train.steps", steps),
            ("train.rows", rows as u64),
            ("train.log_every", log_every),
            ("eval.batches", self.eval.batches),
            ("checkpoint.keep_last", self.checkpoint.keep_last),
        ];
        if let Some((name, _)) = counts.into_iter().find(|&(_, value)| value == 0) {
            return Err(format!("{name} must be at least 1"));
        }
        positive("train.lr", lr)?;
        positive("train.beta_start", beta_start)?;
        not_negative("train.final_ratio", final_ratio)?;
        not_negative("train.weight_decay", weight_decay)?;
        not_negative("train.clip", clip)?;
        if (self.model.inputs, self.model.outputs) != (self.task.inputs(), self.task.outputs()) {
            return Err(format!(
                "model.inputs and model.outputs are the task's, {} and {}; leave them out",
                self.task.inputs(),
                self.task.outputs()
            ));
        }
        self.model.validate().map_err(|error| error.to_string())
    }
}

fn read(path: &Path) -> anyhow::Result<Table> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the config {}", path.display()))
        .or_user()?;
    text.parse::<Table>().with_context(|| path.display().to_string()).or_user()
}

fn names() -> impl Iterator<Item = &'static str> {
    VectorTask::ALL.into_iter().map(VectorTask::name)
}

/// The task: the flag's, or else the last override's, or else the file's.
///
/// # Errors
/// None, one that does not exist, or a flag and an override that differ.
fn chosen(
    flag: Option<&str>,
    overrides: &[Override<'_>],
    file: &Table,
    origin: &str,
) -> anyhow::Result<VectorTask> {
    let wanted = || names().collect::<Vec<_>>().join(", ");
    let word = |value: &Value| {
        let text = value.as_str().map(str::to_owned);
        text.ok_or_else(|| format!("`task`: expected one of {}, got {value}", wanted()))
    };
    let given = overrides.iter().rev().find(|given| given.path == ["task"]);
    let set = given.map(|given| word(&given.value).map_err(|problem| given.refuse(&problem))).transpose()?;
    if let (Some(flag), Some(set)) = (flag, &set)
        && flag != set
    {
        return Err(user(format!("--task {flag} and --set task={set} name two tasks; give one of them")));
    }
    if let Some(name) = flag.map(str::to_owned).or(set) {
        return named(&name);
    }
    match file.get("task") {
        Some(value) => named(&word(value).map_err(|problem| user(format!("{origin}: {problem}")))?),
        None => Err(user(format!("no task given; give --task NAME, the tasks are {}", wanted()))),
    }
}

/// The task of this name.
///
/// # Errors
/// No such task, with the nearest name.
fn named(name: &str) -> anyhow::Result<VectorTask> {
    VectorTask::ALL.into_iter().find(|task| task.name() == name).ok_or_else(|| {
        let hint = nearest(&name.replace('-', "_"), names());
        let hint = hint.map_or(String::new(), |name| format!("did you mean `{name}`? "));
        user(format!(
            "{name}: there is no such task; {hint}The tasks are {}",
            names().collect::<Vec<_>>().join(", ")
        ))
    })
}

/// Lays `over` onto `all`, which has every key that exists.
fn overlay(all: &mut Table, over: Table, section: &str) -> Result<(), String> {
    for (name, value) in over {
        let path = if section.is_empty() { name.clone() } else { format!("{section}.{name}") };
        let Some(here) = all.get_mut(&name) else {
            let hint = nearest(&name.replace('-', "_"), all.keys().map(String::as_str));
            let hint = hint.map_or_else(
                || format!("the keys are {}", all.keys().cloned().collect::<Vec<_>>().join(", ")),
                |name| format!("did you mean `{name}`?"),
            );
            return Err(format!("unknown key `{path}`; {hint}"));
        };
        match (here, value) {
            (Value::Table(here), Value::Table(value)) => overlay(here, value, &path)?,
            (Value::Float(here), Value::Integer(value)) => *here = value as f64,
            (here, value) if here.same_type(&value) => *here = value,
            (here, value) => {
                return Err(format!(
                    "`{path}`: expected {} such as {here}, got {value}",
                    article(here.type_str())
                ));
            }
        }
    }
    Ok(())
}

fn article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    format!("{article} {kind}")
}
