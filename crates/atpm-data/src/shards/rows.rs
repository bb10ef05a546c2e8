//! Reads the text column of a row group, a few rows at a time and nothing else.

use std::borrow::Cow;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use parquet::column::reader::{ColumnReaderImpl, get_typed_column_reader};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::serialized_reader::SerializedPageReader;

use super::{Shard, guard};
use crate::{Error, OnInvalidUtf8, Result};

/// The text of one row: shared bytes of a decompressed page, or null.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    /// The row in its row group.
    pub(crate) row: usize,
    bytes: Option<ByteArray>,
}

/// Reads rows in order.
///
/// Values stay where the page was decompressed, so no buffer of all texts exists whose 32-bit offsets could overflow.
pub(crate) struct RowReader {
    path: PathBuf,
    row_group: usize,
    /// Rows of the row group.
    rows: usize,
    next: usize,
    max_level: i16,
    column: ColumnReaderImpl<ByteArrayType>,
    levels: Vec<i16>,
    values: Vec<ByteArray>,
}

impl RowReader {
    /// Opens a row group and stands before row `first`; pages before it are skipped undecoded.
    pub(crate) fn open(shard: &Shard, row_group: usize, first: usize) -> Result<Self> {
        let path = shard.path.clone();
        let group = &shard.row_groups[row_group];
        let file = File::open(&path).map_err(Error::io(&path, "open"))?;
        let column = guard(&path, || {
            let descriptor = group.chunk.column_descr_ptr();
            let pages = SerializedPageReader::new(Arc::new(file), &group.chunk, group.rows, None)
                .map_err(|error| format!("row group {row_group}: {error}"))?;
            let reader = parquet::column::reader::get_column_reader(descriptor, Box::new(pages));
            let mut column = get_typed_column_reader::<ByteArrayType>(reader);
            match column.skip_records(first) {
                Ok(skipped) if skipped == first => Ok(column),
                Ok(skipped) => {
                    Err(format!("row group {row_group} ends after {skipped} of {} rows", group.rows))
                }
                Err(error) => Err(format!("row group {row_group}, before row {first}: {error}")),
            }
        })?;
        let max_level = group.chunk.column_descr().max_def_level();
        let (levels, values) = (Vec::new(), Vec::new());
        Ok(Self { path, row_group, rows: group.rows, next: first, max_level, column, levels, values })
    }

    /// The next `count` rows, or those that are left if fewer are.
    ///
    /// # Errors
    /// A page that cannot be read, or a row group that holds fewer rows than its metadata says.
    pub(crate) fn read(&mut self, count: usize) -> Result<Vec<Text>> {
        let count = count.min(self.rows - self.next);
        let Self { path, row_group, next, max_level, column, levels, values, .. } = self;
        levels.clear();
        values.clear();
        guard(path, || {
            let mut read = 0;
            while read < count {
                let (records, ..) = column
                    .read_records(count - read, Some(levels), None, values)
                    .map_err(|error| format!("row group {row_group}, after row {}: {error}", *next + read))?;
                if records == 0 {
                    let found = *next + read;
                    return Err(format!(
                        "row group {row_group} ends after {found} rows, its metadata says more"
                    ));
                }
                read += records;
            }
            let present = if *max_level == 0 { count } else { filled(levels, *max_level) };
            if values.len() != present || (*max_level > 0 && levels.len() != count) {
                return Err(format!("row group {row_group}: values and null marks do not add up"));
            }
            Ok(())
        })?;
        let mut values = values.drain(..);
        let text = |index: usize| {
            let present = *max_level == 0 || levels[index] == *max_level;
            Text { row: *next + index, bytes: if present { values.next() } else { None } }
        };
        let texts = (0..count).map(text).collect();
        self.next += count;
        Ok(texts)
    }
}

fn filled(levels: &[i16], max_level: i16) -> usize {
    levels.iter().filter(|&&level| level == max_level).count()
}

impl Text {
    /// The raw bytes, or `None` for null.
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        self.bytes.as_ref().map(ByteArray::data)
    }

    /// The text, or `None` for null; checked, and repaired if `policy` says so.
    pub(crate) fn decode(
        &self,
        shard: &Shard,
        row_group: usize,
        policy: OnInvalidUtf8,
    ) -> Result<Option<Cow<'_, str>>> {
        let Some(bytes) = self.bytes() else { return Ok(None) };
        match (std::str::from_utf8(bytes), policy) {
            (Ok(text), _) => Ok(Some(Cow::Borrowed(text))),
            (Err(_), OnInvalidUtf8::Replace) => {
                Ok(Some(Cow::Owned(String::from_utf8_lossy(bytes).into_owned())))
            }
            (Err(_), OnInvalidUtf8::Fail) => {
                Err(Error::InvalidUtf8 { path: shard.path.clone(), row_group, row: self.row })
            }
        }
    }

    /// The error of a tokenizer that refuses this text, with the text's place.
    pub(crate) fn refused(&self, shard: &Shard, row_group: usize, error: &Error) -> Error {
        Error::Document { path: shard.path.clone(), row_group, row: self.row, reason: error.to_string() }
    }
}
