//! Shards: parquet files whose footers and text columns were checked before anything else happens.

mod column;
mod digest;
mod rows;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader};
use rayon::prelude::*;

pub(crate) use column::describe;
pub(crate) use rows::{RowReader, Text};

use crate::{Error, OnBadShard, Result, files};

/// One shard, ready to be read.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) path: PathBuf,
    /// Size on disk.
    pub(crate) bytes: u64,
    pub(crate) row_groups: Vec<RowGroup>,
}

/// One row group of a shard, seen through its text column.
#[derive(Debug)]
pub(crate) struct RowGroup {
    pub(crate) rows: usize,
    /// Bytes of the text column's decompressed pages.
    pub(crate) text_bytes: u64,
    chunk: ColumnChunkMetaData,
}

/// All readable shards of a list of files.
#[derive(Debug)]
pub(crate) struct Shards {
    /// Which list this is, for messages.
    pub(crate) what: &'static str,
    pub(crate) list: Vec<Shard>,
    /// Files left out as bad.
    pub(crate) skipped: u64,
}

impl Shards {
    /// Opens every file that `patterns` name, in parallel, and checks footer and text column.
    pub(crate) fn open(
        what: &'static str,
        patterns: &[String],
        text_column: &str,
        on_bad_shard: OnBadShard,
    ) -> Result<Self> {
        let files = files::expand(what, patterns)?;
        let opened: Vec<_> = files.par_iter().map(|path| Shard::open(path, text_column)).collect();
        let mut shards = Vec::with_capacity(files.len());
        let mut skipped = 0;
        for shard in opened {
            match shard {
                Ok(shard) => shards.push(shard),
                Err(error) if error.is_bad_shard() && on_bad_shard == OnBadShard::Skip => {
                    tracing::warn!("skipping a bad shard: {error}");
                    skipped += 1;
                }
                Err(error) => return Err(error),
            }
        }
        let shards = Self { what, list: shards, skipped };
        shards.check_rows()?;
        Ok(shards)
    }

    /// Refuses to go on without a row.
    fn check_rows(&self) -> Result<()> {
        let skipped = self.skipped as usize;
        if self.rows() == 0 {
            let files = self.list.len() + skipped;
            return Err(Error::NoUsableShard { what: self.what, files, skipped });
        }
        Ok(())
    }

    /// Rows of all shards.
    pub(crate) fn rows(&self) -> u64 {
        self.list.iter().map(Shard::rows).sum()
    }

    /// A digest of each shard's content, in hex; see [`digest`](mod@digest) for what it covers. A shard that cannot be read
    /// for it is a bad one.
    pub(crate) fn digests(&mut self, on_bad_shard: OnBadShard) -> Result<Vec<String>> {
        let total = self.list.iter().map(|shard| shard.bytes).sum();
        let digest = |shard: &Shard| digest::digest(&shard.path, shard.bytes, total);
        let made: Vec<_> = self.list.par_iter().map(digest).collect();
        let mut digests = Vec::with_capacity(made.len());
        let mut sound = Vec::with_capacity(made.len());
        for (shard, digest) in std::mem::take(&mut self.list).into_iter().zip(made) {
            match digest {
                Ok(digest) => {
                    digests.push(digest);
                    sound.push(shard);
                }
                Err(error) if error.is_bad_shard() && on_bad_shard == OnBadShard::Skip => {
                    tracing::warn!("skipping a bad shard: {error}");
                    self.skipped += 1;
                }
                Err(error) => return Err(error),
            }
        }
        self.list = sound;
        self.check_rows()?;
        Ok(digests)
    }

    /// Pairs of shards whose `digests` are equal: whoever copied a file trains on it twice.
    pub(crate) fn twins(&self, digests: &[String]) -> Vec<(&Path, &Path)> {
        let mut first: HashMap<&str, &Path> = HashMap::new();
        let mut twins = Vec::new();
        for (shard, digest) in self.list.iter().zip(digests) {
            match first.entry(digest) {
                Entry::Occupied(known) => twins.push((*known.get(), shard.path.as_path())),
                Entry::Vacant(place) => {
                    place.insert(&shard.path);
                }
            }
        }
        twins
    }
}

impl Shard {
    /// Reads the footer and finds the text column.
    pub(crate) fn open(path: &Path, text_column: &str) -> Result<Self> {
        let (metadata, bytes) = read_footer(path)?;
        let column = column::find(path, &metadata, text_column)?;
        let mut row_groups = Vec::with_capacity(metadata.num_row_groups());
        for (index, group) in metadata.row_groups().iter().enumerate() {
            let chunk = group
                .columns()
                .get(column)
                .ok_or_else(|| bad(path, format!("row group {index} has no column chunk {column}")))?;
            row_groups.push(guard(path, || RowGroup::check(group.num_rows(), chunk, bytes, index))?);
        }
        Ok(Self { path: path.to_owned(), bytes, row_groups })
    }

    pub(crate) fn rows(&self) -> u64 {
        self.row_groups.iter().map(|group| group.rows as u64).sum()
    }
}

impl RowGroup {
    /// Refuses sizes that a sound footer cannot hold, so that reading never starts from a broken one.
    fn check(rows: i64, chunk: &ColumnChunkMetaData, file_bytes: u64, index: usize) -> Result<Self, String> {
        let sound = rows >= 0
            && chunk.num_values() == rows
            && chunk.uncompressed_size() >= 0
            && chunk.compressed_size() >= 0
            && chunk.data_page_offset() >= 0
            && chunk.dictionary_page_offset().is_none_or(|offset| offset >= 0);
        let (start, length) = if sound { chunk.byte_range() } else { (0, 0) };
        let inside = start.checked_add(length).is_some_and(|end| end <= file_bytes);
        if !sound || !inside {
            return Err(format!("row group {index}: the footer's sizes do not fit the file"));
        }
        let rows = usize::try_from(rows).map_err(|_| format!("row group {index} has too many rows"))?;
        let text_bytes = chunk.uncompressed_size().unsigned_abs();
        Ok(Self { rows, text_bytes, chunk: chunk.clone() })
    }
}

/// The footer of a parquet file, and the file's size in bytes.
pub(crate) fn read_footer(path: &Path) -> Result<(ParquetMetaData, u64)> {
    let file = File::open(path).map_err(Error::io(path, "open"))?;
    let bytes = file.metadata().map_err(Error::io(path, "read"))?.len();
    let metadata = guard(path, || {
        ParquetMetaDataReader::new()
            .parse_and_finish(&file)
            .map_err(|error| format!("not a readable parquet file of {bytes} bytes ({error})"))
    })?;
    Ok((metadata, bytes))
}

pub(crate) fn bad(path: &Path, reason: String) -> Error {
    Error::BadShard { path: path.to_owned(), reason }
}

/// Runs a piece of the parquet reader; a broken file that makes it panic is a bad shard like any other.
fn guard<T>(path: &Path, read: impl FnOnce() -> Result<T, String>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(result) => result.map_err(|reason| bad(path, reason)),
        Err(panic) => Err(bad(path, format!("the reader gave up ({})", panic_message(&*panic)))),
    }
}

/// The text of a panic.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
