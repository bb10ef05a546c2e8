//! The settings of a run's data: the `[data]` section and what the trainer adds to it.

use std::fmt::{Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::{Error, Result};

/// Batches that may be prepared ahead: room for all of them is set aside at once.
const MOST_PREFETCH: usize = 1024;

/// What to do with a shard that cannot be opened or is not readable parquet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnBadShard {
    /// Stop with an error that names the shard.
    #[default]
    Fail,
    /// Go on without it; counted, and logged once.
    Skip,
}

impl Display for OnBadShard {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fail => "fail",
            Self::Skip => "skip",
        })
    }
}

impl FromStr for OnBadShard {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        choose(name, [Self::Fail, Self::Skip])
    }
}

/// What to do with a document that is not valid UTF-8.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnInvalidUtf8 {
    /// Stop with an error that names the row.
    #[default]
    Fail,
    /// Put U+FFFD in place of each invalid sequence; counted.
    Replace,
}

impl Display for OnInvalidUtf8 {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fail => "fail",
            Self::Replace => "replace",
        })
    }
}

impl FromStr for OnInvalidUtf8 {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        choose(name, [Self::Fail, Self::Replace])
    }
}

/// The one of two choices that is called `name`.
fn choose<T: Display>(name: &str, choices: [T; 2]) -> std::result::Result<T, String> {
    let [one, other] = &choices;
    let reason = format!("{name:?} is no choice; give {one} or {other}");
    choices.into_iter().find(|choice| choice.to_string() == name).ok_or(reason)
}

/// The `[data]` section of a run's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataConfig {
    /// Training shards: files, folders or globs; one string or a list. Required for training.
    #[serde(deserialize_with = "one_or_many")]
    pub train: Vec<String>,
    /// Validation shards, in the same form. Default: none.
    #[serde(deserialize_with = "one_or_many")]
    pub val: Vec<String>,
    /// `gpt2`, `bytes`, or the path of a `tokenizer.json`. Default: `gpt2`.
    pub tokenizer: String,
    /// Whether each document begins with the tokenizer's beginning-of-text token. Default: false.
    pub bos: bool,
    /// Whether each document ends with the tokenizer's end-of-text token. Default: true.
    pub eos: bool,
    /// The column that holds the text. Default: `text`.
    pub text_column: String,
    /// Independent streams the data is dealt into; fixed for the life of a run. Default: 8.
    pub lanes: usize,
    /// Documents that are shuffled among each other at most. 1 keeps the order inside a row group. Default: 1000.
    pub shuffle_window: usize,
    /// What to do with an unreadable shard. Default: `fail`.
    pub on_bad_shard: OnBadShard,
    /// What to do with a document that is not UTF-8. Default: `fail`.
    pub invalid_utf8: OnInvalidUtf8,
    /// Batches that are prepared ahead of their use, at most 1024. Default: 4.
    pub prefetch: usize,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            train: Vec::new(),
            val: Vec::new(),
            tokenizer: "gpt2".into(),
            bos: false,
            eos: true,
            text_column: "text".into(),
            lanes: 8,
            shuffle_window: 1000,
            on_bad_shard: OnBadShard::Fail,
            invalid_utf8: OnInvalidUtf8::Fail,
            prefetch: 4,
        }
    }
}

/// Everything that a text source needs to know.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextConfig {
    /// The `[data]` section.
    pub data: DataConfig,
    /// Seed of the data order.
    pub seed: u64,
    /// Rows of a batch, over all processes.
    pub rows: usize,
    /// Tokens of a row.
    pub tokens: usize,
    /// This process's number, below `world`.
    pub rank: usize,
    /// Processes that share the lanes; divides `rows` and `data.lanes`.
    pub world: usize,
}

impl TextConfig {
    /// The settings of a single process.
    #[must_use]
    pub fn new(data: DataConfig, seed: u64, rows: usize, tokens: usize) -> Self {
        Self { data, seed, rows, tokens, rank: 0, world: 1 }
    }

    /// Refuses settings that no source can work with.
    pub(crate) fn check(&self) -> Result<()> {
        let rule = |key, value: usize, holds: bool, reason: &str| {
            if holds {
                Ok(())
            } else {
                Err(Error::Setting { key, value: value.to_string(), reason: reason.into() })
            }
        };
        let (lanes, world) = (self.data.lanes, self.world);
        rule("data.lanes", lanes, lanes > 0, "must be at least 1")?;
        rule(
            "data.shuffle_window",
            self.data.shuffle_window,
            self.data.shuffle_window > 0,
            "must be at least 1",
        )?;
        let prefetch = self.data.prefetch;
        rule("data.prefetch", prefetch, prefetch <= MOST_PREFETCH, "must be at most 1024 batches")?;
        rule("train.rows", self.rows, self.rows > 0, "must be at least 1")?;
        rule("train.tokens", self.tokens, self.tokens > 0, "must be at least 1")?;
        rule("world", world, world > 0, "must be at least 1")?;
        rule("rank", self.rank, self.rank < world, "must be below the number of processes")?;
        rule(
            "data.lanes",
            lanes,
            lanes.is_multiple_of(world),
            "must be a multiple of the number of processes",
        )?;
        rule(
            "train.rows",
            self.rows,
            self.rows.is_multiple_of(world),
            "must be a multiple of the number of processes",
        )
    }
}

/// Reads a string or a list of strings.
fn one_or_many<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(deserializer)? {
        OneOrMany::One(one) => vec![one],
        OneOrMany::Many(many) => many,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_reads_one_path_or_many_and_no_unknown_key() {
        let read = |json: &str| serde_json::from_str::<DataConfig>(json).map_err(|error| error.to_string());
        let config =
            read(r#"{"train": "a", "val": ["b", "c"], "on_bad_shard": "skip", "invalid_utf8": "replace"}"#)
                .unwrap();
        assert_eq!((config.train, config.val), (vec!["a".into()], vec!["b".into(), "c".into()]));
        assert_eq!((config.on_bad_shard, config.invalid_utf8), (OnBadShard::Skip, OnInvalidUtf8::Replace));
        assert_eq!((config.lanes, config.shuffle_window, config.text_column.as_str()), (8, 1000, "text"));
        assert_eq!((config.bos, config.eos), (false, true));
        assert!(read(r#"{"shuffle-window": 3}"#).unwrap_err().contains("shuffle-window"));
        assert!(read(r#"{"on_bad_shard": "ignore"}"#).unwrap_err().contains("ignore"));
    }

    /// A flag takes the words that the configuration has, and shows them in its default and its error.
    #[test]
    fn choices_are_words() {
        for policy in [OnBadShard::Fail, OnBadShard::Skip] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.to_string());
        }
        for policy in [OnInvalidUtf8::Fail, OnInvalidUtf8::Replace] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
            assert_eq!(serde_json::to_value(policy).unwrap(), policy.to_string());
        }
        assert_eq!("no".parse::<OnBadShard>().unwrap_err(), "\"no\" is no choice; give fail or skip");
        assert_eq!("".parse::<OnInvalidUtf8>().unwrap_err(), "\"\" is no choice; give fail or replace");
    }

    #[test]
    fn settings_out_of_range_name_their_key() {
        let sound = TextConfig::new(DataConfig::default(), 1, 4, 8);
        assert!(sound.check().is_ok());
        let check = |key: &str, edit: &dyn Fn(&mut TextConfig)| {
            let mut config = sound.clone();
            edit(&mut config);
            assert!(config.check().unwrap_err().to_string().contains(key), "{key}");
        };
        check("data.lanes = 0", &|config| config.data.lanes = 0);
        check("data.shuffle_window", &|config| config.data.shuffle_window = 0);
        check("data.prefetch = 1000000000", &|config| config.data.prefetch = 1_000_000_000);
        check("train.rows", &|config| config.rows = 0);
        check("train.tokens", &|config| config.tokens = 0);
        check("rank = 1", &|config| config.rank = 1);
        check("data.lanes = 8", &|config| config.world = 3);
        check("train.rows = 4", &|config| config.world = 8);
    }
}
