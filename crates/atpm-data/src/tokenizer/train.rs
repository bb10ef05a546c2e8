//! Byte-level BPE from the text of shards.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::tokenizer::Trainer;

use super::bpe::Bpe;
use super::json::{self, ByteChars, char_of};
use super::words::words;
use crate::shards::{RowGroup, RowReader, Shards};
use crate::{Error, OnBadShard, OnInvalidUtf8, Result};

/// Documents that are read at once.
const BATCH: usize = 64;

/// How to train a byte-level BPE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BpeOptions {
    /// Ids in all: 256 bytes, the merges, and end-of-text as the last one.
    pub vocab_size: usize,
    /// The column that holds the text.
    pub text_column: String,
    /// Pairs seen less often are not merged.
    pub min_frequency: u64,
    /// Read about this much text at most, in bytes, spread evenly over all row groups; 0 reads all. The library counts
    /// pairs in 32 bits, so that more than 2 GiB may give a worse tokenizer.
    pub max_bytes: u64,
    /// What to do with an unreadable shard.
    pub on_bad_shard: OnBadShard,
    /// What to do with a document that is not UTF-8.
    pub invalid_utf8: OnInvalidUtf8,
}

impl Default for BpeOptions {
    fn default() -> Self {
        Self {
            vocab_size: 8192,
            text_column: "text".into(),
            min_frequency: 2,
            max_bytes: 1_000_000_000,
            on_bad_shard: OnBadShard::Fail,
            invalid_utf8: OnInvalidUtf8::Fail,
        }
    }
}

/// What [`train_bpe`] made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BpeReport {
    /// The file that was written.
    pub path: PathBuf,
    /// Ids in all; fewer than asked for when the text has no more pairs to merge.
    pub vocab_size: usize,
    /// Documents that were read.
    pub documents: u64,
    /// Bytes of text that were read.
    pub text_bytes: u64,
}

/// Trains on `files` (files, folders, globs) and writes a `tokenizer.json` to `output`; the same file every time.
///
/// # Errors
/// When no file matches, a shard is bad, the size is below 257, or the file cannot be written.
pub fn train_bpe(files: &[String], output: &Path, options: &BpeOptions) -> Result<BpeReport> {
    if options.vocab_size < 257 {
        let reason = "must be at least 257: 256 bytes and end-of-text".into();
        return Err(Error::Setting { key: "vocab_size", value: options.vocab_size.to_string(), reason });
    }
    let shards = Shards::open("training text", files, &options.text_column, options.on_bad_shard)?;
    let mut texts = Texts::new(&shards, options);
    let fault = |reason: String| Error::Tokenizer { name: output.display().to_string(), reason };
    let mut trainer = BpeTrainer::builder()
        .vocab_size(options.vocab_size - 1)
        .min_frequency(options.min_frequency)
        .initial_alphabet((0..=u8::MAX).map(char_of).collect())
        .show_progress(false)
        .build();
    let split = |text: &str| Ok(words(text).map(|word| word.bytes().map(char_of).collect()).collect());
    trainer.feed(&mut texts, split).map_err(|error| fault(error.to_string()))?;
    if let Some(error) = texts.error.take() {
        return Err(error);
    }
    if texts.documents == 0 {
        let bad = texts.bad_row_groups;
        let detail = format!("every row is null or empty, or in one of {bad} unreadable row groups");
        return Err(Error::NoDocuments { what: shards.what, detail });
    }
    texts.log();
    let mut model = BPE::default();
    trainer.train(&mut model).map_err(|error| fault(error.to_string()))?;
    let model = serde_json::to_value(&model).map_err(|error| fault(error.to_string()))?;
    let (bpe, eos_id) = tables(&model).map_err(fault)?;
    std::fs::write(output, json::write(&bpe, eos_id)).map_err(Error::io(output, "write"))?;
    Ok(BpeReport {
        path: output.to_owned(),
        vocab_size: eos_id as usize + 1,
        documents: texts.documents,
        text_bytes: texts.text_bytes,
    })
}

/// The tables of a trained model, with an id for end-of-text after the last one.
fn tables(model: &Value) -> Result<(Bpe, u32), String> {
    let vocab = model["vocab"].as_object().ok_or("the trained model has no vocabulary")?;
    let chars = ByteChars::new();
    let mut pieces = vec![Box::default(); vocab.len() + 1];
    for (entry, id) in vocab {
        let id = id.as_u64().and_then(|id| usize::try_from(id).ok()).filter(|&id| id < vocab.len());
        pieces[id.ok_or("the trained model's ids have gaps")?] =
            chars.bytes(entry).ok_or("an entry is not byte-level")?;
    }
    let id = |entry: &Value| vocab.get(entry.as_str()?)?.as_u64().and_then(|id| u32::try_from(id).ok());
    let pair = |merge: &Value| id(&merge[0]).zip(id(&merge[1]));
    let merges = model["merges"].as_array().ok_or("the trained model has no merges")?;
    let pairs =
        merges.iter().map(pair).collect::<Option<Vec<_>>>().ok_or("a merge is not a pair of entries")?;
    Ok((Bpe::new(pieces, &pairs)?, vocab.len() as u32))
}

/// Pairs of a text of this size may be more than the library's 32 bits count.
const COUNTABLE: u64 = 1 << 31;

/// The documents of shards, in order; stops at the first error and keeps it.
pub(super) struct Texts<'a> {
    shards: &'a Shards,
    options: &'a BpeOptions,
    /// The row group to open next: shard and index.
    next: (usize, usize),
    reader: Option<RowReader>,
    ready: std::collections::VecDeque<String>,
    documents: u64,
    text_bytes: u64,
    /// Bytes of text of all row groups, by their metadata.
    all_bytes: u64,
    /// Bytes of text of the row groups before `next`, by their metadata.
    passed_bytes: u64,
    /// Row groups that were left before their end because enough was read.
    cut: u64,
    bad_row_groups: u64,
    pub(super) error: Option<Error>,
}

impl<'a> Texts<'a> {
    pub(super) fn new(shards: &'a Shards, options: &'a BpeOptions) -> Self {
        let groups = shards.list.iter().flat_map(|shard| &shard.row_groups);
        Self {
            shards,
            options,
            next: (0, 0),
            reader: None,
            ready: std::collections::VecDeque::new(),
            documents: 0,
            text_bytes: 0,
            all_bytes: groups.map(|group| group.text_bytes).sum(),
            passed_bytes: 0,
            cut: 0,
            bad_row_groups: 0,
            error: None,
        }
    }

    /// Reads some documents more; false when there are none.
    fn fill(&mut self) -> Result<bool> {
        let (shard_index, row_group) = self.next;
        let Some(shard) = self.shards.list.get(shard_index) else { return Ok(false) };
        if row_group >= shard.row_groups.len() {
            self.next = (shard_index + 1, 0);
            return Ok(true);
        }
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => RowReader::open(shard, row_group, 0)?,
        };
        let texts = reader.read(BATCH)?;
        if texts.is_empty() {
            self.pass();
            return Ok(true);
        }
        for text in &texts {
            if let Some(text) = text.decode(shard, row_group, self.options.invalid_utf8)?
                && !text.is_empty()
            {
                self.ready.push_back(text.into_owned());
            }
        }
        self.reader = Some(reader);
        Ok(true)
    }

    /// Whether the current row group has given its share. All have one of `max_bytes`, so that no part of the data alone
    /// decides the words.
    fn enough(&self) -> bool {
        let most = self.options.max_bytes;
        let Some(group) = self.group().filter(|_| most > 0) else { return false };
        let share = if self.all_bytes > most {
            let passed = u128::from(self.passed_bytes + group.text_bytes);
            u128::from(most) * passed / u128::from(self.all_bytes)
        } else {
            u128::from(most)
        };
        u128::from(self.text_bytes) >= share
    }

    /// The current row group; none at the end of a shard.
    fn group(&self) -> Option<&'a RowGroup> {
        let (shard, row_group) = self.next;
        self.shards.list.get(shard)?.row_groups.get(row_group)
    }

    /// Goes on to the next row group.
    fn pass(&mut self) {
        self.passed_bytes += self.group().map_or(0, |group| group.text_bytes);
        self.reader = None;
        self.ready.clear();
        self.next.1 += 1;
    }

    /// Says how much was read, where it was not all, or more than can be counted.
    fn log(&self) {
        if self.cut > 0 {
            tracing::info!(
                "{}: read {} of about {} bytes of text, evenly from all row groups (at most {}; tokenizer train \
                 --max-bytes sets it)",
                self.shards.what,
                self.text_bytes,
                self.all_bytes,
                self.options.max_bytes
            );
        }
        if self.text_bytes >= COUNTABLE {
            tracing::warn!(
                "{}: {} bytes of text are more than the trainer counts exactly; read less (--max-bytes)",
                self.shards.what,
                self.text_bytes
            );
        }
    }
}

impl Iterator for Texts<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        loop {
            if self.error.is_some() {
                return None;
            }
            if self.enough() {
                self.cut += 1;
                self.pass();
                continue;
            }
            if let Some(text) = self.ready.pop_front() {
                self.documents += 1;
                self.text_bytes += text.len() as u64;
                return Some(text);
            }
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) if error.is_bad_shard() && self.options.on_bad_shard == OnBadShard::Skip => {
                    tracing::warn!("skipping the rest of a bad row group: {error}");
                    self.bad_row_groups += 1;
                    self.pass();
                }
                Err(error) => self.error = Some(error),
            }
        }
    }
}
