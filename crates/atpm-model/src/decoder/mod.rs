//! The decoder: embedding, blocks, final norm, head.
//!
//! Shapes: `B` rows, `T` tokens, `d` width, `N = B·T`. The head's weight is the embedding table
//! itself when `tied`; its gradient is then the sum of both uses, in one buffer.
//!
//! - `training`: a whole forward and backward pass, and token losses alone
//! - `inference`: logits of whole rows, and token by token in constant memory
//! - `health`: what the memory of every layer does

mod health;
mod inference;
#[cfg(test)]
mod tests;
mod training;

pub use training::StepOutput;

use atpm_core::ops::{embedding, rms_norm};
use atpm_core::{Precision, Segments, cuda};
use candle_core::{DType, Device, Tensor};

use crate::block::{Block, Residual};
use crate::init::{Init, STD};
use crate::layer::{Checkpointed, Layer, Saved};
use crate::mixer::Mixer;
use crate::mlp::Mlp;
use crate::{
    Error, ModelConfig, ModelKind, Parameter, ParameterSpec, Parameters, Result, baselines, mixer, mlp,
};

/// How a block looks back in time: the parameters of such a layer, and the layer itself. Both get
/// the layer's name prefix, such as `blocks.3.mixer`.
#[derive(Debug, Clone, Copy)]
pub struct MixerKind {
    /// The layer's parameters.
    pub specs: fn(&ModelConfig, &str) -> Result<Vec<ParameterSpec>>,
    /// The layer, taking exactly those parameters.
    pub build: fn(&ModelConfig, &str, &mut Parameters) -> Result<Box<dyn Layer>>,
    /// Whether a block has an MLP behind the mixer.
    pub mlp: bool,
}

impl MixerKind {
    /// The mixer of a config's `kind`.
    pub fn of(config: &ModelConfig) -> Self {
        match config.kind {
            ModelKind::Atpm => ATPM,
            ModelKind::Transformer => baselines::TRANSFORMER,
            ModelKind::Lstm => baselines::LSTM,
            ModelKind::Ntm => baselines::NTM,
        }
    }
}

/// The ATPM memory, this house's own mixer.
pub const ATPM: MixerKind = MixerKind {
    specs: mixer::specs,
    build: |config, prefix, parameters| Ok(Box::new(Mixer::new(config, prefix, parameters)?)),
    mlp: true,
};

/// Every parameter of the model, in the order of [`Decoder::parameters`]; nothing is allocated.
///
/// # Errors
/// A configuration that cannot be built, or a parameter in no decay group.
pub fn specs(config: &ModelConfig) -> Result<Vec<ParameterSpec>> {
    specs_with(config, &MixerKind::of(config))
}

/// As [`specs`], with another mixer.
///
/// # Errors
/// As [`specs`].
pub fn specs_with(config: &ModelConfig, kind: &MixerKind) -> Result<Vec<ParameterSpec>> {
    config.validate()?;
    let ModelConfig { vocab, d_model: d, .. } = *config;
    let embedding = Init::Normal(config.embedding_std.unwrap_or(STD));
    let mut list = vec![ParameterSpec::new("embedding.weight", [vocab, d], embedding)?];
    for index in 0..config.layers {
        let block = format!("blocks.{index}");
        list.push(ParameterSpec::new(format!("{block}.mixer_norm.weight"), [d], Init::Ones)?);
        list.extend((kind.specs)(config, &format!("{block}.mixer"))?);
        if kind.mlp {
            list.push(ParameterSpec::new(format!("{block}.mlp_norm.weight"), [d], Init::Ones)?);
            list.extend(mlp::specs(config, &format!("{block}.mlp"))?);
        }
    }
    list.push(ParameterSpec::new("norm.weight", [d], Init::Ones)?);
    if !config.tied {
        list.push(ParameterSpec::new("head.weight", [vocab, d], Init::Normal(STD))?);
    }
    Ok(list)
}

/// A decoder-only language model.
pub struct Decoder {
    config: ModelConfig,
    /// `[vocab, d]`.
    embedding: Parameter,
    blocks: Vec<Box<dyn Layer>>,
    /// `[d]`.
    norm: Parameter,
    /// `[vocab, d]`, when not tied.
    head: Option<Parameter>,
    /// Of the head's products; the blocks know theirs.
    precision: Precision,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Decoder {
    /// A freshly initialised model; the same seed gives the same bits on every device.
    ///
    /// # Errors
    /// A configuration that cannot be built, or a device that refuses.
    pub fn new(config: &ModelConfig, seed: u64, device: &Device) -> Result<Self> {
        Self::with_mixer(config, &MixerKind::of(config), seed, device)
    }

    /// As [`Decoder::new`], with another mixer in every block.
    ///
    /// # Errors
    /// As [`Decoder::new`], or a mixer that does not take exactly the parameters it lists.
    pub fn with_mixer(config: &ModelConfig, kind: &MixerKind, seed: u64, device: &Device) -> Result<Self> {
        let parameters = Parameters::initialise(&specs_with(config, kind)?, seed, DType::F32, device)?;
        Self::assemble(config, kind, parameters)
    }

    /// A model to be filled from a file and then only read: no value is drawn (all are zero), and there is no room for
    /// gradients. [`Decoder::train_step_backward`] refuses it.
    ///
    /// # Errors
    /// As [`Decoder::new`].
    pub fn for_inference(config: &ModelConfig, device: &Device) -> Result<Self> {
        Self::assemble(config, &MixerKind::of(config), Parameters::blank(&specs(config)?, device)?)
    }

    /// The model of these parameters, which must be exactly those of its specs.
    fn assemble(config: &ModelConfig, kind: &MixerKind, mut parameters: Parameters) -> Result<Self> {
        let blocks = (0..config.layers)
            .map(|index| block(config, kind, &format!("blocks.{index}"), &mut parameters))
            .collect::<Result<_>>()?;
        let decoder = Self {
            config: config.clone(),
            embedding: parameters.take("embedding", "weight")?,
            blocks,
            norm: parameters.take("norm", "weight")?,
            head: if config.tied { None } else { Some(parameters.take("head", "weight")?) },
            precision: Precision::F32,
        };
        parameters.finish()?;
        Ok(decoder)
    }

    /// The same model with the operands of its matrix products rounded to `precision`: projections, MLP and head.
    /// The controllers' logits, the memory and all sums stay f32.
    #[must_use]
    pub fn with_precision(mut self, precision: Precision) -> Self {
        self.precision = precision;
        for block in &mut self.blocks {
            block.set_precision(precision);
        }
        self
    }

    /// The configuration it was built from.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Every trainable tensor once, in a fixed order; a tied table is one parameter.
    pub fn parameters(&self) -> Vec<Parameter> {
        let mut list = vec![self.embedding.clone()];
        list.extend(self.blocks.iter().flat_map(|block| block.parameters()));
        list.push(self.norm.clone());
        list.extend(self.head.clone());
        list
    }

    /// Where its parameters are. Ids and targets are on the host for every device.
    pub fn device(&self) -> &Device {
        self.embedding.value.device()
    }

    /// The output projection: the head's own weight, or the embedding table.
    fn head(&self) -> &Parameter {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    /// Embeddings `[B,T,d]` of `ids [B,T]`, which must fit the segments.
    fn embed(&self, ids: &Tensor, segments: &Segments) -> Result<Tensor> {
        expect("ids", ids, segments)?;
        if ids.elem_count() == 0 {
            return Err(Error::Input("ids are empty; a model reads at least one token".into()));
        }
        Ok(embedding::forward(ids, &self.embedding.value, self.precision)?)
    }

    /// Runs `body`, on the CPU on one of the pool's threads: from outside the pool every op would be handed over and
    /// waited for, which for a single token takes about as long as the ops themselves, and in a training step still
    /// shows. A GPU's launches come from the caller's thread.
    fn compute<R: Send>(&self, body: impl FnOnce() -> R + Send) -> R {
        if cuda::is_gpu(self.device()) { body() } else { rayon::scope(|_| body()) }
    }

    fn normed(&self, x: &Tensor) -> Result<Tensor> {
        Ok(rms_norm::forward(x, &self.norm.value, self.config.norm_eps)?)
    }

    /// Every block's input `[B,T,d]` with what the block saved, and the last block's output.
    fn run_blocks(&self, mut x: Tensor, segments: &Segments) -> Result<(Vec<(Tensor, Saved)>, Tensor)> {
        let mut kept = Vec::with_capacity(self.blocks.len());
        for block in &self.blocks {
            let (y, saved) = block.forward(&x, segments)?;
            kept.push((x, saved));
            x = y;
        }
        Ok((kept, x))
    }
}

fn block(
    config: &ModelConfig,
    kind: &MixerKind,
    prefix: &str,
    parameters: &mut Parameters,
) -> Result<Box<dyn Layer>> {
    let eps = config.norm_eps;
    let mixer = (kind.build)(config, &format!("{prefix}.mixer"), parameters)?;
    let mixer = Residual::new(parameters.take(prefix, "mixer_norm.weight")?, eps, mixer);
    let block: Box<dyn Layer> = if kind.mlp {
        let mlp = Box::new(Mlp::new(&format!("{prefix}.mlp"), parameters)?);
        let mlp = Residual::new(parameters.take(prefix, "mlp_norm.weight")?, eps, mlp);
        Box::new(Block { mixer, mlp })
    } else {
        Box::new(mixer)
    };
    Ok(if config.activation_checkpointing { Box::new(Checkpointed(block)) } else { block })
}

/// Refuses ids or targets that are not `[B,T]` of the segments.
fn expect(what: &str, tensor: &Tensor, segments: &Segments) -> Result<()> {
    let expected = [segments.batch(), segments.tokens()];
    if tensor.dims() == expected {
        return Ok(());
    }
    Err(Error::Input(format!(
        "{what} have shape {:?}, but the segments describe [rows, tokens] = {expected:?}",
        tensor.dims()
    )))
}
