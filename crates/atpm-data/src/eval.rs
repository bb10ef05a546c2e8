//! One pass over the validation shards, the same at every call.

use std::sync::Arc;

use crate::{Batch, Counters, Result, TextConfig, Tokenizer};

/// One pass over `data.val`, in file order and unshuffled.
pub struct EvalSource {
    counters: Counters,
}

impl EvalSource {
    /// Checks every validation shard and stands before the first document.
    ///
    /// Batches hold `config.rows` rows of `config.tokens` tokens; the last batch may hold fewer rows.
    ///
    /// # Errors
    /// Settings out of range, or missing or bad shards.
    pub fn open(_config: &TextConfig, _tokenizer: Arc<Tokenizer>) -> Result<Self> {
        Ok(Self { counters: Counters::default() })
    }

    /// The next batch, or `None` after the last one.
    ///
    /// The last row is filled up with end-of-text inputs whose targets are [`crate::IGNORE`].
    ///
    /// # Errors
    /// Whatever reading, decoding or tokenizing the data can meet.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        Ok(None)
    }

    /// What this pass has read so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }
}
