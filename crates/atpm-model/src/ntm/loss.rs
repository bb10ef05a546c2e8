//! The loss on binary targets, and what is counted beside it.

use atpm_core::vector::{Real, log1p_exp, sigmoid};

/// What a batch of answers is worth. Sums, so that batches can be added.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BitScore {
    /// `Σ −ln p(target)` over all answer bits, nats.
    pub nats: f64,
    /// Answer bits.
    pub bits: u64,
    /// Answer bits on the wrong side of one half.
    pub wrong_bits: u64,
    /// Sequences with at least one answer bit.
    pub sequences: u64,
    /// Sequences without a wrong bit.
    pub right_sequences: u64,
}

impl BitScore {
    /// Adds another batch.
    pub fn add(&mut self, other: &Self) {
        self.nats += other.nats;
        self.bits += other.bits;
        self.wrong_bits += other.wrong_bits;
        self.sequences += other.sequences;
        self.right_sequences += other.right_sequences;
    }

    /// Mean loss of an answer bit, nats.
    pub fn loss(&self) -> f64 {
        self.nats / self.bits.max(1) as f64
    }

    /// Share of answer bits that are right.
    pub fn bit_accuracy(&self) -> f64 {
        1.0 - self.wrong_bits as f64 / self.bits.max(1) as f64
    }

    /// Share of sequences whose every answer bit is right.
    pub fn sequence_accuracy(&self) -> f64 {
        self.right_sequences as f64 / self.sequences.max(1) as f64
    }

    /// Cost of a sequence in bits, `Σ −log₂ p(target)`, as Graves et al. report it.
    pub fn bits_per_sequence(&self) -> f64 {
        self.nats / std::f64::consts::LN_2 / self.sequences.max(1) as f64
    }
}

/// Scores logits `y [B,T,O]` against bits `targets [B,T,O]` where `answers [B,T]` says that they count.
pub fn score<T: Real>(y: &[T], targets: &[T], answers: &[bool], rows: usize) -> BitScore {
    let mut score = BitScore::default();
    let (steps, outputs) = (answers.len() / rows.max(1), y.len() / answers.len().max(1));
    for row in 0..rows {
        let mut wrong = 0;
        let mut bits = 0;
        for step in (row * steps..(row + 1) * steps).filter(|&step| answers[step]) {
            let places = step * outputs..(step + 1) * outputs;
            for (&y, &target) in y[places.clone()].iter().zip(&targets[places]) {
                let (y, target) = (y.wide(), target.wide());
                // −ln σ(y) for 1, −ln(1 − σ(y)) for 0.
                score.nats += log1p_exp(-y) * target + log1p_exp(y) * (1.0 - target);
                wrong += u64::from((y > 0.0) != (target > 0.5));
                bits += 1;
            }
        }
        score.bits += bits;
        score.wrong_bits += wrong;
        score.sequences += u64::from(bits > 0);
        score.right_sequences += u64::from(bits > 0 && wrong == 0);
    }
    score
}

/// The gradient of [`BitScore::loss`] to the logits: `(σ(y) − target) / bits` where it counts, 0 elsewhere.
pub fn gradient<T: Real>(y: &[T], targets: &[T], answers: &[bool]) -> Vec<T> {
    let outputs = y.len() / answers.len().max(1);
    let counted = answers.iter().filter(|&&answer| answer).count() * outputs;
    let share = T::of((counted.max(1) as f64).recip());
    let mut gradient = vec![T::zero(); y.len()];
    for (step, _) in answers.iter().enumerate().filter(|&(_, &answer)| answer) {
        let places = step * outputs..(step + 1) * outputs;
        let lines = gradient[places.clone()].iter_mut().zip(&y[places.clone()]).zip(&targets[places]);
        for ((out, &y), &target) in lines {
            *out = (sigmoid(y) - target) * share;
        }
    }
    gradient
}
