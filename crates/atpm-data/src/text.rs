//! The training stream: endless, shuffled, packed, prefetched and resumable.

#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use crate::lane::{Lane, LaneState, Plan, Row};
use crate::prefetch::Prefetch;
use crate::shards::Shards;
use crate::{Batch, BatchSource, Counters, Dataset, Error, Result, Specials, TextConfig, Tokenizer, order};

/// A text source's place in its data, as it is stored in a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextPosition {
    /// What the order depends on; a resume with anything else is refused.
    pub dataset: Dataset,
    /// Rows of the global batches that were consumed since the run began; the next row comes from lane `row mod lanes`.
    pub row: u64,
    /// One entry for each lane of this process, ascending.
    pub lanes: Vec<LaneState>,
}

impl TextPosition {
    /// Joins the positions of all processes into one that any number of processes can resume from.
    ///
    /// # Errors
    /// When the positions are not of the same moment of the same run.
    pub fn gather(positions: &[Self]) -> Result<Self> {
        let [first, others @ ..] = positions else {
            return Err(Error::BadPosition { reason: "there is none".into() });
        };
        let mut whole = first.clone();
        for other in others {
            if other.dataset != first.dataset || other.row != first.row {
                return Err(Error::BadPosition {
                    reason: "the processes' positions differ in data or row".into(),
                });
            }
            whole.lanes.extend_from_slice(&other.lanes);
        }
        whole.lanes.sort_by_key(|state| state.lane);
        Ok(whole)
    }
}

/// The training stream over parquet shards.
///
/// Row `j` of all global batches comes from lane `j mod lanes`, counted over the whole run: a batch may hold any number of rows.
/// Process `rank` of `world` gives the rows `j ≡ rank mod world`, which are those of the lanes `≡ rank mod world`.
pub struct TextSource {
    prefetch: Prefetch,
    position: TextPosition,
    /// Rows that this process gives to a batch.
    rows: usize,
    tokens: usize,
    world: usize,
    bad_shards: u64,
    stopped: bool,
}

impl TextSource {
    /// Checks every shard, then starts to prepare batches from the beginning or from `resume`.
    ///
    /// # Errors
    /// Settings out of range, a special token that the tokenizer lacks, missing or bad shards, too little data, or a
    /// position that does not fit the data.
    pub fn open(
        config: &TextConfig,
        tokenizer: Arc<Tokenizer>,
        resume: Option<&TextPosition>,
    ) -> Result<Self> {
        config.check()?;
        let data = &config.data;
        let specials = Specials::of(data, &tokenizer)?;
        let mut shards = Shards::open("data.train", &data.train, &data.text_column, data.on_bad_shard)?;
        let digests = shards.digests(data.on_bad_shard)?;
        for (known, twin) in shards.twins(&digests) {
            let (known, twin) = (known.display(), twin.display());
            tracing::warn!(
                "data.train: {twin} has the content of {known}: its documents are read twice in an epoch"
            );
        }
        if shards.rows() < data.lanes as u64 {
            return Err(Error::TooFewDocuments { rows: shards.rows(), lanes: data.lanes });
        }
        let dataset = Dataset::of(config, &shards, digests, &tokenizer, specials);
        let lanes: Vec<usize> = (config.rank..data.lanes).step_by(config.world).collect();
        let position = match resume {
            None => {
                let lanes = lanes.iter().map(|&lane| LaneState::start(lane)).collect();
                TextPosition { dataset, row: 0, lanes }
            }
            Some(stored) => resumed(stored, dataset, &lanes, config.world)?,
        };
        let bad_shards = shards.skipped;
        let plan = Arc::new(Plan {
            units: order::units(&shards, data.lanes, data.shuffle_window),
            shards,
            tokenizer,
            specials,
            lanes: data.lanes,
            seed: Some(config.seed),
            tokens: config.tokens,
            on_bad_shard: data.on_bad_shard,
            invalid_utf8: data.invalid_utf8,
            logged: Mutex::default(),
            stop: AtomicBool::new(false),
        });
        let rows = config.rows / config.world;
        let turn = (position.row / config.world as u64 % lanes.len() as u64) as usize;
        let lanes = position.lanes.iter().map(|&state| Lane::new(Arc::clone(&plan), state)).collect();
        let prefetch = Prefetch::start(&plan, lanes, turn, data.prefetch.saturating_mul(rows))?;
        let (tokens, world) = (config.tokens, config.world);
        Ok(Self { prefetch, position, rows, tokens, world, bad_shards, stopped: false })
    }

    /// What this process's lanes have consumed so far, over the life of the run.
    pub fn counters(&self) -> Counters {
        Counters::sum(&self.position.lanes, self.bad_shards)
    }

    /// The next `count` batches, which one step of training reads. Unless all arrive, the position stays before the first.
    ///
    /// # Errors
    /// As [`BatchSource::next_batch`].
    pub fn next_batches(&mut self, count: usize) -> Result<Vec<Batch>> {
        let (row, lanes) = (self.position.row, self.position.lanes.clone());
        let batches: Result<Vec<_>> = (0..count).map(|_| self.next_batch()).collect();
        if batches.is_err() {
            (self.position.row, self.position.lanes) = (row, lanes);
        }
        batches
    }

    /// Seconds that [`BatchSource::next_batch`] waited for data since this source was opened.
    pub fn wait_seconds(&self) -> f64 {
        self.prefetch.wait_seconds()
    }
}

impl BatchSource for TextSource {
    type Position = TextPosition;
    type Error = Error;

    fn next_batch(&mut self) -> Result<Batch> {
        if self.stopped {
            return Err(Error::Stopped);
        }
        // Unless the whole batch arrives, the position stays at the last one that did.
        self.stopped = true;
        let mut batch = Batch::with_capacity(self.rows, self.tokens);
        let mut lanes = self.position.lanes.clone();
        for _ in 0..self.rows {
            let row = self.prefetch.next_row()?;
            if let Some(state) = lanes.iter_mut().find(|state| state.lane == row.after.lane) {
                *state = row.after;
            }
            batch.push(row);
        }
        self.position.lanes = lanes;
        self.position.row += (self.rows * self.world) as u64;
        self.stopped = false;
        Ok(batch)
    }

    fn position(&self) -> TextPosition {
        self.position.clone()
    }
}

/// The part of a stored position that belongs to `lanes`, after a check that it fits the data.
fn resumed(stored: &TextPosition, dataset: Dataset, lanes: &[usize], world: usize) -> Result<TextPosition> {
    let changes = stored.dataset.changes(&dataset);
    if !changes.is_empty() {
        return Err(Error::Changed { changes });
    }
    if !stored.row.is_multiple_of(world as u64) {
        let reason = format!("{} rows were consumed, which {world} processes cannot share", stored.row);
        return Err(Error::BadPosition { reason });
    }
    let find = |&lane: &usize| {
        let state = stored.lanes.iter().find(|state| state.lane == lane).copied();
        state.ok_or_else(|| Error::BadPosition { reason: format!("it has no lane {lane}") })
    };
    let lanes = lanes.iter().map(find).collect::<Result<_>>()?;
    Ok(TextPosition { dataset, row: stored.row, lanes })
}

impl Batch {
    pub(crate) fn with_capacity(rows: usize, tokens: usize) -> Self {
        let ids = || Vec::with_capacity(rows * tokens);
        let starts = Vec::with_capacity(rows);
        Self { rows: 0, tokens, ids: ids(), targets: ids(), starts, positions: ids(), target_bytes: 0 }
    }

    pub(crate) fn push(&mut self, row: Row) {
        self.rows += 1;
        self.ids.extend(row.ids);
        self.targets.extend(row.targets);
        self.positions.extend(row.positions);
        self.starts.push(row.starts);
        self.target_bytes += row.target_bytes;
    }
}
