//! What the order of the data depends on, as a checkpoint records it.

use serde::{Deserialize, Serialize};

use crate::shards::Shards;
use crate::{Specials, TextConfig, Tokenizer};

/// The fingerprint of a data set and of the settings that decide its order and its ids.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dataset {
    /// The shards, in reading order.
    pub shards: Vec<ShardStamp>,
    /// The column that holds the text.
    pub text_column: String,
    /// Digest of the tokenizer.
    pub tokenizer: String,
    /// The end-of-text id.
    pub eos_id: u32,
    /// The id that each document begins with, if any (`data.bos`). Positions from before that key have none.
    #[serde(default)]
    pub bos_id: Option<u32>,
    /// Whether each document ends with the end-of-text id (`data.eos`). It did before there was that key.
    #[serde(default = "always")]
    pub ends_with_eos: bool,
    /// Seed of the data order.
    pub seed: u64,
    /// Lanes.
    pub lanes: usize,
    /// Documents that are shuffled among each other at most.
    pub shuffle_window: usize,
}

/// What a shard is known by. Its folder is not part of it, so data may move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardStamp {
    /// File name.
    pub name: String,
    /// Size on disk.
    pub bytes: u64,
    /// Rows of all row groups.
    pub rows: u64,
    /// Digest of the content: of all of it in data sets up to 1 GiB, of samples and the footer in larger ones.
    pub digest: String,
}

impl Dataset {
    /// Takes the digests of `shards`, in their order.
    pub(crate) fn of(
        config: &TextConfig,
        shards: &Shards,
        digests: Vec<String>,
        tokenizer: &Tokenizer,
        specials: Specials,
    ) -> Self {
        let stamp = |(shard, digest): (&crate::shards::Shard, String)| ShardStamp {
            name: shard.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            bytes: shard.bytes,
            rows: shard.rows(),
            digest,
        };
        Self {
            shards: shards.list.iter().zip(digests).map(stamp).collect(),
            text_column: config.data.text_column.clone(),
            tokenizer: tokenizer.fingerprint().to_owned(),
            eos_id: tokenizer.eos_id(),
            bos_id: specials.bos,
            ends_with_eos: specials.eos.is_some(),
            seed: config.seed,
            lanes: config.data.lanes,
            shuffle_window: config.data.shuffle_window,
        }
    }

    /// What differs in `now`, one entry for each difference.
    pub(crate) fn changes(&self, now: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        let mut compare = |name: &str, was: String, is: String| {
            if was != is {
                changes.push(format!("{name} was {was} and is {is}"));
            }
        };
        compare("data.text_column", self.text_column.clone(), now.text_column.clone());
        compare("the tokenizer's digest", self.tokenizer.clone(), now.tokenizer.clone());
        compare("the end-of-text id", self.eos_id.to_string(), now.eos_id.to_string());
        let begins = |bos_id: Option<u32>| bos_id.map_or("false".into(), |id| format!("true (id {id})"));
        compare("data.bos", begins(self.bos_id), begins(now.bos_id));
        compare("data.eos", self.ends_with_eos.to_string(), now.ends_with_eos.to_string());
        compare("seed", self.seed.to_string(), now.seed.to_string());
        compare("data.lanes", self.lanes.to_string(), now.lanes.to_string());
        compare("data.shuffle_window", self.shuffle_window.to_string(), now.shuffle_window.to_string());
        compare("the number of shards", self.shards.len().to_string(), now.shards.len().to_string());
        let differing = self.shards.iter().zip(&now.shards).find(|(was, is)| was != is);
        if let Some((was, is)) = differing {
            compare("a shard", was.describe(), is.describe());
        }
        changes
    }
}

fn always() -> bool {
    true
}

impl ShardStamp {
    fn describe(&self) -> String {
        let short = self.digest.get(..8).unwrap_or_default();
        format!("{} ({} bytes, {} rows, content {short}…)", self.name, self.bytes, self.rows)
    }
}
