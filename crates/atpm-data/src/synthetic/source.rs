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
    /// Samples of a batch; several may share one of its rows.
    pub rows: usize,
}

/// A synthetic source's place: what another one needs to go on. The size of a batch is no part of it and may change.
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

/// Tokens of a row that samples are packed into. With a row for each sample a third of all tokens would be padding; much
/// longer rows fill no better, and cost a transformer its attention and an LSTM the rows that it computes side by side.
const ROW: usize = 96;

/// A batch of these samples, each a document of its own; as many share a row as fit into 96 tokens, or into those of the
/// longest, the longest of them first. What stays free is filled with [`vocabulary::PAD`], which counts for nothing.
/// `target_bytes` is 0: there is no text.
pub fn batch(samples: &[Sample]) -> Batch {
    let rows = packed(samples);
    let length = |row: &[&Sample]| row.iter().map(|sample| sample.ids.len()).sum::<usize>();
    let tokens = rows.iter().map(|row| length(row)).max().unwrap_or(0);
    let mut batch = Batch::with_capacity(rows.len(), tokens);
    for row in rows {
        let mut starts = Vec::with_capacity(row.len());
        let begin = batch.ids.len();
        for sample in row {
            starts.push(batch.ids.len() - begin);
            batch.ids.extend(&sample.ids);
            batch.targets.extend(&sample.targets);
            batch.positions.extend(0..sample.ids.len() as u32);
        }
        batch.rows += 1;
        batch.ids.resize(batch.rows * tokens, vocabulary::PAD);
        batch.targets.resize(batch.rows * tokens, IGNORE);
        let next = batch.positions.last().map_or(0, |last| last + 1);
        batch.positions.extend((next..).take(batch.ids.len() - batch.positions.len()));
        batch.starts.push(starts);
    }
    batch
}

/// The samples of each row: first fit, decreasing.
fn packed(samples: &[Sample]) -> Vec<Vec<&Sample>> {
    let mut order: Vec<&Sample> = samples.iter().collect();
    order.sort_by_key(|sample| std::cmp::Reverse(sample.ids.len()));
    let room = order.first().map_or(0, |longest| longest.ids.len()).max(ROW);
    let mut rows: Vec<(usize, Vec<&Sample>)> = Vec::new();
    for sample in order {
        let length = sample.ids.len();
        match rows.iter_mut().find(|(free, _)| *free >= length) {
            Some((free, row)) => {
                *free -= length;
                row.push(sample);
            }
            None => rows.push((room - length, vec![sample])),
        }
    }
    rows.into_iter().map(|(_, row)| row).collect()
}
