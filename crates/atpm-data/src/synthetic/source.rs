//! Samples as batches: the stream that training reads.

use std::convert::Infallible;

use serde::{Deserialize, Serialize};

use super::{Sample, Split, Task, vocabulary};
use crate::{Batch, BatchSource, Error, IGNORE, Result};

/// Which samples a source gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyntheticConfig {
    /// The task.
    pub task: Task,
    /// The split.
    pub split: Split,
    /// Seed of the samples.
    pub seed: u64,
    /// Samples of a batch.
    pub rows: usize,
}

/// A synthetic source's place, as it is stored in a checkpoint. The size of a batch is no part of it and may change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyntheticPosition {
    /// The task.
    pub task: Task,
    /// The split.
    pub split: Split,
    /// Seed of the samples.
    pub seed: u64,
    /// Index of the next sample.
    pub next: u64,
}

/// The endless stream of one task's samples, in the order of their index and each given once.
#[derive(Debug)]
pub struct SyntheticSource {
    position: SyntheticPosition,
    rows: usize,
}

impl SyntheticSource {
    /// Stands before the first sample, or where `resume` left off.
    ///
    /// # Errors
    /// No rows, or a position in other samples than those of `config`.
    pub fn open(config: &SyntheticConfig, resume: Option<&SyntheticPosition>) -> Result<Self> {
        let SyntheticConfig { task, split, seed, rows } = *config;
        if rows == 0 {
            return Err(Error::Setting {
                key: "rows",
                value: "0".into(),
                reason: "must be at least 1".into(),
            });
        }
        let next = resume.map_or(0, |stored| stored.next);
        let position = SyntheticPosition { task, split, seed, next };
        match resume {
            Some(stored) if *stored != position => {
                let is =
                    |p: &SyntheticPosition| format!("{}, {}, seed {}", p.task.name(), p.split.name(), p.seed);
                let change = format!("the samples were {} and are {}", is(stored), is(&position));
                Err(Error::Changed { changes: vec![change] })
            }
            _ => Ok(Self { position, rows }),
        }
    }
}

impl BatchSource for SyntheticSource {
    type Position = SyntheticPosition;
    type Error = Infallible;

    fn next_batch(&mut self) -> Result<Batch, Infallible> {
        let SyntheticPosition { task, split, seed, next } = self.position;
        let end = next + self.rows as u64;
        let samples: Vec<Sample> = (next..end).map(|index| task.sample(split, seed, index)).collect();
        self.position.next = end;
        Ok(batch(&samples))
    }

    fn position(&self) -> SyntheticPosition {
        self.position.clone()
    }
}

/// A batch of one sample a row, each a document of its own, filled up to the longest with [`vocabulary::PAD`] that
/// counts for nothing. `target_bytes` is 0: there is no text.
pub fn batch(samples: &[Sample]) -> Batch {
    let tokens = samples.iter().map(|sample| sample.ids.len()).max().unwrap_or(0);
    let mut batch = Batch::with_capacity(samples.len(), tokens);
    for sample in samples {
        batch.rows += 1;
        batch.ids.extend(&sample.ids);
        batch.ids.resize(batch.rows * tokens, vocabulary::PAD);
        batch.targets.extend(&sample.targets);
        batch.targets.resize(batch.rows * tokens, IGNORE);
        batch.positions.extend(0..tokens as u32);
        batch.starts.push(vec![0]);
    }
    batch
}
