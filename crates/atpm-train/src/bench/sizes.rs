//! What is measured: the model's sizes, and how many tokens at once.

use anyhow::Context as _;
use atpm_core::cuda::limits::Demand;
use atpm_core::{Precision, cuda};
use atpm_model::{ModelConfig, ModelKind};
use candle_core::{Device, Tensor};
use clap::builder::{PossibleValuesParser, TypedValueParser as _};

use crate::run::cli::ConfigArgs;
use crate::run::config;
use crate::run::device;
use crate::run::exit::user;

/// Sizes as flags; a run's config gives all of them but the vocabulary at once.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SizeArgs {
    /// A run's settings; its `[model]` and `[train]` sections take the place of the sizes below.
    #[command(flatten)]
    config: ConfigArgs,
    /// How blocks look back in time, as `model.kind`; the widths of others than ATPM are `--d`, `--heads` and `--mlp`.
    #[arg(long, default_value = "atpm", value_parser = PossibleValuesParser::new(ModelKind::ALL.map(ModelKind::name)).map(|name| kind(&name)))]
    kind: ModelKind,
    /// Model width.
    #[arg(long, default_value_t = 512)]
    d: usize,
    /// Blocks.
    #[arg(long, default_value_t = 8)]
    layers: usize,
    /// Memory heads of a block.
    #[arg(long, default_value_t = 8)]
    heads: usize,
    /// Address size of a head.
    #[arg(long = "S", value_name = "S", default_value_t = 64)]
    address: usize,
    /// Key block of a head.
    #[arg(long = "K", value_name = "K", default_value_t = 32)]
    key: usize,
    /// Value block of a head.
    #[arg(long = "V", value_name = "V", default_value_t = 32)]
    value: usize,
    /// Transport rank.
    #[arg(long = "R", value_name = "R", default_value_t = 16)]
    rank: usize,
    /// Inner size of the MLP.
    #[arg(long, default_value_t = 1408)]
    mlp: usize,
    /// Vocabulary; also for a config that takes its tokenizer's.
    #[arg(long, default_value_t = 8192)]
    vocab: usize,
    /// What the operands of matrix products are rounded to. Default: the config's `train.dtype`, or f32.
    #[arg(long, value_parser = ["f32", "bf16"])]
    dtype: Option<String>,
}

/// The name of a precision, as `--dtype` takes it.
pub(super) fn name(precision: Precision) -> &'static str {
    match precision {
        Precision::F32 => "f32",
        Precision::Bf16 => "bf16",
    }
}

/// How many tokens at once.
#[derive(Debug, Clone, Copy)]
pub struct Block {
    /// Rows.
    pub rows: usize,
    /// Tokens of a row.
    pub tokens: usize,
}

impl Block {
    /// Tokens of all rows.
    pub fn count(self) -> usize {
        self.rows * self.tokens
    }
}

/// Sizes with nothing left open.
pub(super) struct Sizes {
    pub(super) model: ModelConfig,
    /// The config's, where one is given.
    pub(super) block: Option<Block>,
    pub(super) precision: Precision,
}

impl SizeArgs {
    /// What to measure.
    ///
    /// # Errors
    /// A config that cannot be read, sizes that cannot be built or for which the device has no kernels, or a `--dtype`
    /// that this processor does not multiply in.
    pub(super) fn resolve(&self, device: &Device) -> anyhow::Result<Sizes> {
        let mut sizes = if self.config.config.is_some() {
            let run = config::load(&self.config)?;
            let train = run.train();
            let block = Some(Block { rows: train.rows, tokens: train.tokens });
            // As in training: f32 where the processor has no other products.
            let precision = Some(train.precision()).filter(|&precision| supported(precision, device));
            Sizes { model: run.model().clone(), block, precision: precision.unwrap_or_default() }
        } else if self.config.set.is_empty() {
            Sizes { model: self.model(), block: None, precision: Precision::F32 }
        } else {
            return Err(user("`--set` overrides a config; give one with `--config FILE`"));
        };
        if let Some(dtype) = &self.dtype {
            sizes.precision = config::precision(dtype);
        }
        if !supported(sizes.precision, device) {
            return Err(user("this processor has no bf16 products (AVX-512 BF16); leave `--dtype bf16` out"));
        }
        if sizes.model.vocab == 0 {
            sizes.model.vocab = self.vocab;
        }
        sizes.model.validate()?;
        device::expect_sizes(device, &sizes.model, Demand { precision: sizes.precision, backward: true })?;
        Ok(sizes)
    }

    fn model(&self) -> ModelConfig {
        ModelConfig {
            kind: self.kind,
            vocab: self.vocab,
            d_model: self.d,
            layers: self.layers,
            heads: self.heads,
            address: self.address,
            key: self.key,
            value: self.value,
            rank: self.rank,
            mlp: self.mlp,
            ..ModelConfig::default()
        }
    }
}

/// The kind of this name, one of all.
fn kind(name: &str) -> ModelKind {
    ModelKind::ALL.into_iter().find(|kind| kind.name() == name).unwrap_or_default()
}

/// Whether the device multiplies in this precision; a GPU multiplies in all.
fn supported(precision: Precision, device: &Device) -> bool {
    precision.supported() || cuda::is_gpu(device)
}

/// A fixed stream of random numbers for inputs whose values do not matter (splitmix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// f32 values, uniform within ±`scale`.
    pub(super) fn tensor(&mut self, shape: &[usize], scale: f32) -> anyhow::Result<Tensor> {
        let unit = |bits: u64| (bits >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| scale * unit(self.next())).collect();
        Tensor::from_vec(values, shape, &Device::Cpu).context("cannot make a tensor")
    }

    /// Ids below `vocab`.
    pub(super) fn ids(&mut self, shape: &[usize], vocab: usize) -> anyhow::Result<Tensor> {
        let ids: Vec<u32> =
            (0..shape.iter().product()).map(|_| (self.next() % vocab as u64) as u32).collect();
        Tensor::from_vec(ids, shape, &Device::Cpu).context("cannot make ids")
    }
}
