//! What the generators draw from: one random stream for each sample, and the sizes of its split.

use super::Split;
use super::vocabulary::{N_NOISE, noise};
use crate::order::Stream;

/// Sets the suite's streams apart from every other stream of the crate.
const DOMAIN: u64 = u64::from_be_bytes(*b"memsuite");

/// The sizes of a task, counted in its own unit: trained from `least` to `most`, evaluated beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// The smallest size of training.
    pub least: usize,
    /// The largest size of training, an even number.
    pub most: usize,
}

impl Sizes {
    /// The smallest and the largest size of a split: up to 1.5 times `most` in OOD, up to 3 times in Stress.
    pub fn of(self, split: Split) -> (usize, usize) {
        match split {
            Split::Train | Split::Validation | Split::Iid => (self.least, self.most),
            Split::Ood => (self.most + 1, self.most * 3 / 2),
            Split::Stress => (self.most * 5 / 2, self.most * 3),
        }
    }
}

/// The random choices of one sample.
pub(super) struct Draw {
    stream: Stream,
    split: Split,
}

impl Draw {
    /// The choices of the sample that these numbers name, the same every time.
    pub(super) fn new(task: super::Task, split: Split, seed: u64, index: u64) -> Self {
        Self { stream: Stream::new(&[DOMAIN, seed, task as u64, split as u64, index]), split }
    }

    /// A number below `n`, which is at least 1.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.stream.below(n)
    }

    /// One of `items`, of which there is at least one.
    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// `n` different numbers below `of`, in random order.
    pub(super) fn distinct(&mut self, n: usize, of: usize) -> Vec<usize> {
        let mut all = self.stream.permutation(of);
        all.truncate(n);
        all
    }

    /// A size of this split.
    pub(super) fn size(&mut self, sizes: Sizes) -> usize {
        let (least, most) = sizes.of(self.split);
        least + self.below(most - least + 1)
    }

    /// Whether this is the split of long lines with many distractors.
    pub(super) fn is_stress(&self) -> bool {
        self.split == Split::Stress
    }

    /// Puts a distractor into a gap of `line`, or nothing: one gap in 16, in Stress every second one.
    ///
    /// They are rare in training but not absent, so that Stress tests a memory among many distractors and not a
    /// token that was never seen.
    pub(super) fn distract(&mut self, line: &mut Vec<u32>) {
        if self.below(if self.is_stress() { 2 } else { 16 }) == 0 {
            line.push(self.noise());
        }
    }

    /// A noise token.
    pub(super) fn noise(&mut self) -> u32 {
        noise(self.below(N_NOISE))
    }
}
