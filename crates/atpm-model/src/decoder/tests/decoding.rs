//! Token by token, split and all at once are one function.

use atpm_core::optim::adamw;

use super::*;
use crate::DecodeState;

const TOKENS: usize = 200;

/// A model that has learned a little, so that its logits are not all alike.
fn trained(config: &ModelConfig) -> Decoder {
    let decoder = model(config, DType::F32);
    let ids = ids(2, 48, config.vocab, 4);
    let segments = Segments::from_starts(48, vec![vec![0], vec![0, 30]]).unwrap();
    let parameters = decoder.parameters();
    let moments: Vec<[Tensor; 2]> =
        parameters.iter().map(|parameter| [(); 2].map(|()| parameter.value.zeros_like().unwrap())).collect();
    let mut losses = Vec::new();
    for step in 1..=50 {
        zero_gradients(&parameters).unwrap();
        let targets = targets(&ids, &segments);
        let output = decoder.train_step_backward(&rows(&ids), &targets, &segments, 1.0 / 92.0, 0.0).unwrap();
        losses.push(sum(&output.token_losses));
        let adam = adamw::Config {
            lr: 1e-2,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay: 0.0,
            grad_scale: 1.0,
            step,
        };
        for (parameter, [m, v]) in parameters.iter().zip(&moments) {
            adamw::update(&adam, &parameter.value, m, v, &parameter.gradient).unwrap();
        }
    }
    assert!(losses[49] < 0.5 * losses[0], "{losses:?}");
    decoder
}

fn argmax(logits: &Tensor) -> Vec<u32> {
    logits.argmax(candle_core::D::Minus1).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

fn part(ids: &[Vec<u32>], from: usize, to: usize) -> (Tensor, Segments) {
    let part: Vec<Vec<u32>> = ids.iter().map(|row| row[from..to].to_vec()).collect();
    (rows(&part), Segments::continuous(ids.len(), to - from))
}

fn assert_states_close(got: &DecodeState, want: &DecodeState, tolerance: f64) {
    for ((name, got), want) in got.tensors().iter().zip(want.tensors().values()) {
        atpm_core::testing::assert_close(name, got, want, tolerance);
    }
}

// K21: what the trained model says token by token is what it says all at once, top choice included.
#[test]
fn steps_follow_the_parallel_path() {
    for (preset, config) in presets() {
        let decoder = trained(&config);
        let ids = ids(2, TOKENS, config.vocab, 6);
        let (all, segments) = part(&ids, 0, TOKENS);
        let want = decoder.logits(&all, &segments, None).unwrap();
        let mut state = decoder.decode_state(2).unwrap();
        let bytes = state.bytes();
        let steps: Vec<Tensor> = (0..TOKENS)
            .map(|token| decoder.step(&[ids[0][token], ids[1][token]], &mut state).unwrap())
            .collect();
        let got = Tensor::stack(&steps, 1).unwrap();
        atpm_core::testing::assert_close(preset, &got, &want, 1e-4);
        assert_eq!(argmax(&got), argmax(&want), "{preset}");
        let grows = config.kind == ModelKind::Transformer;
        assert_eq!(state.bytes() > bytes, grows, "{preset}: attention's state grows, and no other");
    }
}

// K14: the tokens that fill the last chunk up leave no trace in the state.
#[test]
fn prefill_and_one_step_is_a_longer_prefill() {
    let decoder = model(&tiny(), DType::F32);
    let ids = ids(1, 131, 19, 8);
    for tokens in [2, 3, 4, 17, 63, 64, 65, 66, 127, 128, 129, 130] {
        let (whole, segments) = part(&ids, 0, tokens);
        let mut want_state = decoder.decode_state(1).unwrap();
        let want = decoder.prefill(&whole, &segments, &mut want_state).unwrap();
        let mut state = decoder.decode_state(1).unwrap();
        let (most, segments) = part(&ids, 0, tokens - 1);
        decoder.prefill(&most, &segments, &mut state).unwrap();
        let got = decoder.step(&[ids[0][tokens - 1]], &mut state).unwrap();
        atpm_core::testing::assert_close(&format!("{tokens} tokens"), &got, &want, 1e-4);
        assert_states_close(&state, &want_state, 1e-4);
    }
}

// K15: a pass that does not start at the beginning goes on from the state it is given.
#[test]
fn a_split_run_carries_its_state() {
    let decoder = model(&tiny(), DType::F32);
    let ids = ids(2, 300, 19, 9);
    let (all, segments) = part(&ids, 0, 300);
    let mut want_state = decoder.decode_state(2).unwrap();
    let want = decoder.logits(&all, &segments, Some(&mut want_state)).unwrap();
    let stateless = decoder.logits(&all, &segments, None).unwrap();
    atpm_core::testing::assert_close("an empty state is no state", &want, &stateless, 1e-6);
    for at in [1, 3, 63, 64, 65, 128, 299] {
        let mut state = decoder.decode_state(2).unwrap();
        let halves = [(0, at), (at, 300)].map(|(from, to)| {
            let (ids, segments) = part(&ids, from, to);
            decoder.logits(&ids, &segments, Some(&mut state)).unwrap()
        });
        let got = Tensor::cat(&halves, 1).unwrap();
        atpm_core::testing::assert_close(&format!("split at {at}"), &got, &want, 1e-4);
        assert_states_close(&state, &want_state, 1e-4);
    }
}

#[test]
fn a_document_start_forgets_the_state() {
    let decoder = model(&tiny(), DType::F32);
    let ids = rows(&ids(1, 20, 19, 1));
    let fresh = Segments::from_starts(20, vec![vec![0]]).unwrap();
    let want = decoder.logits(&ids, &fresh, None).unwrap();
    let mut state = decoder.decode_state(1).unwrap();
    decoder.step(&[7], &mut state).unwrap();
    let got = decoder.logits(&ids, &fresh, Some(&mut state)).unwrap();
    atpm_core::testing::assert_close("logits", &got, &want, 1e-6);
}

#[test]
fn a_saved_state_goes_on_bit_for_bit() {
    let decoder = model(&tiny(), DType::F32);
    let mut state = decoder.decode_state(1).unwrap();
    decoder.step(&[3], &mut state).unwrap();
    let saved = state.tensors().clone();
    let mut restored = decoder.decode_state_from(1, saved.clone()).unwrap();
    let [want, got] = [&mut state, &mut restored].map(|state| decoder.step(&[4], state).unwrap());
    atpm_core::testing::assert_same_bits("logits", &got, &want);

    let mut lacking = saved.clone();
    lacking.remove("blocks.1.mixer.state").unwrap();
    let mut foreign = saved.clone();
    foreign.insert("blocks.7.mixer.state".into(), saved["blocks.0.mixer.state"].clone());
    for (tensors, batch, expected) in [
        (lacking, 1, "`blocks.1.mixer.state` is missing"),
        (foreign, 1, "`blocks.7.mixer.state` is none of this model's"),
        (saved, 2, "this model keeps F32 [2,"),
    ] {
        let message = decoder.decode_state_from(batch, tensors).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let message = decoder.step(&[1, 2], &mut state).unwrap_err().to_string();
    assert!(message.contains("holds 1 rows, but 2 were given"), "{message}");
}
