//! One pass over the validation shards, the same at every call.

#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use crate::lane::{Lane, LaneCounts, LaneState, Plan};
use crate::shards::Shards;
use crate::{Batch, Counters, Error, Result, Specials, TextConfig, Tokenizer, WordCache, order};

/// One pass over `data.val`, in file order and unshuffled.
pub struct EvalSource {
    lane: Lane,
    words: WordCache,
    state: LaneState,
    rows: usize,
    tokens: usize,
    bad_shards: u64,
}

impl EvalSource {
    /// Checks every validation shard and stands before the first document.
    ///
    /// Batches hold `config.rows` rows of `config.tokens` tokens; the last batch may hold fewer rows.
    ///
    /// # Errors
    /// Settings out of range, missing or bad shards, or a special token that the tokenizer lacks.
    pub fn open(config: &TextConfig, tokenizer: Arc<Tokenizer>) -> Result<Self> {
        config.check()?;
        let data = &config.data;
        let specials = Specials::of(data, &tokenizer)?;
        let shards = Shards::open("data.val", &data.val, &data.text_column, data.on_bad_shard)?;
        let bad_shards = shards.skipped;
        let plan = Plan {
            units: order::units(&shards, 1, data.shuffle_window),
            shards,
            tokenizer,
            specials,
            lanes: 1,
            seed: None,
            tokens: config.tokens,
            on_bad_shard: data.on_bad_shard,
            invalid_utf8: data.invalid_utf8,
            logged: Mutex::default(),
            stop: AtomicBool::new(false),
        };
        let state = LaneState::start(0);
        let lane = Lane::new(Arc::new(plan), state);
        let words = WordCache::default();
        Ok(Self { lane, words, state, rows: config.rows, tokens: config.tokens, bad_shards })
    }

    /// The next batch, or `None` after the last one.
    ///
    /// The last row is filled up with end-of-text inputs whose targets are [`crate::IGNORE`].
    ///
    /// # Errors
    /// Whatever reading, decoding or tokenizing the data can meet; also when the whole pass has no usable document.
    pub fn next_batch(&mut self) -> Result<Option<Batch>> {
        let mut batch = Batch::with_capacity(self.rows, self.tokens);
        while batch.rows < self.rows {
            let Some(row) = self.lane.next_row(&mut self.words)? else {
                // Rows without a token may follow the last full row; they are read now and counted.
                self.state = self.lane.state();
                break;
            };
            self.state = row.after;
            batch.push(row);
        }
        if self.state.counts.kept == 0 {
            let LaneCounts { null, empty, bad_row_groups, .. } = self.state.counts;
            let rows = self.lane.rows();
            let detail = format!(
                "of {rows} rows {null} are null and {empty} empty; {bad_row_groups} row groups are unreadable"
            );
            return Err(Error::NoDocuments { what: "data.val", detail });
        }
        Ok((batch.rows > 0).then_some(batch))
    }

    /// What this pass has read so far; everything once [`Self::next_batch`] gave `None`.
    pub fn counters(&self) -> Counters {
        Counters::sum(&[self.state], self.bad_shards)
    }
}
