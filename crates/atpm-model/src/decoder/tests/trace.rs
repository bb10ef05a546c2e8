//! What moved the memory, against the equations written out once more in plain f64.

use std::collections::BTreeMap;

use super::*;
use crate::{MemoryTrace, Quantity};

/// Without the convolution the first layer's channels are a product of the normed embedding.
fn plain() -> ModelConfig {
    ModelConfig { short_conv: 0, layers: 1, ..tiny() }
}

fn trace(config: &ModelConfig, tokens: usize, starts: &[usize]) -> Vec<MemoryTrace> {
    let segments = Segments::from_starts(tokens, vec![starts.to_vec()]).unwrap();
    model(config, DType::F32).trace(&rows(&ids(1, tokens, config.vocab, 3)), &segments).unwrap()
}

/// `weight [n, m]` applied to a vector.
fn apply(weight: &[f64], x: &[f64]) -> Vec<f64> {
    weight.chunks(x.len()).map(|row| row.iter().zip(x).map(|(a, b)| a * b).sum()).collect()
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|x| x * x).sum::<f64>().sqrt()
}

/// The first layer's quantities, `[token][head]` in the order of [`Quantity::ALL`], by the table of the mixer's page.
fn by_hand(config: &ModelConfig, tokens: &[u32], starts: &[usize]) -> Vec<Vec<[f64; 7]>> {
    let parameters = model(config, DType::F32).parameters();
    let values: BTreeMap<String, Vec<f64>> =
        parameters.iter().map(|parameter| (parameter.name.clone(), elements(&parameter.value))).collect();
    let of = |name: &str| values[&format!("blocks.0.{name}")].as_slice();
    let ModelConfig { d_model: d, heads, address, key, value, rank, .. } = *config;
    let entity = key + value;
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let mut states = vec![vec![0.0; address * entity]; heads];
    let mut all = Vec::new();
    for (at, &id) in tokens.iter().enumerate() {
        let embedded = &values["embedding.weight"][id as usize * d..][..d];
        let size = (embedded.iter().map(|x| x * x).sum::<f64>() / d as f64 + config.norm_eps).sqrt();
        let x: Vec<f64> =
            embedded.iter().zip(of("mixer_norm.weight")).map(|(x, weight)| x / size * weight).collect();
        let channels = apply(of("mixer.in_proj.weight"), &x);
        let logits = apply(of("mixer.controls.weight"), &x);
        let mut row = Vec::new();
        for (head, state) in states.iter_mut().enumerate() {
            let strength = |control: usize| {
                sigmoid(
                    logits[control * heads + head] + of("mixer.controls.bias")[(control - 1) * heads + head],
                )
            };
            let (beta_key, beta_value, rho, lambda) = (strength(1), strength(2), strength(3), strength(4));
            let softplus = (logits[head] + of("mixer.dt_bias")[head]).exp().ln_1p();
            let alpha =
                if starts.contains(&at) { 0.0 } else { (-of("mixer.a_log")[head].exp() * softplus).exp() };
            let own = &channels[head * (2 * address + entity)..][..2 * address + entity];
            let (source, e) = (&own[address..2 * address], &own[2 * address..]);
            let s: Vec<f64> = source.iter().map(|x| x / (norm(source).powi(2) + 1e-6).sqrt()).collect();
            // Transport: d = s + ρτ.
            let rms = |x: &[f64]| -> Vec<f64> {
                let size = (norm(x).powi(2) / x.len() as f64 + 1e-6).sqrt();
                x.iter().map(|x| x / size).collect()
            };
            let part = |name: &str, width: usize| &of(name)[head * rank * width..][..rank * width];
            let z_key = apply(part("mixer.transport.a_key", key), &rms(&e[..key]));
            let z_value = apply(part("mixer.transport.a_value", value), &rms(&e[key..]));
            let z: Vec<f64> = z_key.iter().zip(&z_value).map(|(a, b)| a * b / (rank as f64).sqrt()).collect();
            let c = apply(&of("mixer.transport.c")[head * address * rank..][..address * rank], &z);
            let b: Vec<f64> = c.iter().map(|x| x / (1.0 + norm(&c).powi(2)).sqrt()).collect();
            let along: f64 = b.iter().zip(&s).map(|(b, s)| b * s).sum();
            let d: Vec<f64> = s.iter().zip(&b).map(|(s, b)| s + rho * (b - along * s)).collect();

            for x in state.iter_mut() {
                *x *= alpha;
            }
            let held =
                |column: usize| -> f64 { (0..address).map(|i| state[i * entity + column] * s[i]).sum() };
            let r: Vec<f64> = (0..entity).map(|column| e[column] - held(column)).collect();
            for (i, d) in d.iter().enumerate() {
                for (column, r) in r.iter().enumerate() {
                    state[i * entity + column] += d * r * if column < key { beta_key } else { beta_value };
                }
            }
            row.push([rho, lambda, beta_key, beta_value, alpha, norm(&r), norm(e)]);
        }
        all.push(row);
    }
    all
}

#[test]
fn every_quantity_is_that_of_the_equations() {
    for starts in [&[0][..], &[0, 9], &[]] {
        let traces = trace(&plain(), 40, starts);
        let [memory] = traces.as_slice() else { panic!("one layer") };
        assert_eq!((memory.heads(), memory.tokens()), (2, 40));
        let want = by_hand(&plain(), &ids(1, 40, 19, 3)[0], starts);
        for (token, row) in want.iter().enumerate() {
            for (head, want) in row.iter().enumerate() {
                for (quantity, want) in Quantity::ALL.into_iter().zip(want) {
                    let got = memory.at(quantity, token, head);
                    let name = quantity.name();
                    assert!(
                        (got - want).abs() < 2e-5 * want.abs().max(1.0),
                        "{token} {head} {name}: {got} {want}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_first_token_meets_an_empty_memory() {
    for memory in trace(&tiny(), 12, &[0, 5]) {
        for (token, head) in (0..12).flat_map(|token| [(token, 0), (token, 1)]) {
            let at = |quantity| memory.at(quantity, token, head);
            let empty = token == 0 || token == 5;
            assert_eq!(at(Quantity::Alpha) == 0.0, empty);
            assert_eq!((at(Quantity::Residual) - at(Quantity::Entity)).abs() < 1e-12, empty, "{token}");
        }
    }
}

// Decoding token by token ends in the memory whose residuals were traced: the values do not depend on what stands behind.
#[test]
fn a_trace_of_a_prefix_is_the_beginning_of_the_whole() {
    let (whole, prefix) = (trace(&tiny(), 70, &[0]), trace(&tiny(), 30, &[0]));
    assert_eq!((whole.len(), prefix.len()), (2, 2));
    for (whole, prefix) in whole.iter().zip(&prefix) {
        for quantity in Quantity::ALL {
            for (token, head) in (0..30).flat_map(|token| [(token, 0), (token, 1)]) {
                let (a, b) = (whole.at(quantity, token, head), prefix.at(quantity, token, head));
                assert!((a - b).abs() < 1e-4, "{}: {a} {b}", quantity.name());
            }
        }
    }
}

#[test]
fn pinned_controllers_are_constant_and_other_models_have_none() {
    let pinned = ModelConfig { rho: Some(0.25), lambda: Some(1.0), tie_beta: true, ..tiny() };
    for memory in trace(&pinned, 20, &[0]) {
        for (token, head) in (0..20).flat_map(|token| [(token, 0), (token, 1)]) {
            let at = |quantity| memory.at(quantity, token, head);
            assert_eq!((at(Quantity::Rho), at(Quantity::Lambda)), (0.25, 1.0));
            assert_eq!(at(Quantity::BetaKey), at(Quantity::BetaValue));
        }
    }
    let checkpointed = ModelConfig { activation_checkpointing: true, ..tiny() };
    assert_eq!(trace(&checkpointed, 20, &[0]), trace(&tiny(), 20, &[0]));
    for kind in [ModelKind::Transformer, ModelKind::Lstm] {
        assert_eq!(trace(&ModelConfig { kind, ..tiny() }, 5, &[0]), []);
    }
    let two = model(&tiny(), DType::F32).trace(&rows(&ids(2, 5, 19, 3)), &Segments::continuous(2, 5));
    assert!(two.unwrap_err().to_string().contains("2 were given"));
}
