//! Every gradient of the whole machine and of its pieces, by finite differences in f64.

use atpm_core::Segments;
use atpm_core::testing::{Random, assert_matches_finite_differences};
use candle_core::{DType, Device, Tensor};

use crate::layer::Layer;
use crate::ntm::addressing::{
    Controls, FOCUS_PARTS, Focus, Scratch, address, address_backward, inverse_norms,
};
use crate::ntm::{ControllerKind, Ntm, NtmConfig};

fn config(controller: ControllerKind, reads: usize, writes: usize, suppression: f64) -> NtmConfig {
    NtmConfig {
        controller,
        hidden: 7,
        slots: 19,
        width: 5,
        read_heads: reads,
        write_heads: writes,
        suppression,
        ..NtmConfig::new(4, 3)
    }
}

/// `Σ y ⊙ seed` of a machine with one tensor replaced.
fn value(machine: &Ntm, x: &Tensor, segments: &Segments, seed: &Tensor) -> f64 {
    let (y, _) = machine.forward(x, segments).unwrap();
    (y * seed).unwrap().sum_all().unwrap().to_scalar::<f64>().unwrap()
}

fn copy_to(tensor: &Tensor, values: &Tensor) {
    tensor.zero_set().unwrap();
    atpm_core::accumulate(tensor, values).unwrap();
}

/// Inputs large enough to move the heads, and parameters whose effects do not vanish.
fn check(config: &NtmConfig, starts: Vec<Vec<usize>>, anneal: f64) {
    let (rows, steps) = (starts.len(), 6);
    let mut machine = Ntm::with_dtype(config, 5, DType::F64).unwrap();
    machine.set_beta_scale(anneal);
    let mut random = Random::new(11);
    for parameter in machine.parameters() {
        let more = (random.normal(parameter.value.shape().clone(), DType::F64).unwrap() * 0.4).unwrap();
        atpm_core::accumulate(&parameter.value, &more).unwrap();
    }
    let segments = Segments::from_starts(steps, starts).unwrap();
    let x = random.normal((rows, steps, config.inputs), DType::F64).unwrap();
    let seed = random.normal((rows, steps, config.outputs), DType::F64).unwrap();

    let (_, saved) = machine.forward(&x, &segments).unwrap();
    let dx = machine.backward(&x, saved, &seed, &segments).unwrap();
    assert_matches_finite_differences("x", &x, &dx, |x| Ok(value(&machine, x, &segments, &seed)));
    for parameter in machine.parameters() {
        let point = parameter.value.copy().unwrap();
        assert_matches_finite_differences(&parameter.name, &point, &parameter.gradient, |at| {
            copy_to(&parameter.value, at);
            let value = value(&machine, &x, &segments, &seed);
            copy_to(&parameter.value, &point);
            Ok(value)
        });
    }
}

#[test]
fn an_lstm_with_one_head_each() {
    check(&config(ControllerKind::Lstm, 1, 1, 0.0), vec![vec![0]; 2], 1.0);
}

#[test]
fn a_feed_forward_controller_with_one_head_each() {
    check(&config(ControllerKind::FeedForward, 1, 1, 0.0), vec![vec![0]; 2], 1.0);
}

#[test]
fn several_heads_suppression_and_annealing() {
    check(&config(ControllerKind::Lstm, 2, 3, 0.7), vec![vec![0]; 2], 0.6);
}

#[test]
fn sequences_that_start_inside_a_row() {
    // More rows than a group, some of which start at the beginning, later, or twice.
    let starts = vec![vec![0], vec![0, 3], vec![2, 5], vec![], vec![1]];
    check(&config(ControllerKind::Lstm, 1, 2, 0.5), starts, 1.0);
}

/// One head alone: memory, weights before, key and controls, and the weight of each slot in the sum.
#[test]
fn an_address_alone() {
    let (slots, width) = (19, 5);
    let mut random = Random::new(3);
    let mut numbers = |len: usize| -> Vec<f64> { (0..len).map(|_| 2.0 * random.unit() - 1.0).collect() };
    let (memory, raw, seed) = (numbers(slots * width), numbers(width + 6), numbers(slots));
    let before: Vec<f64> = numbers(slots).iter().map(|x| (x + 1.1) / 25.0).collect();

    let forward = |memory: &[f64], raw: &[f64], before: &[f64]| {
        let (mut norms, mut key) = (vec![0.0; slots], vec![0.0; width]);
        let (mut kept, mut mixed) = (vec![0.0; FOCUS_PARTS * slots], vec![0.0; slots]);
        let mut weights = before.to_vec();
        inverse_norms(memory, &mut norms);
        let controls = Controls::activate(raw, 0.8, &mut key);
        address(&controls, &key, memory, &norms, &mut weights, &mut kept, &mut mixed);
        (weights, controls, key, norms, kept)
    };
    let value = |memory: &[f64], raw: &[f64], before: &[f64]| -> f64 {
        forward(memory, raw, before).0.iter().zip(&seed).map(|(w, s)| w * s).sum()
    };
    let (weights, controls, key, norms, kept) = forward(&memory, &raw, &before);
    assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12, "an address sums to one");

    let (mut d_weights, mut d_products, mut d_norms) = (seed.clone(), vec![0.0; slots], vec![0.0; slots]);
    let gradients = address_backward(
        &controls,
        &raw,
        0.8,
        &Focus::of(&kept, slots),
        &norms,
        &before,
        &mut d_weights,
        &mut d_products,
        &mut d_norms,
        &mut Scratch::new(slots),
    );
    let mut d_raw = vec![0.0; width + 6];
    for (at, &k) in key.iter().enumerate() {
        let line = &memory[at * slots..(at + 1) * slots];
        let through: f64 = line.iter().zip(&d_products).map(|(m, d)| m * d).sum();
        d_raw[at] = (through + gradients.key_scale * k) * (1.0 - k * k);
    }
    d_raw[width..].copy_from_slice(&gradients.raw);
    let d_memory: Vec<f64> = (0..slots * width)
        .map(|at| d_products[at % slots] * key[at / slots] + d_norms[at % slots] * memory[at])
        .collect();

    let tensor = |values: &[f64]| Tensor::new(values, &Device::Cpu).unwrap();
    let numbers = |tensor: &Tensor| tensor.to_vec1::<f64>().unwrap();
    assert_matches_finite_differences("raw", &tensor(&raw), &tensor(&d_raw), |at| {
        Ok(value(&memory, &numbers(at), &before))
    });
    assert_matches_finite_differences("before", &tensor(&before), &tensor(&d_weights), |at| {
        Ok(value(&memory, &raw, &numbers(at)))
    });
    assert_matches_finite_differences("memory", &tensor(&memory), &tensor(&d_memory), |at| {
        Ok(value(&numbers(at), &raw, &before))
    });
}
