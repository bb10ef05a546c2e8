//! What the machine promises besides its gradients.

use atpm_core::Segments;
use atpm_core::testing::{Random, assert_close, assert_same_bits, assert_same_on_any_thread_count};
use candle_core::{DType, Tensor};

use crate::decode::DecodeState;
use crate::layer::Layer;
use crate::ntm::loss::{gradient, score};
use crate::ntm::{ControllerKind, Executor, Ntm, NtmConfig};

fn small() -> NtmConfig {
    NtmConfig { hidden: 9, slots: 12, width: 6, read_heads: 2, ..NtmConfig::new(4, 3) }
}

fn starts(rows: usize, steps: usize) -> Segments {
    Segments::from_starts(steps, vec![vec![0]; rows]).unwrap()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    atpm_core::read_f32(tensor).unwrap()
}

#[test]
fn no_bit_depends_on_the_number_of_threads() {
    assert_same_on_any_thread_count("ntm", || {
        let machine = Ntm::new(&small(), 1).unwrap();
        let x = Random::new(2).normal((11, 7, 4), DType::F32)?;
        let (y, saved) = machine.forward(&x, &starts(11, 7)).unwrap();
        let dx = machine.backward(&x, saved, &y, &starts(11, 7)).unwrap();
        let gradients = machine.parameters().into_iter().map(|parameter| parameter.gradient);
        Ok([y, dx].into_iter().chain(gradients).collect())
    });
}

#[test]
fn f32_and_f64_agree() {
    let wide = Ntm::with_dtype(&small(), 1, DType::F64).unwrap();
    let narrow = Ntm::new(&small(), 1).unwrap();
    let x = Random::new(2).normal((5, 9, 4), DType::F64).unwrap();
    let x32 = x.to_dtype(DType::F32).unwrap();
    let (want, saved) = wide.forward(&x, &starts(5, 9)).unwrap();
    let dx = wide.backward(&x, saved, &want, &starts(5, 9)).unwrap();
    let (got, saved) = narrow.forward(&x32, &starts(5, 9)).unwrap();
    let dx32 = narrow.backward(&x32, saved, &got, &starts(5, 9)).unwrap();
    assert_close("y", &got.to_dtype(DType::F64).unwrap(), &want, 1e-5);
    assert_close("dx", &dx32.to_dtype(DType::F64).unwrap(), &dx, 1e-4);
}

#[test]
fn a_sequence_in_parts_is_the_whole_one() {
    let machine = Ntm::new(&small(), 4).unwrap();
    let x = Random::new(5).normal((6, 10, 4), DType::F32).unwrap();
    let (whole, _) = machine.forward(&x, &starts(6, 10)).unwrap();
    let mut state = DecodeState::new(6, machine.initial_state(6).unwrap());
    let mut parts = Vec::new();
    for (first, steps) in [(0, 3), (3, 1), (4, 6)] {
        let part = x.narrow(1, first, steps).unwrap();
        parts.push(machine.resume(&part, &Segments::continuous(6, steps), &mut state).unwrap());
    }
    assert_same_bits("parts", &Tensor::cat(&parts, 1).unwrap(), &whole);

    let mut alone = Executor::new(Ntm::new(&small(), 4).unwrap()).unwrap();
    for step in 0..10 {
        let x = numbers(&x.narrow(1, step, 1).unwrap().narrow(0, 2, 1).unwrap());
        let want = numbers(&whole.narrow(1, step, 1).unwrap().narrow(0, 2, 1).unwrap());
        let (y, focus) = alone.watch(&x).unwrap();
        assert_eq!(y, want, "step {step}");
        assert_eq!((focus.read.len(), focus.write.len()), (2, 1));
        for weights in focus.read.iter().chain(&focus.write) {
            assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-5);
        }
    }
}

#[test]
fn what_stands_before_a_start_is_not_seen() {
    let machine = Ntm::new(&small(), 4).unwrap();
    let x = Random::new(5).normal((1, 10, 4), DType::F32).unwrap();
    let both = Segments::from_starts(10, vec![vec![0, 4]]).unwrap();
    let (y, _) = machine.forward(&x, &both).unwrap();
    let (alone, _) =
        machine.forward(&x.narrow(1, 4, 6).unwrap().contiguous().unwrap(), &starts(1, 6)).unwrap();
    assert_same_bits("second sequence", &y.narrow(1, 4, 6).unwrap().contiguous().unwrap(), &alone);
}

#[test]
fn a_state_can_be_kept_and_only_one_of_its_size_put_back() {
    let mut machine = Executor::new(Ntm::new(&small(), 4).unwrap()).unwrap();
    machine.step(&[1.0, 0.0, 0.0, 1.0]).unwrap();
    let kept = machine.state().to_vec();
    let want = machine.step(&[0.0; 4]).unwrap();
    machine.restart();
    machine.set_state(&kept).unwrap();
    assert_eq!(machine.step(&[0.0; 4]).unwrap(), want);
    assert!(machine.set_state(&kept[1..]).is_err());
    assert!(machine.step(&[0.0; 3]).is_err());
}

#[test]
fn suppression_holds_back_a_second_write() {
    // A head that cannot move writes to slot 0 again and again.
    let memory_after = |suppression: f64| {
        let config = NtmConfig { suppression, ..small() };
        let machine = Ntm::new(&config, 4).unwrap();
        let bias = &machine.parameters()[3].value;
        let mut raw = numbers(bias);
        let per_head = config.width + 6;
        for head in 0..3 {
            // Gate shut, no shift, a sharp address.
            let controls = head * per_head + config.width;
            raw[controls + 1..controls + 6].copy_from_slice(&[-50.0, -50.0, 50.0, -50.0, 5.0]);
        }
        atpm_core::overwrite_f32(bias, &raw).unwrap();
        let mut machine = Executor::new(machine).unwrap();
        machine.step(&[1.0; 4]).unwrap();
        let first = machine.slot(0);
        machine.step(&[-1.0; 4]).unwrap();
        let second = machine.slot(0);
        first.iter().zip(&second).map(|(a, b)| (a - b).abs()).sum::<f32>()
    };
    let (free, held) = (memory_after(0.0), memory_after(1.0));
    assert!(free > 1e-3, "the slot is written again: {free}");
    assert!(held < free * 1e-3, "a used slot is left alone: {held} of {free}");
}

#[test]
fn sizes_that_make_no_machine_are_refused() {
    for (config, key) in [
        (NtmConfig { slots: 2, ..small() }, "slots: must be 3 to 65536, got 2"),
        // What no allocator has.
        (NtmConfig { slots: 10_000_000_000, ..small() }, "slots: must be 3 to 65536, got 10000000000"),
        (NtmConfig { width: usize::MAX, ..small() }, "width"),
        (NtmConfig { hidden: 0, ..small() }, "hidden"),
        (NtmConfig { hidden: 1 << 17, ..small() }, "hidden"),
        (NtmConfig { write_heads: 0, ..small() }, "write_heads"),
        (NtmConfig { read_heads: 5000, ..small() }, "read_heads: must be 1 to 4096, got 5000"),
        (NtmConfig { suppression: 1.5, ..small() }, "suppression"),
    ] {
        let error = Ntm::new(&config, 0).err().unwrap().to_string();
        assert!(error.contains(key), "{error}");
    }
    let machine = Ntm::new(&small(), 0).unwrap();
    let x = Random::new(5).normal((2, 3, 5), DType::F32).unwrap();
    assert!(machine.forward(&x, &starts(2, 3)).is_err());
}

#[test]
fn parameters_are_counted_by_hand() {
    // LSTM: 4·128·(9 + 32 + 128 + 1); heads: (2·(32 + 6) + 64)·(128 + 1); output: 8·(128 + 32 + 1).
    let config = NtmConfig::new(9, 8);
    assert_eq!(config.parameter_count().unwrap(), 87_040 + 18_060 + 1_288);
    let plain = NtmConfig { controller: ControllerKind::FeedForward, ..config };
    assert_eq!(plain.parameter_count().unwrap(), 128 * 42 + 18_060 + 1_288);
}

#[test]
fn the_loss_counts_answers_only() {
    let (y, targets) = ([3.0, -2.0, 9.0, -9.0, -0.5, 0.5], [1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let answers = [true, false, true];
    let total = score::<f64>(&y, &targets, &answers, 1);
    let nats = |p: f64| -p.ln();
    let sigma = |x: f64| 1.0 / (1.0 + (-x).exp());
    let want = nats(sigma(3.0)) + nats(1.0 - sigma(-2.0)) + nats(sigma(-0.5)) + nats(sigma(0.5));
    assert!((total.nats - want).abs() < 1e-12);
    assert_eq!((total.bits, total.wrong_bits, total.sequences, total.right_sequences), (4, 1, 1, 0));
    let gradient = gradient::<f64>(&y, &targets, &answers);
    let step = 1e-6;
    for at in 0..y.len() {
        let mut moved = y;
        moved[at] += step;
        let difference = (score(&moved, &targets, &answers, 1).loss() - total.loss()) / step;
        assert!((gradient[at] - difference).abs() < 1e-5, "{at}: {} {difference}", gradient[at]);
    }
}
