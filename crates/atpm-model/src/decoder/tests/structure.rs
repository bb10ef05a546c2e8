//! What the model consists of, how it starts, and what it costs.

use super::*;
use crate::{ATPM, Autograd, Error, Layer as _, MemoryEstimate, ParameterSpec, Result, specs};

fn one_layer() -> ModelConfig {
    ModelConfig { layers: 1, tied: false, ..tiny() }
}

// T10: the decay group of every parameter, frozen.
#[test]
fn decay_groups_are_these() {
    let golden = [
        ("embedding.weight", false),
        ("blocks.0.mixer_norm.weight", false),
        ("blocks.0.mixer.in_proj.weight", true),
        ("blocks.0.mixer.short_conv.weight", false),
        ("blocks.0.mixer.controls.weight", true),
        ("blocks.0.mixer.controls.bias", false),
        ("blocks.0.mixer.a_log", false),
        ("blocks.0.mixer.dt_bias", false),
        ("blocks.0.mixer.transport.a_key", true),
        ("blocks.0.mixer.transport.a_value", true),
        ("blocks.0.mixer.transport.c", true),
        ("blocks.0.mixer.gate_proj.weight", true),
        ("blocks.0.mixer.out_norm.weight", false),
        ("blocks.0.mixer.out_proj.weight", true),
        ("blocks.0.mlp_norm.weight", false),
        ("blocks.0.mlp.up.weight", true),
        ("blocks.0.mlp.down.weight", true),
        ("norm.weight", false),
        ("head.weight", true),
    ];
    let specs = specs(&one_layer()).unwrap();
    let groups: Vec<_> = specs.iter().map(|spec| (spec.name.as_str(), spec.decay)).collect();
    assert_eq!(groups, golden);
}

#[test]
fn parameters_are_those_of_the_table_in_its_order() {
    for (preset, config) in presets() {
        let decoder = Decoder::new(&config, 1, &Device::Cpu).unwrap();
        let listed = specs(&config).unwrap();
        let parameters = decoder.parameters();
        assert_eq!(listed.len(), parameters.len(), "{preset}");
        for (spec, parameter) in listed.iter().zip(&parameters) {
            assert_eq!((&spec.name, spec.decay), (&parameter.name, parameter.decay), "{preset}");
            assert_eq!(spec.shape, parameter.value.dims(), "{preset}: {}", spec.name);
            assert_eq!(spec.shape, parameter.gradient.dims(), "{preset}: {}", spec.name);
        }
    }
}

#[test]
fn the_default_model_has_206_million_parameters() {
    let config = ModelConfig { vocab: 50304, ..ModelConfig::default() };
    let count: usize = specs(&config).unwrap().iter().map(ParameterSpec::elements).sum();
    assert!((205_500_000..207_500_000).contains(&count), "{count}");
}

// B6: the same seed gives the same bits; a switch moves only the parameters it is about.
#[test]
fn initial_values_depend_on_seed_and_name() {
    let values = |config: &ModelConfig, seed| -> Vec<(String, Vec<f64>)> {
        let decoder = Decoder::new(config, seed, &Device::Cpu).unwrap();
        decoder.parameters().iter().map(|p| (p.name.clone(), elements(&p.value))).collect()
    };
    assert_eq!(values(&tiny(), 3), values(&tiny(), 3));
    assert_ne!(values(&tiny(), 3), values(&tiny(), 4));
    let mut with_convolution = values(&tiny(), 3);
    with_convolution.retain(|(name, _)| !name.contains("short_conv"));
    assert_eq!(with_convolution, values(&ModelConfig { short_conv: 0, ..tiny() }, 3));
}

#[test]
fn controllers_start_where_the_configuration_says() {
    let (ids, segments) = (rows(&ids(2, 40, 19, 1)), Segments::continuous(2, 40));
    for (rho_logit, lambda_logit, rho, lambda) in
        [(0.0, 0.0, 0.5, 0.5), (1.0, -2.0, 0.731_058_578_630_005, 0.119_202_922_022_118)]
    {
        let config = ModelConfig { rho_logit, lambda_logit, ..tiny() };
        let decoder = Decoder::new(&config, 2, &Device::Cpu).unwrap();
        let telemetry = decoder.telemetry(&ids, &segments).unwrap();
        assert_eq!(telemetry.iter().map(|layer| layer.layer).collect::<Vec<_>>(), [0, 1]);
        for layer in telemetry {
            let memory = layer.memory;
            assert!((memory.rho - rho).abs() < 1e-6, "{memory:?}");
            assert!((memory.lambda - lambda).abs() < 1e-6, "{memory:?}");
            assert!((memory.beta_key - 0.5).abs() < 0.1, "{memory:?}");
            assert!(memory.half_life_min <= memory.half_life && memory.half_life <= memory.half_life_max);
            // Transport's output starts at zero, so the write address is the source itself: a unit
            // vector but for the ε under its root.
            assert!((memory.address_norm - 1.0).abs() < 1e-2, "{memory:?}");
            assert!(memory.state_norm > 0.0 && memory.state_norm <= memory.state_norm_max);
            let json = serde_json::to_value(layer).unwrap();
            assert!(json["rho"].is_f64() && json["layer"].is_u64(), "{json}");
        }
    }
}

#[test]
fn memories_start_with_the_half_life_of_the_configuration() {
    let (ids, segments) = (rows(&ids(2, 40, 19, 1)), Segments::continuous(2, 40));
    for tokens in [3.0, 100.0] {
        let config = ModelConfig { half_life: Some(tokens), ..tiny() };
        let decoder = Decoder::new(&config, 2, &Device::Cpu).unwrap();
        for layer in decoder.telemetry(&ids, &segments).unwrap() {
            // What the step's input adds at the start is small, but not nothing.
            for half_life in [layer.memory.half_life_min, layer.memory.half_life_max] {
                assert!((half_life / tokens - 1.0).abs() < 0.2, "{tokens}: {:?}", layer.memory);
            }
        }
    }
}

#[test]
fn embeddings_start_with_the_deviation_of_the_configuration() {
    for (embedding_std, of_embedding) in [(None, 0.02), (Some(0.5), 0.5)] {
        let config = ModelConfig { vocab: 512, tied: false, embedding_std, ..tiny() };
        let decoder = Decoder::new(&config, 2, &Device::Cpu).unwrap();
        for (name, std) in [("embedding.weight", of_embedding), ("head.weight", 0.02)] {
            let parameters = decoder.parameters();
            let values = elements(&parameters.iter().find(|parameter| parameter.name == name).unwrap().value);
            let deviation = (values.iter().map(|x| x * x).sum::<f64>() / values.len() as f64).sqrt();
            assert!((deviation / std - 1.0).abs() < 0.05, "{name}: {deviation} for {std}");
        }
    }
}

#[test]
fn the_memory_estimate_meets_what_is_really_kept() {
    let (rows_of_batch, tokens) = (2, 100);
    for (preset, config) in presets() {
        let decoder = model(&config, DType::F32);
        let estimate = MemoryEstimate::of(&config, rows_of_batch, tokens).unwrap();
        let bytes = |of: fn(&Parameter) -> &Tensor| -> usize {
            decoder.parameters().iter().map(|parameter| of(parameter).elem_count() * 4).sum()
        };
        assert_eq!(estimate.parameters, bytes(|parameter| &parameter.value), "{preset}");
        assert_eq!(estimate.gradients, bytes(|parameter| &parameter.gradient), "{preset}");
        assert_eq!(estimate.moments, 2 * estimate.parameters, "{preset}");
        let ids = rows(&ids(rows_of_batch, tokens, config.vocab, 0));
        let segments = Segments::continuous(rows_of_batch, tokens);
        let (kept, _) = decoder.run_blocks(decoder.embed(&ids, &segments).unwrap(), &segments).unwrap();
        let real: usize = kept.iter().map(|(x, saved)| 4 * x.elem_count() + saved.bytes()).sum();
        let ratio = estimate.activations as f64 / real as f64;
        assert!((0.85..1.15).contains(&ratio), "{preset}: estimated {ratio} of {real}");
        assert!(estimate.render().contains("total"));
    }
}

// An LSTM and a Turing machine have no MLP: its size, which they keep from the reference, costs them nothing.
#[test]
fn the_memory_estimate_counts_no_mlp_that_is_not_there() {
    for kind in ModelKind::ALL {
        let config = |mlp| ModelConfig { kind, mlp, ..tiny() };
        let [small, large] =
            [11, 60_000].map(|mlp| MemoryEstimate::of(&config(mlp), 2, 100).unwrap().total());
        let has_mlp = specs(&config(11)).unwrap().iter().any(|spec| spec.name.contains(".mlp."));
        assert_eq!(large > small, has_mlp, "{}: {small} and {large} bytes", kind.name());
    }
}

/// A mixer in plain candle operations: the mean of a token and a learned map of the one before it,
/// unless that one belongs to another document.
const SHIFT: MixerKind = MixerKind {
    specs: |config, prefix| {
        let d = config.d_model;
        Ok(vec![ParameterSpec::new(format!("{prefix}.shift.weight"), [d, d], Init::Normal(0.3))?])
    },
    build: |_, prefix, parameters| {
        let weight = parameters.take(prefix, "shift.weight")?;
        Ok(Box::new(Autograd::new(prefix, vec![weight], |x, parameters, segments| {
            let (batch, tokens, _) = x.dims3()?;
            let goes_on: Vec<f32> = (0..batch)
                .flat_map(|row| {
                    segments.row_positions(row).map(|place| f32::from(u8::from(place.in_row > 0)))
                })
                .collect();
            let mask = Tensor::from_vec(goes_on, (batch, tokens, 1), x.device())?.to_dtype(x.dtype())?;
            let before = x.pad_with_zeros(1, 1, 0)?.narrow(1, 0, tokens)?.broadcast_mul(&mask)?;
            Ok((x + before.broadcast_matmul(&parameters[0].t()?)?)?)
        })))
    },
    mlp: true,
};

#[test]
fn a_layer_in_plain_operations_trains() {
    let decoder = Decoder::with_mixer(&tiny(), &SHIFT, 1, &Device::Cpu).unwrap();
    let ids = ids(2, 24, 19, 4);
    let segments = Segments::from_starts(24, vec![vec![0, 10], vec![0]]).unwrap();
    let losses: Vec<f64> = (0..40)
        .map(|_| {
            let (losses, gradients) = gradients(&decoder, &ids, &segments);
            for (parameter, gradient) in decoder.parameters().iter().zip(gradients) {
                let step = (gradient * -0.02).unwrap();
                atpm_core::accumulate(&parameter.value, &step).unwrap();
            }
            sum(&losses)
        })
        .collect();
    assert!(losses[39] < 0.8 * losses[0], "{losses:?}");
    let mut state = decoder.decode_state(1).unwrap();
    assert!(matches!(decoder.step(&[1], &mut state), Err(Error::NoDecodePath { .. })));
}

type Function = fn(&Tensor, &[Tensor], &Segments) -> Result<Tensor>;

// B1: a graph that is cut before a trainable tensor is an error that names it.
#[test]
fn a_cut_graph_names_the_tensor() {
    let value = Tensor::ones((3, 3), DType::F32, &Device::Cpu).unwrap();
    let gradient = value.zeros_like().unwrap();
    let weight = Parameter::new("shift.weight", value, gradient, true);
    let x = Tensor::ones((1, 2, 3), DType::F32, &Device::Cpu).unwrap();
    let segments = Segments::continuous(1, 2);
    let cases: [(Function, &str); 2] = [
        (|x, w, _| Ok(x.broadcast_matmul(&w[0].detach())?), "shift.weight"),
        (|x, w, _| Ok(x.detach().broadcast_matmul(&w[0])?), "input"),
    ];
    for (function, expected) in cases {
        let layer = Autograd::new("cut", vec![weight.clone()], function);
        let (y, saved) = layer.forward(&x, &segments).unwrap();
        match layer.backward(&x, saved, &y, &segments) {
            Err(Error::MissingGradient { tensor, .. }) => assert_eq!(tensor, expected),
            other => panic!("expected a missing gradient, got {other:?}"),
        }
    }
}

#[test]
fn what_another_layer_saved_is_refused() {
    let config = tiny();
    let mut parameters =
        Parameters::initialise(&specs(&config).unwrap(), 0, DType::F32, &Device::Cpu).unwrap();
    let mixer = (ATPM.build)(&config, "blocks.0.mixer", &mut parameters).unwrap();
    let mlp = crate::mlp::Mlp::new("blocks.0.mlp", &mut parameters).unwrap();
    let x = Tensor::ones((1, 2, config.d_model), DType::F32, &Device::Cpu).unwrap();
    let segments = Segments::continuous(1, 2);
    let (y, saved) = mixer.forward(&x, &segments).unwrap();
    let refused = mlp.backward(&x, saved, &y, &segments);
    assert!(matches!(refused, Err(Error::ForeignSaved { layer: "mlp" })), "{refused:?}");
}

// A model that is only read draws nothing and holds no gradients; filled with values, it is the model that they are from.
#[test]
fn a_model_for_inference_is_blank_until_it_is_filled() {
    for (preset, config) in presets() {
        let trained = model(&config, DType::F32);
        let read = Decoder::for_inference(&config, &Device::Cpu).unwrap();
        for (from, to) in trained.parameters().iter().zip(read.parameters()) {
            assert_eq!((&from.name, from.decay, from.value.dims()), (&to.name, to.decay, to.value.dims()));
            assert_eq!(to.gradient.elem_count(), 0, "{preset}: {}", to.name);
            let values = atpm_core::read_f32(&to.value).unwrap();
            assert!(values.iter().all(|&value| value == 0.0), "{preset}: {}", to.name);
            atpm_core::overwrite_f32(&to.value, &atpm_core::read_f32(&from.value).unwrap()).unwrap();
        }
        let (ids, segments) = (rows(&[vec![3, 1, 4, 1, 5]]), Segments::continuous(1, 5));
        let logits = |decoder: &Decoder| decoder.logits(&ids, &segments, None).unwrap();
        atpm_core::testing::assert_same_bits(preset, &logits(&read), &logits(&trained));
        let step = read.train_step_backward(&ids, &ids, &segments, 1.0, 0.0);
        assert!(step.unwrap_err().to_string().contains("made for inference"), "{preset}");
    }
}
