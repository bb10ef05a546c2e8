//! Before the first step: device, tokenizer, sizes, checkpoint, data — in the order in which mistakes are
//! cheapest to find.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use atpm_data::{
    BatchSource, BpeOptions, DataConfig, EvalSource, ShardStamp, Specials, TextPosition, TextSource,
    Tokenizer, common_files, train_bpe,
};
use candle_core::Device;

use super::estimate::Estimate;
use super::trainer::Trainer;
use crate::checkpoint::Loaded;
use crate::run::config::{Run, ScheduleKind, TokenizerSpec};
use crate::run::device;
use crate::run::exit::{OrUser, user};
use crate::run::folder::{self, Resume};
use crate::run::logging::Console;

/// The tokenizer's name in run folders and checkpoints.
pub const TOKENIZER_FILE: &str = "tokenizer.json";

/// A run whose settings are checked and whose sizes are known.
#[derive(Debug)]
pub struct Plan {
    /// The run, its vocabulary resolved.
    pub run: Run,
    /// Where to compute.
    pub device: Device,
    /// The run's tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Parameters, FLOPs, memory.
    pub estimate: Estimate,
    /// The checkpoint to go on from.
    pub start: Option<Loaded>,
}

/// A run that stands before its next step.
pub struct Ready {
    /// Model and moments.
    pub trainer: Trainer,
    /// The training stream.
    pub source: TextSource,
}

impl Plan {
    /// Finds the checkpoint to start from, opens device and tokenizer, resolves the vocabulary, estimates.
    /// Nothing is allocated, and nothing written but a tokenizer that is yet to be trained.
    ///
    /// # Errors
    /// A device, checkpoint, tokenizer or vocabulary that cannot be used, sizes that the device has no kernels for, or
    /// a run that does not fit into memory.
    pub fn of(run: &Run, resume: &Resume) -> anyhow::Result<Self> {
        let device = device::open(run.device())?;
        let start = folder::starting_point(run, resume)?;
        let (run, tokenizer) = with_tokenizer(run, start.as_ref())?;
        if let Some(loaded) = &start {
            check_tokenizer(&run, loaded, &tokenizer)?;
            folder::compare_settings(&run, loaded)?;
        }
        if run.schedule().warmup > run.train().steps {
            tracing::warn!("schedule.warmup is longer than train.steps: the peak rate is never reached");
        }
        if run.schedule().kind == ScheduleKind::Wsd && run.schedule().decay_steps == 0 {
            tracing::warn!(
                "schedule.decay_steps is 0: the rate stays at its peak, and final_ratio has no effect"
            );
        }
        let estimate = Estimate::checked(&run, &device)?;
        Ok(Self { run, device, tokenizer: Arc::new(tokenizer), estimate, start })
    }

    /// Opens the data, then makes the run folder and the model.
    ///
    /// # Errors
    /// Shards that cannot be used, a folder that cannot be written.
    pub fn ready(&self, console: &Console) -> anyhow::Result<Ready> {
        let run = &self.run;
        let position = self.start.as_ref().map(position).transpose()?;
        let source = open_source(run, &self.tokenizer, position.as_ref())?;
        if run.eval().every > 0 {
            // A mistake in the validation shards shows now, not at the first evaluation.
            EvalSource::open(&run.eval_text(), Arc::clone(&self.tokenizer)).map_err(with_hint)?;
            warn_of_common_files(run.data())?;
        }
        folder::prepare(run)?;
        console.attach(run.run_dir())?;
        let mut trainer = Trainer::new(run, &self.device)?;
        if let Some(loaded) = &self.start {
            trainer.restore(loaded)?;
            folder::set_aside_newer(run.run_dir(), loaded.state.step)?;
        }
        Ok(Ready { trainer, source })
    }
}

/// What a run would need; unlike [`Plan::of`] this looks at no checkpoint and trains no tokenizer.
///
/// # Errors
/// A device, tokenizer or vocabulary that cannot be used, or a run that does not fit into memory.
pub fn sketch(run: &Run) -> anyhow::Result<(Run, Estimate)> {
    let device = device::open(run.device())?;
    let run = with_vocabulary(run)?;
    let estimate = Estimate::checked(&run, &device)?;
    Ok((run, estimate))
}

/// The run with its vocabulary filled in; a tokenizer that is yet to be trained counts as large as it may become.
///
/// # Errors
/// A tokenizer or vocabulary that cannot be used.
pub fn with_vocabulary(run: &Run) -> anyhow::Result<Run> {
    let ids = match run.tokenizer()? {
        TokenizerSpec::Bpe(size) => size,
        _ => open_tokenizer(run.data())?.vocab_size(),
    };
    run.with_vocab_for(ids)
}

/// Opens the training stream; `None` begins it.
///
/// # Errors
/// Shards that are missing or cannot be used.
pub fn open_source(
    run: &Run,
    tokenizer: &Arc<Tokenizer>,
    position: Option<&TextPosition>,
) -> anyhow::Result<TextSource> {
    let source = TextSource::open(&run.train_text(), Arc::clone(tokenizer), position).map_err(with_hint)?;
    let dataset = source.position().dataset;
    let sum = |of: fn(&ShardStamp) -> u64| dataset.shards.iter().map(of).sum::<u64>();
    tracing::info!(
        "data: {} shards, {} rows, {} bytes on disk, {} lanes",
        dataset.shards.len(),
        sum(|shard| shard.rows),
        sum(|shard| shard.bytes),
        dataset.lanes
    );
    Ok(source)
}

/// Says that the loss on validation shards is one of training; it may be meant, to see whether a model can learn at all.
///
/// # Errors
/// Shards that are missing.
pub fn warn_of_common_files(data: &DataConfig) -> anyhow::Result<()> {
    let common = common_files(&data.train, &data.val).map_err(with_hint)?;
    if let [first, others @ ..] = common.as_slice() {
        let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
        tracing::warn!(
            "{}{more} in both data.train and data.val: the evaluation is of text that was trained on",
            first.display()
        );
    }
    Ok(())
}

/// Whoever has no shards yet can make some.
fn with_hint(error: atpm_data::Error) -> anyhow::Error {
    match error {
        error @ atpm_data::Error::NoFiles { .. } => {
            user(format!("{error}; `atpm-train data demo` writes small demo shards into data/demo"))
        }
        error => error.into(),
    }
}

fn with_tokenizer(run: &Run, start: Option<&Loaded>) -> anyhow::Result<(Run, Tokenizer)> {
    match (run.tokenizer()?, start) {
        (TokenizerSpec::Bpe(size), Some(loaded)) => {
            let run = run.with_vocab_for(size)?;
            Ok((run, Tokenizer::open(&loaded.path.display().to_string())?))
        }
        (TokenizerSpec::Bpe(size), None) => {
            let run = run.with_vocab_for(size)?;
            let tokenizer = train_tokenizer(&run, size)?;
            Ok((run, tokenizer))
        }
        _ => {
            let tokenizer = open_tokenizer(run.data())?;
            Ok((run.with_vocab_for(tokenizer.vocab_size())?, tokenizer))
        }
    }
}

/// Trains the run's own tokenizer into its folder.
fn train_tokenizer(run: &Run, size: usize) -> anyhow::Result<Tokenizer> {
    let data = run.data();
    folder::create(run.run_dir())?;
    let path = run.run_dir().join(TOKENIZER_FILE);
    tracing::info!("training a tokenizer of {size} ids on data.train");
    let options = BpeOptions {
        vocab_size: size,
        text_column: data.text_column.clone(),
        on_bad_shard: data.on_bad_shard,
        invalid_utf8: data.invalid_utf8,
        ..BpeOptions::default()
    };
    let report = train_bpe(&data.train, &path, &options).map_err(with_hint)?;
    tracing::info!("{}: {} ids from {} bytes", path.display(), report.vocab_size, report.text_bytes);
    Ok(Tokenizer::open(&path.display().to_string())?)
}

/// Opens a tokenizer that has the special tokens which the settings ask for.
fn open_tokenizer(data: &DataConfig) -> anyhow::Result<Tokenizer> {
    let spec = data.tokenizer.as_str();
    let hint = || {
        let is_missing = !matches!(spec, "gpt2" | "bytes") && !Path::new(spec).exists();
        let train = " (make one with `atpm-train tokenizer train SHARDS --out FILE`)";
        format!("data.tokenizer = `{spec}`{}", if is_missing { train } else { "" })
    };
    let tokenizer = Tokenizer::open(spec).with_context(hint).or_user()?;
    Specials::of(data, &tokenizer)?;
    Ok(tokenizer)
}

fn check_tokenizer(run: &Run, loaded: &Loaded, tokenizer: &Tokenizer) -> anyhow::Result<()> {
    if loaded.state.tokenizer_fingerprint == tokenizer.fingerprint() {
        return Ok(());
    }
    Err(user(format!(
        "{} was trained with another tokenizer than data.tokenizer = `{}`",
        loaded.path.display(),
        run.data().tokenizer
    )))
}

fn position(loaded: &Loaded) -> anyhow::Result<TextPosition> {
    serde_json::from_value(loaded.state.data.clone())
        .with_context(|| format!("{}: the place in the data cannot be read", loaded.path.display()))
        .or_user()
}
