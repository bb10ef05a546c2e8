//! The order of things: each model's learning rate by a sweep on validation samples, then every trial.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, anyhow};
use serde::Serialize;

use super::config::SuiteConfig;
use super::kept::Kept;
use super::models::{Entry, entries};
use super::results::Store;
use super::trial::{Outcome, Trial};
use crate::run::exit::{Interrupted, user};
use crate::training::signals::StopFlag;

/// Everything that a suite found out.
#[derive(Debug, Clone)]
pub struct Findings {
    /// The models in the config's order, with the learning rates that were taken.
    pub models: Vec<Model>,
    /// The outcomes, task by task, model by model, seed by seed.
    pub outcomes: Vec<Outcome>,
}

/// A model and its learning rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// Its parameters that can learn.
    pub parameters: usize,
    /// FLOPs of training a token, in documents of `match_tokens` tokens.
    pub training_flop_per_token: f64,
    /// Peak learning rate.
    pub lr: f64,
    /// What each rate of the sweep came to: mean validation cross-entropy in nats.
    pub sweep: Vec<(f64, f64)>,
}

/// Runs what has no result yet.
///
/// # Errors
/// A mistake in the config, results of other settings, a trial that fails; [`Interrupted`] after a signal.
pub fn run(config: &SuiteConfig, stop: &StopFlag) -> anyhow::Result<Findings> {
    let entries = entries(config)?;
    for entry in &entries {
        tracing::info!("{}", entry.sizes());
    }
    let store = Store::open(&config.out)?;
    let models = sweep(config, &entries, &store, stop)?;
    let mut trials = Vec::new();
    for &task in &config.tasks {
        for (entry, model) in entries.iter().zip(&models) {
            for &seed in &config.seeds {
                trials.push(Trial::new(config, entry, task, seed, config.train.steps, Some(model.lr))?);
            }
        }
    }
    let kept = if config.keep { Some(Kept::open(&config.out)?) } else { None };
    let outcomes = run_all(&trials, config.jobs, &store, kept.as_ref(), stop)?;
    Ok(Findings { models, outcomes })
}

/// The learning rate of each model: the best of the sweep, or the config's where there is nothing to choose.
///
/// # Errors
/// Settings that no trial can have, told before the first one is run; as [`run_all`]; a model without a rate.
fn sweep(
    config: &SuiteConfig,
    entries: &[Entry],
    store: &Store,
    stop: &StopFlag,
) -> anyhow::Result<Vec<Model>> {
    let settings = &config.sweep;
    let declared = entries.iter().map(|entry| unswept(config, entry)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut trials = Vec::new();
    let mut of = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        for &lr in config.sweep_rates(&entry.name) {
            for &task in &settings.tasks {
                let trial = Trial::new(config, entry, task, settings.seed, settings.steps, Some(lr))?;
                trials.push(Trial { is_sweep: true, ..trial });
                of.push(index);
            }
        }
    }
    let outcomes = run_all(&trials, config.jobs, store, None, stop)?;
    entries
        .iter()
        .zip(declared)
        .enumerate()
        .map(|(index, (entry, declared))| {
            let own = of.iter().zip(&outcomes).filter(|(of, _)| **of == index).map(|(_, outcome)| outcome);
            let sweep = means(own);
            let lr = if sweep.is_empty() { declared } else { best(&entry.name, &sweep)? };
            let Entry { parameters, training_flop_per_token, .. } = *entry;
            Ok(Model { name: entry.name.clone(), parameters, training_flop_per_token, lr, sweep })
        })
        .collect()
}

/// The rate that a model has where there is nothing to choose: its own, the sweep's only one, or the optimiser's.
fn unswept(config: &SuiteConfig, entry: &Entry) -> anyhow::Result<f64> {
    let (task, seed, steps) = (config.tasks[0], config.seeds[0], config.train.steps);
    let lr = config.sweep.chosen.get(&entry.name).or(config.sweep.lrs.first());
    let trial = Trial::new(config, entry, task, seed, steps, lr.copied())?;
    Ok(trial.run.optimizer().lr)
}

/// The rate of the lowest loss.
fn best(model: &str, sweep: &[(f64, f64)]) -> anyhow::Result<f64> {
    let finite = sweep.iter().filter(|(_, loss)| loss.is_finite());
    let best = finite.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(lr, _)| *lr);
    best.ok_or_else(|| {
        let rates: Vec<_> = sweep.iter().map(|(lr, _)| lr.to_string()).collect();
        user(format!(
            "`{model}` diverged at every learning rate of the sweep ({}); add lower ones to sweep.lrs, or raise \
             schedule.warmup",
            rates.join(", ")
        ))
    })
}

/// Mean last cross-entropy of the outcomes of each learning rate, in ascending order of rates.
fn means<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Vec<(f64, f64)> {
    // Positive floats are ordered as their bits are.
    let mut sums: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for outcome in outcomes {
        let (sum, count) = sums.entry(outcome.lr.to_bits()).or_default();
        *sum += outcome.curve.last().map_or(f64::INFINITY, |point| point.cross_entropy);
        *count += 1.0;
    }
    sums.into_iter().map(|(lr, (sum, count))| (f64::from_bits(lr), sum / count)).collect()
}

/// The outcomes of these trials, in their order: those that are there, and those that are run now, `jobs` side by
/// side on as many shares of the cores. What those learn goes into `kept`.
fn run_all(
    trials: &[Trial],
    jobs: usize,
    store: &Store,
    kept: Option<&Kept>,
    stop: &StopFlag,
) -> anyhow::Result<Vec<Outcome>> {
    let found = trials.iter().map(|trial| store.find(trial)).collect::<anyhow::Result<Vec<_>>>()?;
    if let Some(kept) = kept {
        let done = trials.iter().zip(&found).filter(|(_, found)| found.is_some());
        tell_unkept(done.map(|(trial, _)| trial), store, kept)?;
    }
    let open: Vec<usize> = (0..trials.len()).filter(|&index| found[index].is_none()).collect();
    if open.len() < trials.len() {
        tracing::info!("{} of {} trials are done already", trials.len() - open.len(), trials.len());
    }
    let slots = Mutex::new(found);
    let (next, failed) = (AtomicUsize::new(0), StopFlag::default());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || -> anyhow::Result<()> {
        let threads = (cores / jobs).max(1);
        let pool =
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().context("cannot start threads")?;
        while let Some(&index) = open.get(next.fetch_add(1, Ordering::Relaxed)) {
            if stop.raised().is_some() || failed.raised().is_some() {
                break;
            }
            let trial = &trials[index];
            let Some(outcome) = pool.install(|| trial.run(stop, kept)).with_context(|| trial.name())? else {
                break;
            };
            store.write(trial, &outcome)?;
            tell(trial, &outcome, index + 1, trials.len());
            slots.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(outcome);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let worker = || {
            let done = work();
            if done.is_err() {
                failed.raise(1);
            }
            done
        };
        let workers: Vec<_> = (0..jobs.min(open.len())).map(|_| scope.spawn(worker)).collect();
        let mut all = Ok(());
        for worker in workers {
            let done = worker.join().unwrap_or_else(|_| Err(anyhow!("a trial panicked")));
            all = all.and(done);
        }
        all
    })?;
    if let Some(signal) = stop.raised() {
        return Err(Interrupted { signal, advice: "the same command goes on" }.into());
    }
    let outcomes = slots.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.into_iter().map(|outcome| outcome.context("a trial was not run")).collect()
}

/// Names the finished trials whose weights are not there: `keep` trains nothing again by itself.
fn tell_unkept<'a>(done: impl Iterator<Item = &'a Trial>, store: &Store, kept: &Kept) -> anyhow::Result<()> {
    for trial in done {
        if !kept.has(trial)? {
            tracing::warn!(
                "keep: {} is done, but its weights were not kept; to train it again, move {} away",
                trial.name(),
                store.path(trial).display()
            );
        }
    }
    Ok(())
}

fn tell(trial: &Trial, outcome: &Outcome, number: usize, of: usize) {
    let last = outcome.curve.last().map_or(f64::NAN, |point| point.cross_entropy);
    let steps_per_s = outcome.losses.len() as f64 / outcome.seconds;
    let scores = outcome.scores.map_or(String::new(), |scores| {
        let percent = |score: f64| 100.0 * score;
        format!(
            ", exact match IID {:.1} OOD {:.1} Stress {:.1}",
            percent(scores.iid.exact_match),
            percent(scores.ood.exact_match),
            percent(scores.stress.exact_match)
        )
    });
    tracing::info!(
        "{number} of {of}, {}: validation {last:.4}{scores}, {:.0} s, {steps_per_s:.1} steps/s",
        trial.name(),
        outcome.seconds
    );
}
