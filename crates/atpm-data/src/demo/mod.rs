//! Deterministic demo shards: generated English in which facts are stated, kept, revised and overwritten.

mod shard;
mod story;
#[cfg(test)]
mod tests;
mod words;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Sizes of the demo data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DemoOptions {
    /// Seed of the text.
    pub seed: u64,
    /// Bytes of training text, about.
    pub train_bytes: usize,
    /// Bytes of validation text, about.
    pub val_bytes: usize,
    /// Training shards.
    pub shards: usize,
    /// Documents of a row group.
    pub row_group: usize,
}

impl Default for DemoOptions {
    fn default() -> Self {
        Self { seed: 1, train_bytes: 3_000_000, val_bytes: 200_000, shards: 2, row_group: 256 }
    }
}

/// What [`write()`] made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DemoReport {
    /// Training shards.
    pub train: Vec<PathBuf>,
    /// Validation shards.
    pub val: Vec<PathBuf>,
    /// Documents in all of them.
    pub documents: u64,
    /// Bytes of text in all of them.
    pub text_bytes: u64,
}

/// The two halves of the data; each has its own stories.
#[derive(Clone, Copy)]
enum Split {
    Train,
    Val,
}

impl Split {
    fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Val => "val",
        }
    }
}

/// Writes `train_*.parquet` and `val_*.parquet` into `dir`, made if missing; the same bytes every time.
///
/// The shards have FineWeb's columns.
///
/// # Errors
/// When a size is zero or a file cannot be written.
pub fn write(dir: &Path, options: &DemoOptions) -> Result<DemoReport> {
    let sizes = [
        ("train_bytes", options.train_bytes),
        ("val_bytes", options.val_bytes),
        ("shards", options.shards),
        ("row_group", options.row_group),
    ];
    if let Some((key, value)) = sizes.into_iter().find(|&(_, value)| value == 0) {
        return Err(Error::Setting { key, value: value.to_string(), reason: "must be at least 1".into() });
    }
    std::fs::create_dir_all(dir).map_err(Error::io(dir, "create"))?;
    let mut report = DemoReport { train: Vec::new(), val: Vec::new(), documents: 0, text_bytes: 0 };
    for index in 0..options.shards {
        let bytes = options.train_bytes / options.shards;
        let path = one(dir, options, Split::Train, index, bytes, &mut report)?;
        report.train.push(path);
    }
    let path = one(dir, options, Split::Val, 0, options.val_bytes, &mut report)?;
    report.val.push(path);
    Ok(report)
}

/// Writes one shard of about `bytes` of text.
fn one(
    dir: &Path,
    options: &DemoOptions,
    split: Split,
    index: usize,
    bytes: usize,
    report: &mut DemoReport,
) -> Result<PathBuf> {
    let path = dir.join(format!("{}_{index:05}.parquet", split.name()));
    let mut texts = Vec::new();
    let mut written = 0;
    while written < bytes {
        let key = [options.seed, split as u64, index as u64, texts.len() as u64];
        let text = story::write(&key);
        written += text.len();
        texts.push(text);
    }
    report.documents += texts.len() as u64;
    report.text_bytes += written as u64;
    shard::write(&path, split.name(), index, &texts, options.row_group)?;
    Ok(path)
}
