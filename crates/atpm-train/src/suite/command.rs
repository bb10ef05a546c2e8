//! `atpm-train suite --config FILE`.

use serde::Serialize;

use super::config::SuiteConfig;
use super::models::{Entry, entries};
use super::table::Table;
use super::{curves, protocol};
use crate::report::output;
use crate::run::cli::ConfigArgs;
use crate::run::{logging, whole};
use crate::training::signals::StopFlag;

const EXAMPLES: &str = "\
Examples:
  atpm-train suite --config configs/suite/smoke.toml      one task, ATPM alone, in less than a minute
  atpm-train suite --config configs/suite/paper.toml      the whole comparison; go on after a stop by the same command
  atpm-train suite --config configs/suite/paper.toml --set tasks='[\"sort\"]' --set out=runs/suite/sort
  atpm-train suite --config configs/suite/paper.toml --dry-run

Every trial (one model, one task, one seed) is a file in `out`; a trial that is there is not run again. At the end there
are table.md, table.json and the learning curves, curves/TASK.svg and .png, and curves/all.svg and .png of all tasks.

With --json: models (name, parameters, training_flop_per_token, lr, sweep), rows (task, model, split, seeds, exact_match,
token_accuracy, cross_entropy, each with mean, min and max), training_seconds, diverged (task, model, seed, step). With
--dry-run --json: models (name, parameters, training_flop_per_token, and the resolved [model]), trials, sweep_trials.";

/// Flags of `suite`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// What is compared, and overrides.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Print the models' sizes and the number of trials, and stop.
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// Runs it.
///
/// # Errors
/// A mistake in the config, results of other settings, a trial that fails, or a signal.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let config = SuiteConfig::load(&args.config)?;
    if args.dry_run {
        return dry_run(&config, args.json);
    }
    logging::warn_if_unoptimised();
    let stop = StopFlag::on_signals()?;
    let findings = protocol::run(&config, &stop)?;
    let pictures = config.out.join("curves");
    std::fs::create_dir_all(&pictures)?;
    curves::draw(&findings, &pictures)?;
    let table = Table::of(findings);
    let markdown = table.markdown();
    whole::write(&config.out.join("table.md"), markdown.as_bytes())?;
    whole::write(&config.out.join("table.json"), &serde_json::to_vec_pretty(&table)?)?;
    if args.json { output::json(&table) } else { output::part(markdown) }
}

#[derive(Serialize)]
struct Sketch {
    models: Vec<Entry>,
    trials: usize,
    sweep_trials: usize,
}

fn dry_run(config: &SuiteConfig, json: bool) -> anyhow::Result<()> {
    let models = entries(config)?;
    let rates: usize = models.iter().map(|model| config.sweep_rates(&model.name).len()).sum();
    let trials = models.len() * config.tasks.len() * config.seeds.len();
    let sketch = Sketch { trials, sweep_trials: rates * config.sweep.tasks.len(), models };
    if json {
        return output::json(&sketch);
    }
    for entry in &sketch.models {
        output::line(entry.sizes())?;
    }
    output::line(format_args!(
        "{trials} trials of {} steps, after {} trials of {} steps that choose learning rates",
        config.train.steps, sketch.sweep_trials, config.sweep.steps
    ))
}
