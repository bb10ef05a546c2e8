//! What a source has read so far.

use serde::{Deserialize, Serialize};

use crate::lane::LaneState;

/// Counts of consumed documents and tokens; `kept + empty + null` is the number of rows that were read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Documents with at least one token.
    pub kept: u64,
    /// Documents without a byte, or without a token.
    pub empty: u64,
    /// Rows whose text is null.
    pub null: u64,
    /// Kept documents in which invalid UTF-8 was replaced.
    pub invalid: u64,
    /// Input tokens, end-of-text included.
    pub tokens: u64,
    /// Shards left out as unreadable when the source was opened.
    pub bad_shards: u64,
    /// Row groups left unfinished because a page could not be read.
    pub bad_row_groups: u64,
    /// Complete passes over the data: the smallest of all lanes.
    pub epoch: u64,
}

impl Counters {
    /// The sum over lanes.
    pub(crate) fn sum(lanes: &[LaneState], bad_shards: u64) -> Self {
        let epoch = lanes.iter().map(|state| state.epoch).min().unwrap_or(0);
        let mut sum = Self { bad_shards, epoch, ..Self::default() };
        for LaneState { counts, .. } in lanes {
            sum.kept += counts.kept;
            sum.empty += counts.empty;
            sum.null += counts.null;
            sum.invalid += counts.invalid;
            sum.tokens += counts.tokens;
            sum.bad_row_groups += counts.bad_row_groups;
        }
        sum
    }
}
