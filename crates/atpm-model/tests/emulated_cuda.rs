//! The whole model on emulated kernels, against the same model on the CPU.
//!
//! What runs here is the code that a GPU build runs, from embedding to parameter update. `make test-launches` builds
//! and runs it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use atpm_core::ops::cross_entropy::IGNORE;
use atpm_core::optim::adamw;
use atpm_core::testing::{Random, assert_close, assert_same_bits};
use atpm_core::{Precision, Segments, device};
use atpm_model::{Decoder, LayerTelemetry, ModelConfig, Parameter, zero_gradients};
use candle_core::{DType, Device, Tensor};

/// More than a chunk, and not a whole number of them.
const TOKENS: usize = 70;
const ROWS: usize = 2;
/// Relative RMS error allowed between two ways to add up the same f32.
const TOLERANCE: f64 = 1e-4;

/// Small sizes that the kernels take, as different as they allow.
fn tiny() -> ModelConfig {
    ModelConfig {
        vocab: 19,
        d_model: 12,
        layers: 2,
        heads: 2,
        address: 16,
        key: 8,
        value: 16,
        rank: 3,
        mlp: 22,
        ..ModelConfig::default()
    }
}

fn presets() -> Vec<(&'static str, ModelConfig)> {
    vec![
        ("atpm", tiny()),
        ("untied, no convolution", ModelConfig { tied: false, short_conv: 0, ..tiny() }),
        (
            "checkpointed, plain query",
            ModelConfig { activation_checkpointing: true, query_norm: false, ..tiny() },
        ),
        ("gated delta limit", ModelConfig { rho: Some(0.0), lambda: Some(0.0), tie_beta: true, ..tiny() }),
    ]
}

/// The model on the device of this name, every parameter moved off its initial value.
fn model(config: &ModelConfig, device: &str) -> Decoder {
    let decoder = Decoder::new(config, 5, &device::select(device).unwrap()).unwrap();
    let mut random = Random::new(77);
    for parameter in decoder.parameters() {
        let noise = random.uniform(-0.3, 0.3, parameter.value.shape(), parameter.value.dtype()).unwrap();
        atpm_core::accumulate(&parameter.value, &noise).unwrap();
    }
    decoder
}

struct Batch {
    ids: Tensor,
    targets: Tensor,
    segments: Segments,
}

fn batch() -> Batch {
    let mut random = Random::new(3);
    let ids = random.ids(19, (ROWS, TOKENS)).unwrap();
    let mut targets = random.ids(19, ROWS * TOKENS).unwrap().to_vec1::<u32>().unwrap();
    targets.iter_mut().step_by(7).for_each(|target| *target = IGNORE);
    Batch {
        ids,
        targets: Tensor::from_vec(targets, (ROWS, TOKENS), &Device::Cpu).unwrap(),
        segments: Segments::from_starts(TOKENS, vec![vec![0, 9, 66], vec![]]).unwrap(),
    }
}

/// Named tensors on the host.
type Named = Vec<(String, Tensor)>;

fn on_host(tensor: &Tensor) -> Tensor {
    tensor.to_device(&Device::Cpu).unwrap().copy().unwrap()
}

/// Losses of a few steps, and gradients, parameters and moments after the last.
fn train(config: &ModelConfig, device: &str, precision: Precision, steps: u64) -> Named {
    let decoder = model(config, device).with_precision(precision);
    let parameters = decoder.parameters();
    let zeros = |()| -> Vec<Tensor> {
        parameters.iter().map(|parameter| parameter.value.zeros_like().unwrap()).collect()
    };
    let [first, second] = [(); 2].map(zeros);
    let Batch { ids, targets, segments } = batch();
    let mut all = Named::new();
    for step in 1..=steps {
        zero_gradients(&parameters).unwrap();
        let output = decoder.train_step_backward(&ids, &targets, &segments, 1.0 / 120.0, 1e-4).unwrap();
        all.push((format!("losses of step {step}"), on_host(&output.token_losses)));
        let square: f64 =
            parameters.iter().map(|parameter| adamw::squared_norm(&parameter.gradient).unwrap()).sum();
        for ((parameter, m), v) in parameters.iter().zip(&first).zip(&second) {
            let config = adamw::Config {
                lr: 1e-2,
                beta1: 0.9,
                beta2: 0.95,
                // Not so small that a gradient of nearly zero moves its parameter by its sign.
                eps: 1e-3,
                weight_decay: 0.1,
                grad_scale: (1.0 / square.sqrt()).min(1.0),
                step,
            };
            let Parameter { value, gradient, decay, .. } = parameter;
            let rounded = parameter.rounded();
            let member = adamw::Member { parameter: value, m, v, gradient, decays: *decay, rounded };
            adamw::update_all(&config, &[member]).unwrap();
        }
    }
    assert_copies_are_current(&parameters, device != "cpu" && precision == Precision::Bf16);
    for ((parameter, m), v) in parameters.iter().zip(&first).zip(&second) {
        let parts = [("gradient", &parameter.gradient), ("value", &parameter.value), ("m", m), ("v", v)];
        all.extend(parts.map(|(part, tensor)| (format!("{part} of {}", parameter.name), on_host(tensor))));
    }
    all
}

/// Products read bf16 copies where `any` are to be kept, and those are of the parameters' last values.
fn assert_copies_are_current(parameters: &[Parameter], any: bool) {
    let mut names = Vec::new();
    for parameter in parameters {
        let Some(copy) = parameter.rounded() else { continue };
        let [copy, want] = [copy, &atpm_core::rounded(&parameter.value).unwrap()]
            .map(|tensor| on_host(tensor).to_dtype(DType::F32).unwrap());
        assert_same_bits(&parameter.name, &copy, &want);
        names.push(parameter.name.as_str());
    }
    assert_eq!(any, names.contains(&"blocks.0.mlp.up.weight"), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("norm") || name.contains("controls")), "{names:?}");
}

#[track_caller]
fn assert_all_close(case: &str, got: &Named, want: &Named, tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{case}");
    for ((name, got), (_, want)) in got.iter().zip(want) {
        assert_close(&format!("{case}: {name}"), got, want, tolerance);
    }
}

#[test]
fn steps_are_those_of_the_cpu() {
    for (preset, config) in presets() {
        let want = train(&config, "cpu", Precision::F32, 3);
        let got = train(&config, "cuda", Precision::F32, 3);
        assert_all_close(preset, &got, &want, TOLERANCE);
    }
}

#[test]
fn two_trainings_have_the_same_bits() {
    let [first, second] = [(); 2].map(|()| train(&tiny(), "cuda:0", Precision::F32, 3));
    for ((name, got), (_, want)) in first.iter().zip(&second) {
        assert_same_bits(name, got, want);
    }
}

// Activations are stored in bf16; losses, gradients, parameters and moments are f32. The bits repeat.
#[test]
fn a_bf16_step_is_near_that_of_the_cpu_in_f32() {
    for (preset, config) in presets() {
        let want = train(&config, "cpu", Precision::F32, 1);
        let [got, again] = [(); 2].map(|()| train(&config, "cuda", Precision::Bf16, 1));
        for ((name, got), (_, again)) in got.iter().zip(&again) {
            assert_same_bits(&format!("{preset}: {name}"), got, again);
        }
        assert_all_close(preset, &got[..1].to_vec(), &want[..1].to_vec(), 1e-2);
        // Rounding's share of a gradient is some percent of it, except where a few numbers are what is left of sums
        // that cancel.
        let gradients = |all: &Named| -> Named {
            let is_large = |tensor: &Tensor| tensor.elem_count() > 8;
            let wanted =
                all.iter().filter(|(name, tensor)| name.starts_with("gradient of") && is_large(tensor));
            wanted.cloned().collect()
        };
        assert_all_close(preset, &gradients(&got), &gradients(&want), 8e-2);
    }
}

fn telemetry(device: &str) -> (Tensor, Vec<LayerTelemetry>) {
    let decoder = model(&tiny(), device);
    let Batch { ids, targets, segments } = batch();
    let losses = decoder.evaluate(&ids, &targets, &segments).unwrap();
    (on_host(&losses), decoder.telemetry(&ids, &segments).unwrap())
}

#[test]
fn evaluation_and_telemetry_are_those_of_the_cpu() {
    let [(want, want_layers), (got, got_layers)] = ["cpu", "cuda"].map(telemetry);
    assert_close("losses", &got, &want, TOLERANCE);
    assert_eq!(got_layers.len(), 2);
    for (got, want) in got_layers.iter().zip(&want_layers) {
        let numbers = |of: &LayerTelemetry| {
            let memory = of.memory;
            [
                memory.half_life,
                memory.rho,
                memory.beta_key,
                memory.address_norm,
                memory.address_rank,
                memory.state_norm_max,
            ]
        };
        for (got, want) in numbers(got).into_iter().zip(numbers(want)) {
            assert!((got / want - 1.0).abs() < TOLERANCE, "{got}, expected {want}");
        }
    }
}

/// Logits after a prompt of two rows, after three more tokens, and after one more from a state that was saved.
fn decode(device: &str, precision: Precision) -> Named {
    let decoder = model(&tiny(), device).with_precision(precision);
    let mut state = decoder.decode_state(ROWS).unwrap();
    let prompt = Random::new(8).ids(19, (ROWS, 66)).unwrap();
    let mut all = Named::new();
    let logits = decoder.prefill(&prompt, &Segments::continuous(ROWS, 66), &mut state).unwrap();
    all.push(("prompt".into(), on_host(&logits)));
    for token in [3, 18, 0] {
        let logits = decoder.step(&[token, 7], &mut state).unwrap();
        all.push((format!("token {token}"), on_host(&logits)));
    }
    let saved = state.tensors().iter().map(|(name, tensor)| (name.clone(), on_host(tensor))).collect();
    let mut restored = decoder.decode_state_from(ROWS, saved).unwrap();
    let logits = [&mut state, &mut restored].map(|state| on_host(&decoder.step(&[5, 6], state).unwrap()));
    assert_same_bits("a restored state", &logits[1], &logits[0]);
    all.push(("last".into(), logits[0].clone()));
    all
}

#[test]
fn decoding_is_that_of_the_cpu() {
    let [want, got] = ["cpu", "cuda"].map(|device| decode(device, Precision::F32));
    assert_all_close("decoding", &got, &want, TOLERANCE);
    assert_all_close("decoding in bf16", &decode("cuda", Precision::Bf16), &want, 4e-2);
}
