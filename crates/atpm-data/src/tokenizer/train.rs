//! Byte-level BPE from the text of shards.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::tokenizer::Trainer;

use super::bpe::Bpe;
use super::json::{self, ByteChars, char_of};
use super::words::words;
use crate::shards::{RowReader, Shards};
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
    /// Read at most this much text, in bytes; 0 reads all.
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
            max_bytes: 0,
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
    if let Some(error) = texts.error {
        return Err(error);
    }
    if texts.documents == 0 {
        return Err(Error::NoDocuments { what: shards.what, detail: "every row is null or empty".into() });
    }
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

/// The documents of shards, in order; stops at the first error and keeps it.
struct Texts<'a> {
    shards: &'a Shards,
    options: &'a BpeOptions,
    /// The row group to open next: shard and index.
    next: (usize, usize),
    reader: Option<RowReader>,
    ready: std::collections::VecDeque<String>,
    documents: u64,
    text_bytes: u64,
    error: Option<Error>,
}

impl<'a> Texts<'a> {
    fn new(shards: &'a Shards, options: &'a BpeOptions) -> Self {
        let ready = std::collections::VecDeque::new();
        Self { shards, options, next: (0, 0), reader: None, ready, documents: 0, text_bytes: 0, error: None }
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
            self.next = (shard_index, row_group + 1);
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
}

impl Iterator for Texts<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        let enough = self.options.max_bytes > 0 && self.text_bytes >= self.options.max_bytes;
        while self.ready.is_empty() && !enough && self.error.is_none() {
            match self.fill() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error @ Error::BadShard { .. }) if self.options.on_bad_shard == OnBadShard::Skip => {
                    tracing::warn!("skipping the rest of a bad row group: {error}");
                    self.next.1 += 1;
                }
                Err(error) => self.error = Some(error),
            }
        }
        let text = if enough { None } else { self.ready.pop_front() }?;
        self.documents += 1;
        self.text_bytes += text.len() as u64;
        Some(text)
    }
}
