//! What counts as a parameter that learns, and widths that match.

use atpm_core::Segments;
use candle_core::{Device, Tensor};

use super::{learning_parameters, match_flops, match_parameters};
use crate::{Decoder, Flops, ModelConfig, ModelKind};

fn reference() -> ModelConfig {
    ModelConfig {
        vocab: 160,
        d_model: 64,
        layers: 2,
        heads: 2,
        address: 32,
        key: 32,
        value: 32,
        rank: 16,
        mlp: 128,
        ..ModelConfig::default()
    }
}

fn family() -> Vec<(&'static str, ModelConfig)> {
    let pinned = |rho, lambda, tie_beta| ModelConfig { rho, lambda, tie_beta, ..reference() };
    vec![
        ("atpm", reference()),
        ("gdn", pinned(Some(0.0), Some(0.0), true)),
        ("psm", pinned(Some(0.0), Some(0.0), false)),
        ("rcqp", pinned(Some(1.0), Some(1.0), false)),
        ("transformer", ModelConfig { kind: ModelKind::Transformer, ..reference() }),
        ("lstm", ModelConfig { kind: ModelKind::Lstm, ..reference() }),
        ("ntm", ModelConfig { kind: ModelKind::Ntm, layers: 1, ..reference() }),
    ]
}

#[test]
fn every_model_comes_within_two_percent() {
    let target = learning_parameters(&reference()).unwrap();
    for (name, config) in family() {
        let matched = match_parameters(&config, target).unwrap();
        let off = learning_parameters(&matched).unwrap().abs_diff(target) as f64 / target as f64;
        assert!(off <= 0.02, "{name}: {off}");
        Decoder::new(&matched, 0, &Device::Cpu).unwrap();
    }
    let error = match_parameters(&reference(), 1000).unwrap_err().to_string();
    assert!(error.contains("model.mlp") && error.contains("within 2 % of 1000"), "{error}");
}

#[test]
fn every_model_comes_within_two_percent_of_the_work() {
    let training = |config: &ModelConfig| Flops::of_documents(config, 32).training();
    let target = training(&reference());
    for (name, config) in family() {
        let matched = match_flops(&config, target, 32).unwrap();
        assert!((training(&matched) / target - 1.0).abs() <= 0.02, "{name}");
        Decoder::new(&matched, 0, &Device::Cpu).unwrap();
    }
    // What attention spends on a longer past is taken from its MLP.
    let attention = |tokens| {
        let config = ModelConfig { kind: ModelKind::Transformer, ..reference() };
        match_flops(&config, target, tokens).unwrap().mlp
    };
    assert!(attention(256) < attention(32));
    let error = match_flops(&reference(), 1e3, 32).unwrap_err().to_string();
    assert!(error.contains("model.mlp") && error.contains("within 2 % of 1000 FLOPs a token"), "{error}");
}

// What is not counted never gets a gradient; what is counted does, but for embeddings of ids that were not read.
#[test]
fn what_counts_is_what_a_gradient_reaches() {
    let ids: Vec<u32> = (0..160).chain(0..160).rev().collect();
    let targets: Vec<u32> = ids.iter().map(|id| (id * 7 + 3) % 160).collect();
    let [ids, targets] = [ids, targets].map(|ids| Tensor::from_vec(ids, (4, 80), &Device::Cpu).unwrap());
    let segments = Segments::from_starts(80, vec![vec![0]; 4]).unwrap();
    for (name, config) in family() {
        let decoder = Decoder::new(&config, 1, &Device::Cpu).unwrap();
        for parameter in decoder.parameters() {
            // At the start transport ends in a zero map, which hides what is behind it.
            if parameter.name.ends_with("transport.c") {
                parameter.value.one_set().unwrap();
            }
        }
        decoder.train_step_backward(&ids, &targets, &segments, 1.0, 0.0).unwrap();
        let reached: usize = decoder
            .parameters()
            .iter()
            .map(|p| atpm_core::read_f32(&p.gradient).unwrap().iter().filter(|g| **g != 0.0).count())
            .sum();
        let counted = learning_parameters(&config).unwrap();
        assert!(reached <= counted, "{name}: {reached} parameters learn, {counted} are counted");
        assert!(reached as f64 > 0.99 * counted as f64, "{name}: {reached} learn, {counted} are counted");
    }
}
