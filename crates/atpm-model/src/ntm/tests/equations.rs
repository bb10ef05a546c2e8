//! The machine's forward held to the table of docs/ntm.md, which is written out here once more in plain loops.

use atpm_core::Segments;
use atpm_core::testing::Random;
use candle_core::{DType, Tensor};

use crate::decode::DecodeState;
use crate::layer::Layer;
use crate::ntm::{ControllerKind, Ntm, NtmConfig};

const EPSILON: f64 = 1e-6;
const DELTA: f64 = 1e-12;
/// Numbers that a head is told besides its key.
const CONTROLS: usize = 6;
const STEPS: usize = 7;

/// What the plain machine does otherwise than the table says, to show that it would be seen.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// `s₋₁` and `s₊₁` change places.
    ShiftsSwapped,
    /// The heads read what the step has written.
    ReadAfterWrite,
    /// A write does not use its slots up.
    NothingUsedUp,
}

/// One row, step by step, in the letters of the table.
#[derive(Clone)]
struct Plain {
    config: NtmConfig,
    anneal: f64,
    fault: Fault,
    /// `W_c, b_c, W_h, b_h, W_o, b_o`, row by row.
    weights: Vec<Vec<f64>>,
    h: Vec<f64>,
    c: Vec<f64>,
    /// For each read head.
    r: Vec<Vec<f64>>,
    /// For each head, the read heads first.
    w: Vec<Vec<f64>>,
    /// `f`, how free each slot is.
    free: Vec<f64>,
    /// The numbers of each slot.
    memory: Vec<Vec<f64>>,
}

impl Plain {
    /// At a sequence's start.
    fn new(config: &NtmConfig, weights: Vec<Vec<f64>>, anneal: f64, fault: Fault) -> Self {
        let NtmConfig { hidden, slots, width, read_heads, write_heads, .. } = *config;
        let mut first = vec![0.0; slots];
        first[0] = 1.0;
        Self {
            config: config.clone(),
            anneal,
            fault,
            weights,
            h: vec![0.0; hidden],
            c: vec![0.0; hidden],
            r: vec![vec![0.0; width]; read_heads],
            w: vec![first; read_heads + write_heads],
            free: vec![1.0; slots],
            memory: vec![vec![0.0; width]; slots],
        }
    }

    fn step(&mut self, x: &[f64]) -> Vec<f64> {
        self.control(x);
        let told = affine(&self.weights[2], &self.weights[3], &self.h);
        let size = self.config.width + CONTROLS;
        let heads = self.w.len();
        self.w = (0..heads)
            .map(|head| self.address(&told[head * size..(head + 1) * size], &self.w[head]))
            .collect();
        let before = self.memory.clone();
        self.write(&told[heads * size..]);
        let memory = if self.fault == Fault::ReadAfterWrite { &self.memory } else { &before };
        let read = |w: &Vec<f64>| -> Vec<f64> {
            let number = |j: usize| w.iter().zip(memory).map(|(w, slot)| w * slot[j]).sum();
            (0..self.config.width).map(number).collect()
        };
        self.r = self.w[..self.config.read_heads].iter().map(read).collect();
        affine(&self.weights[4], &self.weights[5], &[self.h.clone(), self.r.concat()].concat())
    }

    /// The controller: `h` and `c` move on.
    fn control(&mut self, x: &[f64]) {
        let seen = [x, &self.r.concat()].concat();
        if self.config.controller == ControllerKind::FeedForward {
            let units = affine(&self.weights[0], &self.weights[1], &seen);
            self.h = units.iter().map(|unit| unit.tanh()).collect();
            return;
        }
        let units = affine(&self.weights[0], &self.weights[1], &[seen, self.h.clone()].concat());
        let size = self.config.hidden;
        for at in 0..size {
            let [i, f, o, g] = [0, 1, 2, 3].map(|block| units[block * size + at]);
            self.c[at] = sigmoid(f) * self.c[at] + sigmoid(i) * g.tanh();
            self.h[at] = sigmoid(o) * self.c[at].tanh();
        }
    }

    /// The weights of a head from what it is told and those of the step before.
    fn address(&self, told: &[f64], before: &[f64]) -> Vec<f64> {
        let (slots, width) = (self.config.slots, self.config.width);
        let key: Vec<f64> = told[..width].iter().map(|p| p.tanh()).collect();
        let (beta, gate) = (self.anneal * softplus(told[width]), sigmoid(told[width + 1]));
        let mut shifts = softmax(&told[width + 2..width + 5]);
        if self.fault == Fault::ShiftsSwapped {
            shifts.swap(0, 2);
        }
        let gamma = 1.0 + softplus(told[width + 5]);
        let norm = |x: &[f64]| (dot(x, x) + EPSILON).sqrt();
        let similarity = |slot: &Vec<f64>| beta * dot(&key, slot) / (norm(&key) * norm(slot));
        let content = softmax(&self.memory.iter().map(similarity).collect::<Vec<_>>());
        let d: Vec<f64> = content.iter().zip(before).map(|(u, w)| gate * u + (1.0 - gate) * w).collect();
        let sharpened = |i: usize| {
            let v =
                shifts[0] * d[(i + 1) % slots] + shifts[1] * d[i] + shifts[2] * d[(i + slots - 1) % slots];
            (v + DELTA).powf(gamma)
        };
        let powers: Vec<f64> = (0..slots).map(sharpened).collect();
        let sum: f64 = powers.iter().sum();
        powers.into_iter().map(|power| power / sum).collect()
    }

    /// Erases and adds, with `ŵ` for `w`; slots are used up.
    fn write(&mut self, told: &[f64]) {
        let (width, strength) = (self.config.width, self.config.suppression);
        let held = |w: &Vec<f64>| -> Vec<f64> {
            w.iter().zip(&self.free).map(|(w, free)| w * (1.0 - strength * (1.0 - free))).collect()
        };
        let held: Vec<Vec<f64>> = self.w[self.config.read_heads..].iter().map(held).collect();
        for (i, slot) in self.memory.iter_mut().enumerate() {
            for (j, number) in slot.iter_mut().enumerate() {
                let erased = |(head, w): (usize, &Vec<f64>)| 1.0 - w[i] * sigmoid(told[head * 2 * width + j]);
                let added = |(head, w): (usize, &Vec<f64>)| w[i] * told[(head * 2 + 1) * width + j].tanh();
                *number = *number * held.iter().enumerate().map(erased).product::<f64>()
                    + held.iter().enumerate().map(added).sum::<f64>();
            }
            if self.fault != Fault::NothingUsedUp {
                self.free[i] *= held.iter().map(|w| 1.0 - w[i]).product::<f64>();
            }
        }
    }

    /// As the machine keeps it: `h, c, r, w, f`, and the memory with a line a number.
    fn state(&self) -> Vec<f64> {
        let memory = (0..self.config.width).flat_map(|j| self.memory.iter().map(move |slot| slot[j]));
        let parts = [&self.h, &self.c, &self.r.concat(), &self.w.concat(), &self.free];
        parts.into_iter().flatten().copied().chain(memory).collect()
    }
}

/// `W x + b`, `W` row by row.
fn affine(matrix: &[f64], bias: &[f64], x: &[f64]) -> Vec<f64> {
    assert_eq!(matrix.len(), bias.len() * x.len());
    matrix.chunks(x.len()).zip(bias).map(|(row, bias)| dot(row, x) + bias).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    x.exp().ln_1p()
}

fn softmax(x: &[f64]) -> Vec<f64> {
    let sum: f64 = x.iter().map(|x| x.exp()).sum();
    x.iter().map(|x| x.exp() / sum).collect()
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// A machine in f64 whose every parameter has an effect.
fn machine(config: &NtmConfig, anneal: f64, random: &mut Random) -> Ntm {
    let mut machine = Ntm::with_dtype(config, 5, DType::F64).unwrap();
    machine.set_beta_scale(anneal);
    for parameter in machine.parameters() {
        let more = (random.normal(parameter.value.shape().clone(), DType::F64).unwrap() * 0.4).unwrap();
        atpm_core::accumulate(&parameter.value, &more).unwrap();
    }
    machine
}

/// How far the largest difference of outputs and of last states is.
fn distance(config: &NtmConfig, fault: Fault) -> f64 {
    let (anneal, mut random) = (0.6, Random::new(17));
    let machine = machine(config, anneal, &mut random);
    let x = random.normal((1, STEPS, config.inputs), DType::F64).unwrap();
    let mut state = DecodeState::new(1, machine.initial_state(1).unwrap());
    let y = numbers(&machine.resume(&x, &Segments::continuous(1, STEPS), &mut state).unwrap());
    let last = numbers(state.tensors().values().next().unwrap());

    let weights = machine.parameters().iter().map(|parameter| numbers(&parameter.value)).collect();
    let mut plain = Plain::new(config, weights, anneal, fault);
    let expected: Vec<f64> = numbers(&x).chunks(config.inputs).flat_map(|x| plain.step(x)).collect();
    let end = plain.state();
    assert_eq!((y.len(), last.len()), (expected.len(), end.len()));
    let pairs = y.iter().zip(&expected).chain(last.iter().zip(&end));
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn every_step_is_the_one_of_the_table() {
    for controller in [ControllerKind::Lstm, ControllerKind::FeedForward] {
        let config = NtmConfig {
            controller,
            hidden: 7,
            slots: 19,
            width: 5,
            read_heads: 2,
            write_heads: 2,
            suppression: 0.7,
            ..NtmConfig::new(4, 3)
        };
        let off = distance(&config, Fault::None);
        assert!(off < 1e-10, "{controller:?}: {off}");
        // What the comparison has to see.
        for fault in [Fault::ShiftsSwapped, Fault::ReadAfterWrite, Fault::NothingUsedUp] {
            let off = distance(&config, fault);
            assert!(off > 1e-3, "{controller:?}, {fault:?}: {off} is too near to be told apart");
        }
    }
}
