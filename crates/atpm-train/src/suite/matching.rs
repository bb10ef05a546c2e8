//! `atpm-train suite match`: the widths at which other models are as large as a run's, for loss curves on text.

use atpm_model::{Flops, ModelConfig, baselines};
use serde::Serialize;
use toml::{Table, Value};

use super::config::Matched;
use super::models::{NAMED, drop_foreign, matched};
use crate::report::output;
use crate::run::cli::ConfigArgs;
use crate::run::config::{self, Run};
use crate::training::setup;

const EXAMPLES: &str = "\
Examples:
  atpm-train suite match --config configs/tiny.toml
  atpm-train suite match --config configs/tiny.toml --by flops --json

Prints, for every model that the suite knows by name, what to lay over the run's settings so that it is as large as the
run's own model: equal parameters, or equal FLOPs of training a token in documents of `train.tokens` tokens. Then, for
equal steps on the same text:
  atpm-train --config configs/tiny.toml
  atpm-train --config configs/tiny.toml --set run_dir=runs/lstm --set model.kind=lstm --set model.d_model=…

What the run's model has and the other lacks (pinned controllers, a Turing machine's sizes) is named: leave it out of the
config. With --json: by, tokens, parameters and training_flop_per_token of the run's model, and models (name, parameters,
training_flop_per_token, settings, leave_out; or name and problem).";

/// Flags of `suite match`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The run whose model is the reference.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// What is to be equal: params or flops.
    #[arg(long, value_name = "WHAT", default_value = "params", value_parser = ["params", "flops"])]
    pub by: String,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Report {
    by: Matched,
    tokens: usize,
    #[serde(flatten)]
    reference: Sizes,
    models: Vec<Model>,
}

#[derive(Serialize)]
struct Sizes {
    parameters: usize,
    training_flop_per_token: f64,
}

#[derive(Serialize)]
struct Model {
    name: &'static str,
    #[serde(flatten)]
    fit: Fit,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Fit {
    Found {
        #[serde(flatten)]
        sizes: Sizes,
        /// As `--set` takes them.
        settings: Vec<String>,
        /// Keys of the run that the model lacks, which no `--set` takes away.
        leave_out: Vec<String>,
    },
    None {
        problem: String,
    },
}

/// Runs it.
///
/// # Errors
/// A config that cannot be read, a tokenizer that cannot be opened.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let run = setup::with_vocabulary(&config::load(&args.config)?)?;
    let by = if args.by == "flops" { Matched::Flops } else { Matched::Params };
    let tokens = run.train().tokens;
    let models = NAMED.iter().map(|(name, keys)| Model { name, fit: fit(&run, keys, by) }).collect();
    let report = Report { by, tokens, reference: sizes(run.model(), tokens)?, models };
    if args.json { output::json(&report) } else { output::part(report.render()) }
}

/// The settings that make the run's model the one of these keys, as large as it was.
fn fit(run: &Run, keys: &str, by: Matched) -> Fit {
    let found = || -> anyhow::Result<Fit> {
        let (base, leave_out) = without_foreign(run, &keys.parse()?)?;
        let mut settings: Vec<String> =
            keys.lines().map(|line| format!("model.{}", line.replace(" = ", "=").replace('"', ""))).collect();
        settings.retain(|setting| !base.with(&[setting]).is_ok_and(|same| same == base));
        let tokens = run.train().tokens;
        let model = matched(base.with(&settings)?.model().clone(), run.model(), by, tokens)?;
        let (key, width) = baselines::matched_width(&model);
        settings.push(format!("model.{key}={width}"));
        Ok(Fit::Found { sizes: sizes(base.with(&settings)?.model(), tokens)?, settings, leave_out })
    };
    found().unwrap_or_else(|error| Fit::None { problem: format!("{error:#}") })
}

/// The run without what a model of these keys lacks, and its names.
fn without_foreign(run: &Run, keys: &Table) -> anyhow::Result<(Run, Vec<String>)> {
    let mut table: Table = run.to_toml()?.parse()?;
    let foreign = match table.get_mut("model") {
        Some(Value::Table(model)) => drop_foreign(model, keys),
        _ => Vec::new(),
    };
    let run = Run::from_toml(&table.to_string(), "the run's settings")?;
    Ok((run, foreign.into_iter().map(|key| format!("model.{key}")).collect()))
}

fn sizes(model: &ModelConfig, tokens: usize) -> anyhow::Result<Sizes> {
    let training_flop_per_token = Flops::of_documents(model, tokens).training();
    Ok(Sizes { parameters: baselines::learning_parameters(model)?, training_flop_per_token })
}

impl Report {
    fn render(&self) -> String {
        use std::fmt::Write as _;
        let mut text = format!("the run's model: {}\n", self.reference.words());
        for Model { name, fit } in &self.models {
            let _ = match fit {
                Fit::Found { sizes, settings, leave_out } => {
                    let flags: Vec<_> = settings.iter().map(|setting| format!("--set {setting}")).collect();
                    let without = match leave_out.join(", ") {
                        keys if keys.is_empty() => keys,
                        keys => format!(", the config without {keys}"),
                    };
                    writeln!(text, "{name}: {}\n  {}{without}", sizes.words(), flags.join(" "))
                }
                Fit::None { problem } => writeln!(text, "{name}: cannot be matched: {problem}"),
            };
        }
        text
    }
}

impl Sizes {
    fn words(&self) -> String {
        format!("{} parameters, {:.3} MFLOP a token", self.parameters, self.training_flop_per_token / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "[data]\ntrain = \"x\"\n[model]\nvocab = 320\nd_model = 32\nlayers = 2\nheads = 2\n\
        address = 16\nkey = 8\nvalue = 8\nmlp = 96\n";

    fn fits(set: &[&str]) -> Vec<(&'static str, serde_json::Value)> {
        let run = Run::from_toml(RUN, "t").unwrap().with(set).unwrap();
        let fit = |keys| serde_json::to_value(fit(&run, keys, Matched::Params)).unwrap();
        NAMED.iter().map(|(name, keys)| (*name, fit(*keys))).collect()
    }

    // What a run pins and another kind lacks is in no one's way, and is named.
    #[test]
    fn every_model_is_matched_to_a_run_of_any_kind() {
        for (set, foreign, of) in [
            (&["model.rho=0.5", "model.tie_beta=true"][..], &["model.rho", "model.tie_beta"][..], "atpm"),
            (&["model.kind=lstm", "model.d_model=48"], &[], "lstm"),
            (&["model.kind=transformer"], &[], "transformer"),
        ] {
            for (name, fit) in fits(set) {
                // The corners are ATPM.
                let kind = if ["transformer", "lstm", "ntm"].contains(&name) { name } else { "atpm" };
                assert!(fit["parameters"].is_u64(), "{set:?}, {name}: {fit}");
                let expected = if kind == of { &[][..] } else { foreign };
                assert_eq!(fit["leave_out"], serde_json::json!(expected), "{set:?}, {name}");
                let settings = fit["settings"].as_array().unwrap();
                assert_eq!(settings.contains(&format!("model.kind={kind}").into()), kind != of, "{fit}");
            }
        }
    }
}
