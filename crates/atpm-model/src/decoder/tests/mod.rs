//! The whole model: gradients, documents, decoding, initial state of the controllers.

mod decoding;
mod documents;
mod gradients;
mod structure;
mod trace;

use atpm_core::Segments;
use atpm_core::ops::cross_entropy::IGNORE;
use candle_core::{DType, Device, Tensor};

use super::{Decoder, MixerKind, specs};
use crate::init::{self, Init};
use crate::{ModelConfig, ModelKind, Parameter, Parameters, zero_gradients};

/// Small sizes, all different, so that a mixed-up axis cannot pass.
fn tiny() -> ModelConfig {
    ModelConfig {
        vocab: 19,
        d_model: 8,
        layers: 2,
        heads: 2,
        address: 4,
        key: 3,
        value: 5,
        rank: 2,
        mlp: 11,
        ..ModelConfig::default()
    }
}

fn turing_machine() -> ModelConfig {
    let (hidden, slots, slot_width) = (Some(7), Some(9), Some(3));
    ModelConfig { kind: ModelKind::Ntm, hidden, slots, slot_width, ..tiny() }
}

/// Every switch of the configuration, each at least once off its default.
fn presets() -> Vec<(&'static str, ModelConfig)> {
    let pinned = |rho, lambda, tie_beta| ModelConfig { rho, lambda, tie_beta, ..tiny() };
    vec![
        ("atpm", tiny()),
        ("gated delta limit", pinned(Some(0.0), Some(0.0), true)),
        ("separate betas", pinned(Some(0.0), Some(0.0), false)),
        ("full transport and recall", pinned(Some(1.0), Some(1.0), true)),
        ("directed", pinned(Some(1.0), Some(0.0), false)),
        ("untied", ModelConfig { tied: false, ..tiny() }),
        ("no convolution", ModelConfig { short_conv: 0, ..tiny() }),
        ("wide convolution, plain query", ModelConfig { short_conv: 8, query_norm: false, ..tiny() }),
        ("checkpointed", ModelConfig { activation_checkpointing: true, ..tiny() }),
        ("transformer", ModelConfig { kind: ModelKind::Transformer, ..tiny() }),
        ("lstm", ModelConfig { kind: ModelKind::Lstm, ..tiny() }),
        ("ntm", turing_machine()),
        ("smallest", ModelConfig { heads: 1, address: 2, key: 1, value: 1, rank: 1, layers: 1, ..tiny() }),
    ]
}

fn model(config: &ModelConfig, dtype: DType) -> Decoder {
    let parameters = Parameters::initialise(&specs(config).unwrap(), 5, dtype, &Device::Cpu).unwrap();
    let decoder = Decoder::assemble(config, &MixerKind::of(config), parameters).unwrap();
    stir(&decoder);
    decoder
}

/// Moves every parameter off its initial value: at the start transport's output is zero, and much
/// of what a gradient test looks for is hidden behind it.
fn stir(decoder: &Decoder) {
    for Parameter { name, value, .. } in decoder.parameters() {
        let noise = init::tensor(&Init::Normal(0.3), value.dims(), &name, 77, value.dtype(), value.device());
        atpm_core::accumulate(&value, &noise.unwrap()).unwrap();
    }
}

/// Rows of ids that depend on position and seed only.
fn ids(batch: usize, tokens: usize, vocab: usize, seed: usize) -> Vec<Vec<u32>> {
    let id =
        |row: usize, token: usize| ((token * token * 7 + token * 3 + row * 5 + seed * 11) % vocab) as u32;
    (0..batch).map(|row| (0..tokens).map(|token| id(row, token)).collect()).collect()
}

fn rows(ids: &[Vec<u32>]) -> Tensor {
    Tensor::new(ids.to_vec(), &Device::Cpu).unwrap()
}

/// Each token's successor in its row; none for the last of the row and for the last before a start.
fn targets(ids: &[Vec<u32>], segments: &Segments) -> Tensor {
    let target = |row: usize, token: usize| {
        let next = ids[row].get(token + 1);
        next.filter(|_| !segments.is_start(row, token + 1)).copied().unwrap_or(IGNORE)
    };
    let shifted: Vec<Vec<u32>> = ids
        .iter()
        .enumerate()
        .map(|(row, ids)| (0..ids.len()).map(|token| target(row, token)).collect())
        .collect();
    rows(&shifted)
}

fn sum(tensor: &Tensor) -> f64 {
    tensor.to_dtype(DType::F64).unwrap().sum_all().unwrap().to_scalar().unwrap()
}

fn elements(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// Token losses and fresh gradients of one micro-batch, in the order of the parameters.
fn gradients(decoder: &Decoder, ids: &[Vec<u32>], segments: &Segments) -> (Tensor, Vec<Tensor>) {
    let parameters = decoder.parameters();
    zero_gradients(&parameters).unwrap();
    let output =
        decoder.train_step_backward(&rows(ids), &targets(ids, segments), segments, 1.0, 0.0).unwrap();
    let gradients = parameters.iter().map(|parameter| parameter.gradient.copy().unwrap()).collect();
    (output.token_losses, gradients)
}
