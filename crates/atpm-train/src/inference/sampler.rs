//! From logits to a token: the largest, or an exact draw at a temperature from the nucleus (top-p; Holtzman et
//! al., "The Curious Case of Neural Text Degeneration").
//!
//! `p_i ∝ exp(l_i / temperature)`. The nucleus is the shortest list of tokens, likeliest first (the smaller id
//! first where two are equal), whose probabilities reach `top_p`; the draw is from the nucleus, renormalised.
//! Draw number `n` is a function of the seed and `n` alone.

use anyhow::{bail, ensure};
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// How tokens are picked.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 takes the largest one and draws nothing.
    pub temperature: f64,
    /// Probability that the nucleus reaches, in (0, 1]; 1 draws from all tokens.
    pub top_p: f64,
    /// Seed of the draws.
    pub seed: u64,
}

/// Picks one token after the other.
#[derive(Debug)]
pub struct Sampler {
    sampling: Sampling,
    /// For each id below the tokenizer's size, whether it stands for anything.
    allowed: Vec<bool>,
    draws: u64,
    /// Weight and id of the tokens that can be drawn; kept to spare an allocation a token.
    candidates: Vec<(f64, u32)>,
}

impl Sampler {
    /// A sampler over the ids that are `allowed`; ids past its end (padding of the model's vocabulary) never
    /// come.
    pub fn new(sampling: Sampling, allowed: Vec<bool>) -> Self {
        Self { sampling, allowed, draws: 0, candidates: Vec::new() }
    }

    /// Draws made so far.
    pub fn draws(&self) -> u64 {
        self.draws
    }

    /// Goes on as if `draws` had been made.
    pub fn set_draws(&mut self, draws: u64) {
        self.draws = draws;
    }

    /// The next token, from logits over the model's vocabulary.
    ///
    /// # Errors
    /// Fewer logits than ids, or logits that are no distribution (NaN, +∞, nothing finite).
    pub fn pick(&mut self, logits: &[f32]) -> anyhow::Result<u32> {
        ensure!(
            logits.len() >= self.allowed.len(),
            "{} logits for a tokenizer of {} ids",
            logits.len(),
            self.allowed.len()
        );
        let (best, largest) = self.largest(logits)?;
        if self.sampling.temperature == 0.0 {
            return Ok(best);
        }
        let mut total = self.weigh(logits, largest);
        if self.sampling.top_p < 1.0 {
            total = self.cut_to_nucleus(total);
        }
        let mut rest = self.uniform() * total;
        for &(weight, id) in &self.candidates {
            rest -= weight;
            if rest < 0.0 {
                return Ok(id);
            }
        }
        // Rounding can leave a last crumb of probability.
        Ok(self.candidates.last().map_or(best, |&(_, id)| id))
    }

    /// The allowed id of the largest logit (the smallest such id), and that logit.
    fn largest(&self, logits: &[f32]) -> anyhow::Result<(u32, f64)> {
        let mut best: Option<(u32, f32)> = None;
        for (id, (&logit, _)) in (0u32..).zip(logits.iter().zip(&self.allowed)).filter(|(_, (_, ok))| **ok) {
            if logit.is_nan() || logit == f32::INFINITY {
                bail!("the logit of token {id} is {logit}: the model's numbers have broken down");
            }
            if best.is_none_or(|(_, largest)| logit > largest) {
                best = Some((id, logit));
            }
        }
        match best {
            Some((id, logit)) if logit.is_finite() => Ok((id, f64::from(logit))),
            _ => bail!("no token has a finite logit"),
        }
    }

    /// Fills the candidates with every allowed id and its weight; their sum.
    fn weigh(&mut self, logits: &[f32], largest: f64) -> f64 {
        let temperature = self.sampling.temperature;
        let weights = (0u32..)
            .zip(logits.iter().zip(&self.allowed))
            .filter(|(_, (_, ok))| **ok)
            .map(|(id, (&logit, _))| (((f64::from(logit) - largest) / temperature).exp(), id));
        self.candidates.clear();
        self.candidates.extend(weights);
        self.candidates.iter().map(|(weight, _)| weight).sum()
    }

    /// Keeps only the nucleus; the sum of its weights.
    fn cut_to_nucleus(&mut self, total: f64) -> f64 {
        let top_p = self.sampling.top_p;
        // Tokens below an n-th of the excluded mass cannot be in the nucleus: all of them together weigh less
        // than what it leaves out. Sorting is then a matter of a few.
        let floor = (1.0 - top_p) * total / self.candidates.len() as f64;
        self.candidates.retain(|(weight, _)| *weight >= floor);
        self.candidates.sort_unstable_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
        let mut reached = 0.0;
        let mut length = 0;
        for (weight, _) in &self.candidates {
            reached += weight;
            length += 1;
            if reached >= top_p * total {
                break;
            }
        }
        self.candidates.truncate(length);
        reached
    }

    /// The next number in [0, 1), with 53 random bits.
    fn uniform(&mut self) -> f64 {
        let mut key = [0u8; 32];
        key[..8].copy_from_slice(&self.sampling.seed.to_le_bytes());
        let mut stream = ChaCha12Rng::from_seed(key);
        stream.set_word_pos(2 * u128::from(self.draws));
        self.draws += 1;
        (stream.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampler(temperature: f64, top_p: f64, seed: u64, ids: usize) -> Sampler {
        Sampler::new(Sampling { temperature, top_p, seed }, vec![true; ids])
    }

    /// Frequencies of 20000 draws from `logits`.
    fn frequencies(mut sampler: Sampler, logits: &[f32]) -> Vec<f64> {
        let mut counts = vec![0.0; logits.len()];
        for _ in 0..20_000 {
            counts[sampler.pick(logits).unwrap() as usize] += 1.0 / 20_000.0;
        }
        counts
    }

    #[test]
    fn draws_follow_the_distribution() {
        // Logits of probabilities 0.5, 0.3, 0.15, 0.05, in another order, and one that cannot come.
        let probabilities = [0.15f32, 0.5, 0.05, 0.3];
        let mut logits: Vec<f32> = probabilities.iter().map(|p| p.ln() + 3.0).collect();
        logits.push(f32::NEG_INFINITY);
        let squared: f64 = probabilities.iter().map(|p| f64::from(*p).powi(2)).sum();
        let expect = |f: &dyn Fn(f64) -> f64| -> Vec<f64> {
            probabilities.iter().map(|p| f(f64::from(*p))).chain([0.0]).collect()
        };
        let table: [(f64, f64, Vec<f64>); 4] = [
            (1.0, 1.0, expect(&|p| p)),
            (0.5, 1.0, expect(&|p| p * p / squared)),
            // 0.5 + 0.3 + 0.15 reaches 0.9, and 0.5 alone reaches 0.5.
            (1.0, 0.9, expect(&|p| if p > 0.1 { p / 0.95 } else { 0.0 })),
            (1.0, 0.49, expect(&|p| f64::from(u8::from(p > 0.4)))),
        ];
        for (temperature, top_p, expected) in table {
            let found = frequencies(sampler(temperature, top_p, 1, 5), &logits);
            for (found, expected) in found.iter().zip(&expected) {
                // Four standard deviations of the widest of these frequencies; nothing may come from nothing.
                assert!((found - expected).abs() < 0.015, "{temperature} {top_p}: {found} for {expected}");
                assert!(*expected > 0.0 || *found == 0.0, "{temperature} {top_p}");
            }
        }
    }

    #[test]
    fn the_nucleus_of_equal_tokens_takes_the_smaller_ids() {
        let found = frequencies(sampler(1.0, 0.5, 3, 8), &[1.0; 8]);
        assert!(found[..4].iter().all(|&share| share > 0.2) && found[4..] == [0.0; 4], "{found:?}");
    }

    #[test]
    fn greedy_takes_the_first_largest() {
        assert_eq!(sampler(0.0, 1.0, 0, 4).pick(&[1.0, 3.0, 3.0, -1.0]).unwrap(), 1);
        assert_eq!(sampler(1e-300, 0.95, 0, 4).pick(&[1.0, 3.0, 2.9, -1.0]).unwrap(), 1);
    }

    // D23: ids that only pad the model's vocabulary, or that the tokenizer does not know, never come.
    #[test]
    fn padded_and_unknown_ids_never_come() {
        let logits = [0.0f32, 50.0, 0.0, 99.0, 99.0];
        for temperature in [0.0, 1.0, 10.0] {
            let mut sampler =
                Sampler::new(Sampling { temperature, top_p: 1.0, seed: 5 }, vec![true, false, true]);
            for _ in 0..1000 {
                assert!(matches!(sampler.pick(&logits).unwrap(), 0 | 2));
            }
        }
    }

    #[test]
    fn logits_that_are_no_distribution_are_errors() {
        for temperature in [0.0, 1.0] {
            let mut sampler = sampler(temperature, 0.9, 0, 3);
            for (logits, expected) in [
                (vec![0.0, f32::NAN, 1.0], "token 1 is NaN"),
                (vec![f32::INFINITY, 0.0, 1.0], "token 0 is inf"),
                (vec![f32::NEG_INFINITY; 3], "no token has a finite logit"),
                (vec![0.0; 2], "2 logits for a tokenizer of 3 ids"),
            ] {
                let error = sampler.pick(&logits).unwrap_err().to_string();
                assert!(error.contains(expected), "{error}");
            }
        }
    }

    #[test]
    fn draws_depend_on_seed_and_number_alone() {
        let logits: Vec<f32> = (0..64).map(|id| (id as f32 * 0.7).sin()).collect();
        let run = |seed: u64, skip: u64| -> Vec<u32> {
            let mut sampler = sampler(1.0, 0.95, seed, 64);
            sampler.set_draws(skip);
            (skip..40).map(|_| sampler.pick(&logits).unwrap()).collect()
        };
        let whole = run(7, 0);
        assert_eq!(run(7, 0), whole);
        assert_eq!(run(7, 25), whole[25..]);
        assert_ne!(run(8, 0), whole);
    }
}
