//! Opening a trained model, wherever it lies: a run folder (its newest complete checkpoint), one checkpoint, or
//! an export.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use atpm_core::Precision;
use atpm_core::cuda::limits::Demand;
use atpm_data::{DataConfig, Tokenizer};
use atpm_model::{Decoder, ModelConfig, Parameter};
use candle_core::{Device, Tensor};

use super::export_config::ExportConfig;
use crate::checkpoint::tensor_file::{Encoding, TensorFile};
use crate::checkpoint::{self, Loaded};
use crate::run::device;
use crate::run::exit::{OrUser, user};

/// File names of an export.
pub(super) const EXPORT_CONFIG: &str = "config.json";
/// Parameters of an export, by their names.
pub(super) const EXPORT_MODEL: &str = "model.safetensors";

/// A model ready to read text.
#[derive(Debug)]
pub struct Opened {
    /// Its network; f32, made to be read only.
    pub model: Decoder,
    /// Its tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Whether the documents it was trained on began with the beginning-of-text token.
    pub bos: bool,
    /// Whether they ended with the end-of-text token.
    pub eos: bool,
    /// The folder that it was read from.
    pub path: PathBuf,
    /// The training step of a checkpoint; an export does not say.
    pub step: Option<u64>,
}

/// Opens the model at `path` on the CPU.
///
/// # Errors
/// As [`open_on`].
pub fn open(path: &Path) -> anyhow::Result<Opened> {
    open_on(path, &Device::Cpu)
}

/// Opens the model at `path`, its parameters on this device.
///
/// # Errors
/// A path that is none of the three, a damaged or incomplete checkpoint, tensors or a tokenizer that do not
/// fit the configuration, sizes that the device has no kernels for.
pub fn open_on(path: &Path, device: &Device) -> anyhow::Result<Opened> {
    expect_folder(path)?;
    let opened = match newest(path)? {
        Some(checkpoint) => from_checkpoint(&checkpoint, device)?,
        None if path.join(EXPORT_CONFIG).is_file() => from_export(path, device)?,
        None => from_checkpoint(path, device)?,
    };
    // D23: every id that the tokenizer can give has a row in the model's table.
    let (ids, rows) = (opened.tokenizer.vocab_size(), opened.model.config().vocab);
    if ids > rows {
        return Err(user(format!(
            "{}: the tokenizer has {ids} ids, the model's vocabulary {rows}; they do not belong together",
            path.display()
        )));
    }
    Ok(opened)
}

/// Refuses a path that is no folder: the first mistake to tell, before those of other flags.
///
/// # Errors
/// What is at the path instead.
pub fn expect_folder(path: &Path) -> anyhow::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let what = if path.exists() { "it is no folder" } else { "there is no such folder" };
    Err(user(format!("{}: {what}; give a run folder, a checkpoint (step-…) or an export", path.display())))
}

impl Opened {
    /// A digest of every parameter's name and bits, in hex.
    ///
    /// # Errors
    /// A tensor that cannot be read.
    pub fn fingerprint(&self) -> anyhow::Result<String> {
        let mut hasher = blake3::Hasher::new();
        let mut bytes = Vec::new();
        for parameter in self.model.parameters() {
            bytes.clear();
            atpm_core::read_f32(&parameter.value)?.iter().for_each(|value| bytes.extend(value.to_le_bytes()));
            hasher.update(parameter.name.as_bytes()).update(&bytes);
        }
        Ok(hasher.finalize().to_hex().to_string())
    }
}

/// Names and values of the model's parameters.
pub(super) fn named(parameters: &[Parameter]) -> Vec<(String, &Tensor)> {
    parameters.iter().map(|parameter| (parameter.name.clone(), &parameter.value)).collect()
}

/// The newest complete checkpoint, if `path` is a run folder.
fn newest(path: &Path) -> anyhow::Result<Option<PathBuf>> {
    if !path.join("checkpoints").is_dir() {
        return Ok(None);
    }
    let latest = checkpoint::find_latest(path)?;
    for (passed_over, reason) in latest.passed_over {
        tracing::warn!("{} is not complete and is passed over: {reason}", passed_over.display());
    }
    match latest.path {
        Some(checkpoint) => Ok(Some(checkpoint)),
        None => Err(user(format!("{}: this run has no complete checkpoint", path.display()))),
    }
}

fn from_checkpoint(path: &Path, device: &Device) -> anyhow::Result<Opened> {
    let loaded = checkpoint::load(path)?;
    let config: ModelConfig = serde_json::from_value(loaded.state.model.clone())
        .with_context(|| format!("{}: its model configuration cannot be read", path.display()))
        .or_user()?;
    let model = blank(&config, device)?;
    loaded.restore_parameters(&model.parameters())?;
    let tokenizer = tokenizer_of(&loaded)?;
    let (bos, eos) = switches(&loaded)?;
    Ok(Opened { model, tokenizer, bos, eos, path: path.into(), step: Some(loaded.state.step) })
}

/// A model to be filled.
fn blank(config: &ModelConfig, device: &Device) -> anyhow::Result<Decoder> {
    device::expect_sizes(device, config, Demand { precision: Precision::F32, backward: false })?;
    Ok(Decoder::for_inference(config, device)?)
}

/// `data.bos` and `data.eos` of the run. Only these are looked at: a model of a program with other keys is still a
/// model.
fn switches(loaded: &Loaded) -> anyhow::Result<(bool, bool)> {
    let settings: toml::Table = loaded
        .state
        .config
        .parse()
        .with_context(|| format!("{}: its settings cannot be read", loaded.path.display()))
        .or_user()?;
    let switch = |key| settings.get("data")?.get(key)?.as_bool();
    let defaults = DataConfig::default();
    Ok((switch("bos").unwrap_or(defaults.bos), switch("eos").unwrap_or(defaults.eos)))
}

fn tokenizer_of(loaded: &Loaded) -> anyhow::Result<Arc<Tokenizer>> {
    let name = loaded.state.tokenizer.as_str();
    let file = loaded.path.join(name);
    let spec = if matches!(name, "gpt2" | "bytes") { name.into() } else { file.to_string_lossy() };
    let tokenizer = Tokenizer::open(&spec)?;
    if tokenizer.fingerprint() != loaded.state.tokenizer_fingerprint {
        return Err(user(format!(
            "{}: the tokenizer `{name}` is not the one that the model was trained with",
            loaded.path.display()
        )));
    }
    Ok(Arc::new(tokenizer))
}

fn from_export(path: &Path, device: &Device) -> anyhow::Result<Opened> {
    let config = ExportConfig::read(&path.join(EXPORT_CONFIG))?;
    let model = blank(&config.model(), device)?;
    let file = TensorFile::open(&path.join(EXPORT_MODEL))?;
    let parameters = model.parameters();
    let tensors = named(&parameters);
    file.expect(&tensors, &[Encoding::F32, Encoding::Bf16])?;
    file.restore(&tensors)?;
    let tokenizer = Tokenizer::open(&path.to_string_lossy())?;
    if tokenizer.eos_id() != config.eos_token_id {
        return Err(user(format!(
            "{}: {EXPORT_CONFIG} says that token {} ends a text, the tokenizer says {}",
            path.display(),
            config.eos_token_id,
            tokenizer.eos_id()
        )));
    }
    if config.add_bos_token && (tokenizer.bos_id().is_none() || tokenizer.bos_id() != config.bos_token_id) {
        return Err(user(format!(
            "{}: {EXPORT_CONFIG} says that token {:?} begins a text, the tokenizer says {:?}",
            path.display(),
            config.bos_token_id,
            tokenizer.bos_id()
        )));
    }
    Ok(Opened {
        model,
        tokenizer: Arc::new(tokenizer),
        bos: config.add_bos_token,
        eos: config.add_eos_token,
        path: path.into(),
        step: None,
    })
}
