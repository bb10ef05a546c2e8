//! From parquet shards to batches of token ids: exact, elastic, resumable in O(1).
//!
//! Plain integers, no tensors. A run's data order is a pure function of the shards, the seed and the
//! number of lanes; how many processes share the lanes does not change a single batch.

mod config;
mod counters;
mod dataset;
pub mod demo;
mod error;
mod eval;
mod files;
mod inspect;
mod lane;
mod order;
mod prefetch;
mod shards;
mod specials;
pub mod synthetic;
#[cfg(test)]
mod testing;
mod text;
mod tokenizer;

pub use config::{DataConfig, OnBadShard, OnInvalidUtf8, TextConfig};
pub use counters::Counters;
pub use dataset::{Dataset, ShardStamp};
pub use error::{Error, Result, is_users_io};
pub use eval::EvalSource;
pub use files::common_files;
pub use inspect::{ColumnReport, FileReport, Inspection, inspect};
pub use lane::{LaneCounts, LaneState};
pub use specials::Specials;
pub use text::{TextPosition, TextSource};
pub use tokenizer::{BpeOptions, BpeReport, StreamDecoder, Tokenizer, WordCache, train_bpe};

/// The target that counts for nothing: the token after it belongs to another document, or does not exist.
pub const IGNORE: u32 = u32::MAX;

/// One batch of packed rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Rows.
    pub rows: usize,
    /// Tokens of each row.
    pub tokens: usize,
    /// Input ids, `rows × tokens`, row after row.
    pub ids: Vec<u32>,
    /// The id that follows each input in its document, or [`IGNORE`].
    pub targets: Vec<u32>,
    /// For each row, the positions at which a document begins, ascending.
    pub starts: Vec<Vec<usize>>,
    /// For each input, how many tokens of its document stand before it in its row: what a model that begins each row with
    /// an empty memory has read of the document.
    pub positions: Vec<u32>,
    /// Bytes of text that the counted targets stand for (for bits per byte).
    pub target_bytes: u64,
}

/// A stream of batches that knows where it is.
pub trait BatchSource: Send {
    /// The source's place in its data, as it is stored in a checkpoint.
    type Position: serde::Serialize + serde::de::DeserializeOwned + Clone;
    /// What can go wrong.
    type Error: std::error::Error + Send + Sync + 'static;
    /// The next batch.
    ///
    /// # Errors
    /// Whatever reading, decoding or tokenizing the data can meet.
    fn next_batch(&mut self) -> Result<Batch, Self::Error>;
    /// The place right after the last batch that [`Self::next_batch`] returned, whatever was prefetched.
    fn position(&self) -> Self::Position;
}
