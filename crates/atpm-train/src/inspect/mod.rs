//! `atpm-train inspect`: what a trained model's memory does with one sequence, token by token. docs/inspect.md shows how.
//!
//! Reading order: [`mod@subject`] (what is read, marked and compared), [`table`] (all values as parquet), [`pictures`].

pub mod pictures;
pub mod subject;
pub mod table;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use atpm_core::Segments;
use atpm_data::synthetic::{Split, Task};
use atpm_model::{MemoryTrace, ModelConfig, ModelKind, Quantity};
use candle_core::{Device, Tensor};
use serde::Serialize;
use serde_json::json;

use crate::inference::model::{self, Opened};
use crate::report::output;
use crate::run::exit::{OrUser, user};
use crate::run::suite::named;
use crate::run::whole;
use pictures::Pictures;
use subject::{Place, Subject};

const EXAMPLES: &str = "\
Examples:
  atpm-train inspect --model runs/suite/smoke/models/kv_recall-atpm-0 --task kv_recall --out inspection
  atpm-train inspect --model runs/debug --prompt 'Ada lives in Paris. Ada lives in Rome.' --mark 30 --out inspection

What is measured at every token, layer and head: rho, lambda, beta_key, beta_value, alpha (the decay that was applied),
residual (how far the token's entity was from what the memory held at its address) and entity (the norm of the former).
In the folder: values.parquet, and as SVG and PNG heat (all layers), layer-N (lines), portrait (the lambda-rho square of
each layer) and contrast (marked tokens beside others). With --task the words of writes that revise a fact are marked.

A suite keeps its trained weights with `--set keep=true`. With --json: model, step, title, layers, heads, pinned, tokens
(word, mark, write), comparison (place, group, tokens, layer, head, and the mean of each quantity), files.";

/// Flags of `inspect`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A run folder (its newest complete checkpoint is taken), a checkpoint, or an export.
    #[arg(long, visible_alias = "checkpoint", value_name = "PATH")]
    pub model: PathBuf,
    /// Text to read.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with = "task")]
    pub prompt: Option<String>,
    /// A memory task, a sample of which is read.
    #[arg(long, value_name = "NAME")]
    pub task: Option<String>,
    /// The part of its samples: train, validation, iid, ood or stress.
    #[arg(long, value_name = "NAME", default_value = "iid", conflicts_with = "prompt")]
    pub split: String,
    /// Seed of the samples.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "prompt")]
    pub seed: u64,
    /// Which sample.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "prompt")]
    pub index: u64,
    /// Tokens to mark and to compare with the others, by their numbers from 0: `--mark 12,40`.
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    pub mark: Vec<usize>,
    /// The folder of pictures and values; all files of an earlier inspection give way.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Looks, draws and reports.
///
/// # Errors
/// A model that cannot be opened or has no memory of this kind, nothing to read, a mark past its end, a folder that cannot
/// be written.
pub fn run(args: &Args) -> anyhow::Result<()> {
    model::expect_folder(&args.model)?;
    if args.task.is_none() && args.prompt.is_none() {
        return Err(user("nothing to read: give --prompt TEXT or --task NAME"));
    }
    let opened = model::open(&args.model)?;
    let subject = subject(args, &opened)?;
    let traces = trace(&opened, &subject)?;
    let means: Vec<Means> = subject.places.iter().map(|place| Means::new(place, &traces)).collect();

    std::fs::create_dir_all(&args.out).with_context(|| format!("--out {}", args.out.display())).or_user()?;
    let encoded = table::encode(&subject, &traces).context("cannot encode the values")?;
    pictures::remove_earlier(&args.out)?;
    let values = args.out.join("values.parquet");
    whole::write(&values, &encoded)?;
    let config = opened.model.config();
    let pictures = Pictures { config, subject: &subject, traces: &traces, means: &means };
    let mut files = vec![values];
    files.extend(pictures.write(&args.out)?);
    if args.json {
        return output::json(&report(&opened, &subject, &traces, &means, &files));
    }
    output::part(describe(&opened, &subject, &traces, &means))?;
    files.iter().try_for_each(|file| output::line(file.display()))
}

fn subject(args: &Args, opened: &Opened) -> anyhow::Result<Subject> {
    let Some(task) = &args.task else {
        return Subject::prompt(opened, args.prompt.as_deref().unwrap_or_default(), &args.mark);
    };
    let task = named("task", task, &Task::ALL, Task::name)?;
    let split = named("split", &args.split, &Split::ALL, Split::name)?;
    let sample = task.sample(split, args.seed, args.index);
    let title =
        format!("{}, {}, seed {}, sample {}", sample.task.name(), split.name(), args.seed, args.index);
    Subject::sample(opened, &sample, title, &args.mark)
}

/// What moved the memory of each layer while the model read the sequence as one document.
///
/// # Errors
/// A model of another kind, an id outside its vocabulary.
pub fn trace(opened: &Opened, subject: &Subject) -> anyhow::Result<Vec<MemoryTrace>> {
    let kind = opened.model.config().kind;
    if kind != ModelKind::Atpm {
        return Err(user(format!(
            "{}: its model.kind is \"{}\"; only \"atpm\" has controllers to look at",
            opened.path.display(),
            kind.name()
        )));
    }
    let tokens = subject.ids.len();
    let ids = Tensor::from_slice(&subject.ids, (1, tokens), &Device::Cpu)?;
    let segments = Segments::from_starts(tokens, vec![vec![0]])?;
    Ok(opened.model.trace(&ids, &segments)?)
}

/// The means of every group of a place.
#[derive(Debug, Clone, PartialEq)]
pub struct Means {
    /// What the tokens are.
    pub place: &'static str,
    /// The groups, each with its number of tokens.
    pub groups: Vec<(&'static str, usize)>,
    /// Layers and heads, in this order.
    pub heads: Vec<(usize, usize)>,
    /// For each quantity, for each head, a mean a group.
    values: Vec<Vec<Vec<f64>>>,
}

impl Means {
    /// Over the tokens of each group that have a value; NaN where none has.
    pub fn new(place: &Place, traces: &[MemoryTrace]) -> Self {
        let heads = |(layer, trace): (usize, &MemoryTrace)| (0..trace.heads()).map(move |head| (layer, head));
        let heads: Vec<(usize, usize)> = traces.iter().enumerate().flat_map(heads).collect();
        let mean = |quantity, (layer, head): (usize, usize), tokens: &[usize]| {
            let tokens = || tokens.iter().filter(|&&token| has_value(quantity, token));
            let sum: f64 = tokens().map(|&token| traces[layer].at(quantity, token, head)).sum();
            sum / tokens().count() as f64
        };
        let of_head = |quantity, head| {
            place.groups.iter().map(|group| mean(quantity, head, &group.tokens)).collect::<Vec<_>>()
        };
        let of = |quantity| heads.iter().map(|&head| of_head(quantity, head)).collect::<Vec<_>>();
        Self {
            place: place.name,
            groups: place.groups.iter().map(|group| (group.name, group.tokens.len())).collect(),
            values: Quantity::ALL.map(of).into(),
            heads,
        }
    }

    /// For each head, a mean a group.
    pub fn of(&self, quantity: Quantity) -> Vec<Vec<f64>> {
        self.values[quantity as usize].clone()
    }
}

/// Whether a token has this quantity: nothing stands before the first one that could decay, and its α of 0 says no more.
fn has_value(quantity: Quantity, token: usize) -> bool {
    (quantity, token) != (Quantity::Alpha, 0)
}

/// What the model's settings hold fixed.
fn pinned(config: &ModelConfig) -> Vec<String> {
    let held = |name: &str, value: Option<f64>| value.map(|value| format!("{name} is held at {value}"));
    let tied = config.tie_beta.then(|| "β_V follows β_K".to_owned());
    [held("ρ", config.rho), held("λ", config.lambda), tied].into_iter().flatten().collect()
}

fn describe(opened: &Opened, subject: &Subject, traces: &[MemoryTrace], means: &[Means]) -> String {
    let mut text = String::new();
    let heads = traces.first().map_or(0, MemoryTrace::heads);
    let _ = writeln!(text, "{}", opened.path.display());
    let _ = writeln!(
        text,
        "{}: {} tokens, layers {}, heads {heads}",
        subject.title,
        subject.ids.len(),
        traces.len()
    );
    for held in pinned(opened.model.config()) {
        let _ = writeln!(text, "{held}");
    }
    if !subject.marks.is_empty() {
        let marked = |&mark: &usize| format!("{mark} {:?}", subject.words[mark]);
        let _ = writeln!(text, "marked: {}", subject.marks.iter().map(marked).collect::<Vec<_>>().join(", "));
    }
    for means in means {
        let _ = write!(text, "\n{:<42}", format!("mean, {}", means.place));
        let _ =
            writeln!(text, "{}", Quantity::ALL.map(|quantity| format!("{:>11}", quantity.name())).concat());
        for (row, &(layer, head)) in means.heads.iter().enumerate() {
            for (group, (name, tokens)) in means.groups.iter().enumerate() {
                let _ =
                    write!(text, "{:<18}{:<24}", pictures::place(layer, head), format!("{name} ({tokens})"));
                let value = |quantity: Quantity| match means.values[quantity as usize][row][group] {
                    mean if mean.is_nan() => format!("{:>11}", "–"),
                    mean => format!("{mean:>11.4}"),
                };
                let _ = writeln!(text, "{}", Quantity::ALL.map(value).concat());
            }
        }
    }
    text
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report<'a> {
    model: &'a Path,
    step: Option<u64>,
    title: &'a str,
    layers: usize,
    heads: usize,
    pinned: Vec<String>,
    tokens: Vec<serde_json::Value>,
    comparison: Vec<serde_json::Value>,
    files: &'a [PathBuf],
}

fn report<'a>(
    opened: &'a Opened,
    subject: &'a Subject,
    traces: &[MemoryTrace],
    means: &[Means],
    files: &'a [PathBuf],
) -> Report<'a> {
    let write = |token: usize| {
        let kind = subject.writes[token]?;
        subject::KINDS.iter().find(|(known, ..)| *known == kind).map(|(_, _, name)| *name)
    };
    let token = |(at, word): (usize, &String)| json!({"word": word, "mark": subject.marks.contains(&at), "write": write(at)});
    let mut comparison = Vec::new();
    for means in means {
        for (row, &(layer, head)) in means.heads.iter().enumerate() {
            for (group, (name, tokens)) in means.groups.iter().enumerate() {
                let mut line = json!({
                    "place": means.place, "group": name, "tokens": tokens, "layer": layer, "head": head
                });
                for quantity in Quantity::ALL {
                    line[quantity.name()] = json!(means.values[quantity as usize][row][group]);
                }
                comparison.push(line);
            }
        }
    }
    Report {
        model: &opened.path,
        step: opened.step,
        title: &subject.title,
        layers: traces.len(),
        heads: traces.first().map_or(0, MemoryTrace::heads),
        pinned: pinned(opened.model.config()),
        tokens: subject.words.iter().enumerate().map(token).collect(),
        comparison,
        files,
    }
}
