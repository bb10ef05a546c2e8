//! The training stream: endless, shuffled, packed, prefetched and resumable.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Batch, BatchSource, Counters, Error, Result, TextConfig, Tokenizer};

/// A text source's place in its data, as it is stored in a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextPosition {
    /// Rows of the global batches that were consumed since the run began.
    pub row: u64,
}

/// The training stream over parquet shards.
pub struct TextSource {
    position: TextPosition,
    counters: Counters,
    wait_seconds: f64,
}

impl TextSource {
    /// Checks every shard, then starts to prepare batches from the beginning or from `resume`.
    ///
    /// # Errors
    /// Settings out of range, missing or bad shards, too little data, or a position that does not fit the data.
    pub fn open(
        _config: &TextConfig,
        _tokenizer: Arc<Tokenizer>,
        resume: Option<&TextPosition>,
    ) -> Result<Self> {
        let position = resume.cloned().unwrap_or(TextPosition { row: 0 });
        Ok(Self { position, counters: Counters::default(), wait_seconds: 0.0 })
    }

    /// What was read so far, over the life of the run.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Seconds that [`BatchSource::next_batch`] waited for data since this source was opened.
    pub fn wait_seconds(&self) -> f64 {
        self.wait_seconds
    }
}

impl BatchSource for TextSource {
    type Position = TextPosition;
    type Error = Error;

    fn next_batch(&mut self) -> Result<Batch> {
        Err(Error::Stopped)
    }

    fn position(&self) -> TextPosition {
        self.position.clone()
    }
}
