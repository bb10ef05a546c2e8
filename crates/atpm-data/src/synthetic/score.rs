//! How well answers fit: whole answers and single tokens.

use crate::IGNORE;

/// Counts over samples. Positions whose target is [`IGNORE`] (the prompt, padding) count for nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Score {
    /// Samples with at least one counted position.
    pub samples: u64,
    /// Samples whose every counted position is right.
    pub exact: u64,
    /// Counted positions.
    pub tokens: u64,
    /// Counted positions that are right.
    pub right: u64,
}

impl Score {
    /// Adds one sample, or one row of a batch: its targets, and the id that was given at each position.
    ///
    /// A counted position that `given` does not reach is wrong.
    pub fn add(&mut self, targets: &[u32], given: &[u32]) {
        let counted = || targets.iter().enumerate().filter(|&(_, &target)| target != IGNORE);
        let tokens = counted().count() as u64;
        let right =
            counted().filter(|&(position, target)| given.get(position) == Some(target)).count() as u64;
        self.samples += u64::from(tokens > 0);
        self.exact += u64::from(tokens > 0 && right == tokens);
        self.tokens += tokens;
        self.right += right;
    }

    /// Whole answers that are right, as a share of all; NaN without a sample.
    pub fn exact_match(&self) -> f64 {
        self.exact as f64 / self.samples as f64
    }

    /// Answer tokens that are right, as a share of all; NaN without a sample.
    pub fn token_accuracy(&self) -> f64 {
        self.right as f64 / self.tokens as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_count() {
        let mut score = Score::default();
        // A padding prediction that happens to be the padding id, or anything else, changes nothing.
        for padding in [0, 7] {
            score.add(&[IGNORE, 5, 6, IGNORE], &[padding, 5, 6, padding]);
        }
        score.add(&[IGNORE, 5, 6, IGNORE], &[IGNORE, 5, 9, IGNORE]);
        assert_eq!(score, Score { samples: 3, exact: 2, tokens: 6, right: 5 });
        assert!((score.exact_match() - 2.0 / 3.0).abs() < 1e-12);
        assert!((score.token_accuracy() - 5.0 / 6.0).abs() < 1e-12);
    }

    #[test]
    fn what_was_not_given_is_wrong_and_what_was_not_asked_is_no_sample() {
        let mut score = Score::default();
        score.add(&[IGNORE, 5, 6], &[0, 5]);
        assert_eq!(score, Score { samples: 1, exact: 0, tokens: 2, right: 1 });
        score.add(&[IGNORE, IGNORE], &[1, 2]);
        assert_eq!(score.samples, 1);
    }
}
