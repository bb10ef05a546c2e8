//! The written backward of the whole model against finite differences, and what must be zero in it.

use atpm_core::Precision;
use atpm_core::testing::relative_rms_error;

use super::*;

const TOKENS: usize = 9;
/// Steps of the differences; the better one counts. Rounding spoils the short one where the slope is
/// small, the curvature of unit addresses (their ε is 1e-6) the long one.
const STEPS: [f64; 2] = [1e-4, 1e-5];

fn packed() -> (Vec<Vec<u32>>, Segments) {
    (ids(2, TOKENS, 19, 1), Segments::from_starts(TOKENS, vec![vec![0, 4], vec![3]]).unwrap())
}

fn loss(decoder: &Decoder, ids: &[Vec<u32>], segments: &Segments) -> f64 {
    sum(&decoder.evaluate(&rows(ids), &targets(ids, segments), segments).unwrap())
}

/// The loss with one element of a tensor moved by `step`.
fn moved(tensor: &Tensor, index: usize, step: f64, loss: impl Fn() -> f64) -> f64 {
    let flat = tensor.flatten_all().unwrap();
    let before = flat.narrow(0, index, 1).unwrap().copy().unwrap();
    flat.slice_set(&(&before + step).unwrap(), 0, index).unwrap();
    let moved = loss();
    flat.slice_set(&before, 0, index).unwrap();
    moved
}

/// The loss's slope along one element, to fourth order.
fn slope(tensor: &Tensor, index: usize, step: f64, loss: impl Fn() -> f64) -> f64 {
    let at = |steps: f64| moved(tensor, index, steps * step, &loss);
    (8.0 * (at(1.0) - at(-1.0)) - (at(2.0) - at(-2.0))) / (12.0 * step)
}

/// First, last and largest element of a gradient.
fn probes(gradient: &[f64]) -> [usize; 3] {
    let largest = (0..gradient.len()).max_by(|&a, &b| gradient[a].abs().total_cmp(&gradient[b].abs()));
    [0, gradient.len() - 1, largest.unwrap()]
}

/// Parameters that a pinned controller leaves without any gradient.
fn idle(name: &str, config: &ModelConfig) -> bool {
    config.rho == Some(0.0) && name.contains("transport.")
}

// B1, B2: each trainable tensor has a gradient, and it is the loss's slope.
#[test]
fn gradients_agree_with_finite_differences() {
    let (ids, segments) = packed();
    for (preset, config) in presets() {
        let decoder = model(&config, DType::F64);
        let (losses, gradients) = gradients(&decoder, &ids, &segments);
        assert!((sum(&losses) - loss(&decoder, &ids, &segments)).abs() < 1e-10, "{preset}");
        for (Parameter { name, value, .. }, gradient) in decoder.parameters().iter().zip(gradients) {
            let gradient = elements(&gradient);
            let largest = gradient.iter().fold(0.0, |a: f64, b| a.max(b.abs()));
            assert_eq!(largest == 0.0, idle(name, &config), "{preset}: {name} has no gradient");
            for index in probes(&gradient) {
                let slopes = STEPS.map(|step| slope(value, index, step, || loss(&decoder, &ids, &segments)));
                let error =
                    slopes.map(|slope| (slope - gradient[index]).abs()).into_iter().fold(f64::NAN, f64::min);
                assert!(
                    error <= 1e-6 * (1.0 + largest),
                    "{preset}: {name}[{index}]: written {}, by differences {slopes:?}",
                    gradient[index]
                );
            }
        }
    }
}

#[test]
fn f32_gradients_follow_f64() {
    let (ids, segments) = packed();
    for (preset, config) in presets() {
        let (_, want) = gradients(&model(&config, DType::F64), &ids, &segments);
        let single = model(&config, DType::F32);
        let (_, got) = gradients(&single, &ids, &segments);
        for ((parameter, got), want) in single.parameters().iter().zip(got).zip(want) {
            let got = got.to_dtype(DType::F64).unwrap();
            let name = format!("{preset}: {}", parameter.name);
            atpm_core::testing::assert_close(&name, &got, &want, 2e-4);
        }
    }
}

// T9: the tied table is one parameter, and its gradient the sum of both uses.
#[test]
fn a_tied_gradient_is_the_sum_of_both_uses() {
    let (ids, segments) = packed();
    let tied = model(&tiny(), DType::F64);
    let untied = model(&ModelConfig { tied: false, ..tiny() }, DType::F64);
    let names = |decoder: &Decoder| decoder.parameters().iter().map(|p| p.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&tied), names(&untied)[..names(&untied).len() - 1]);
    let head = untied.parameters().pop().unwrap();
    head.value.slice_set(&untied.parameters()[0].value, 0, 0).unwrap();
    let (_, of_tied) = gradients(&tied, &ids, &segments);
    let (_, of_untied) = gradients(&untied, &ids, &segments);
    let both = (&of_untied[0] + of_untied.last().unwrap()).unwrap();
    atpm_core::testing::assert_close("embedding.weight", &of_tied[0], &both, 1e-12);
    for (tied, untied) in of_tied.iter().zip(&of_untied).skip(1) {
        atpm_core::testing::assert_close("another parameter", tied, untied, 1e-12);
    }
}

#[test]
fn gradients_accumulate_and_scale() {
    let (ids, segments) = packed();
    let decoder = model(&tiny(), DType::F64);
    let (_, once) = gradients(&decoder, &ids, &segments);
    let (tokens, targets) = (rows(&ids), targets(&ids, &segments));
    zero_gradients(&decoder.parameters()).unwrap();
    for scale in [0.25, 0.75] {
        decoder.train_step_backward(&tokens, &targets, &segments, scale, 0.0).unwrap();
    }
    for (parameter, once) in decoder.parameters().iter().zip(once) {
        atpm_core::testing::assert_close(&parameter.name, &parameter.gradient, &once, 1e-12);
    }
}

#[test]
fn pinned_controllers_leave_their_rows_alone() {
    let (ids, segments) = packed();
    let config = ModelConfig { rho: Some(0.0), lambda: Some(0.0), tie_beta: true, ..tiny() };
    let decoder = model(&config, DType::F32);
    let (_, gradients) = gradients(&decoder, &ids, &segments);
    for (Parameter { name, .. }, gradient) in decoder.parameters().iter().zip(gradients) {
        // Rows of controllers, each of `heads`: log α (weight only), β_K, β_V, ρ, λ.
        let Some(kind) = name.rsplit_once("controls.").map(|(_, kind)| kind) else { continue };
        let groups = if kind == "weight" { 5 } else { 4 };
        let rows: Vec<f64> =
            elements(&gradient.reshape((groups, ())).unwrap().abs().unwrap().sum(1).unwrap());
        let (live, pinned) = rows.split_at(groups - 3);
        assert!(live.iter().all(|&row| row > 0.0), "{name}: {rows:?}");
        assert!(pinned.iter().all(|&row| row == 0.0), "{name}: {rows:?}");
    }
}

#[test]
fn checkpointing_changes_no_bit() {
    let (ids, segments) = packed();
    let config = ModelConfig { activation_checkpointing: true, ..tiny() };
    let (plain_losses, plain) = gradients(&model(&tiny(), DType::F32), &ids, &segments);
    let (losses, recomputed) = gradients(&model(&config, DType::F32), &ids, &segments);
    atpm_core::testing::assert_same_bits("losses", &losses, &plain_losses);
    for (recomputed, plain) in recomputed.iter().zip(&plain) {
        atpm_core::testing::assert_same_bits("gradient", recomputed, plain);
    }
}

// B1: ids and targets are often windows of one longer row.
#[test]
fn strided_ids_and_targets_give_the_same_bits() {
    let (ids, segments) = packed();
    let decoder = model(&tiny(), DType::F32);
    let (want_losses, want) = gradients(&decoder, &ids, &segments);
    let window = |tensor: &Tensor| {
        let wider = Tensor::cat(&[tensor, tensor], 1).unwrap();
        wider.narrow(1, TOKENS, TOKENS).unwrap()
    };
    let (strided, targets) = (window(&rows(&ids)), window(&targets(&ids, &segments)));
    assert!(!strided.is_contiguous());
    zero_gradients(&decoder.parameters()).unwrap();
    let output = decoder.train_step_backward(&strided, &targets, &segments, 1.0, 0.0).unwrap();
    atpm_core::testing::assert_same_bits("losses", &output.token_losses, &want_losses);
    for (parameter, want) in decoder.parameters().iter().zip(&want) {
        atpm_core::testing::assert_same_bits(&parameter.name, &parameter.gradient, want);
    }
}

#[test]
fn the_z_loss_bends_gradients_but_not_reported_losses() {
    let (ids, segments) = packed();
    let decoder = model(&tiny(), DType::F32);
    let (want_losses, plain) = gradients(&decoder, &ids, &segments);
    zero_gradients(&decoder.parameters()).unwrap();
    let (ids, targets) = (rows(&ids), targets(&ids, &segments));
    let output = decoder.train_step_backward(&ids, &targets, &segments, 1.0, 0.1).unwrap();
    atpm_core::testing::assert_same_bits("losses", &output.token_losses, &want_losses);
    for (parameter, plain) in decoder.parameters().iter().zip(&plain) {
        assert_ne!(elements(&parameter.gradient), elements(plain), "{}", parameter.name);
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let config = ModelConfig { d_model: 48, heads: 3, address: 16, mlp: 80, vocab: 211, ..tiny() };
    let ids = ids(3, 130, config.vocab, 2);
    let segments = Segments::from_starts(130, vec![vec![0, 70], vec![], vec![5]]).unwrap();
    let decoder = model(&config, DType::F32);
    atpm_core::testing::assert_same_on_any_thread_count("micro-batch", || {
        let (losses, mut tensors) = gradients(&decoder, &ids, &segments);
        tensors.push(losses);
        Ok(tensors)
    });
}

// Rounding the products' operands moves the gradient of a fresh model by about their precision. (The stirred model of
// the other tests is far too steep for that.)
#[test]
fn bf16_products_give_nearly_the_same_gradients() {
    let (ids, segments) = packed();
    let whole = |parts: &[Tensor]| {
        let flat: Vec<_> = parts.iter().map(|part| part.flatten_all().unwrap()).collect();
        Tensor::cat(&flat, 0).unwrap()
    };
    for (preset, config) in presets() {
        let fresh = || Decoder::new(&config, 5, &Device::Cpu).unwrap();
        let (losses, exact) = gradients(&fresh(), &ids, &segments);
        let (rounded_losses, rounded) = gradients(&fresh().with_precision(Precision::Bf16), &ids, &segments);
        let error = |got: &Tensor, want: &Tensor| relative_rms_error(got, want).unwrap();
        assert!(error(&rounded_losses, &losses) < 1e-3, "{preset}");
        let moved = error(&whole(&rounded), &whole(&exact));
        // An LSTM starts with weights of 1/√d, here seventeen times those of the others, and is as much steeper.
        let bound = if config.kind == ModelKind::Lstm { 3e-2 } else { 1e-2 };
        assert!(moved < bound, "{preset}: {moved}");
        assert!(moved > 1e-6 || !Precision::Bf16.supported(), "{preset}: {moved}");
    }
}
