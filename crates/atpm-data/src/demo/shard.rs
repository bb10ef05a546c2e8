//! Writes texts as a parquet file with FineWeb's columns.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::{Error, Result};

const SCHEMA: &str = "message schema {
    optional binary text (utf8);
    optional binary id (utf8);
    optional binary dump (utf8);
    optional binary url (utf8);
    optional binary date (utf8);
    optional binary file_path (utf8);
    optional binary language (utf8);
    optional double language_score;
    optional int64 token_count;
}";

/// Writes `texts`, `row_group` of them to a row group.
pub(super) fn write(
    path: &Path,
    split: &str,
    shard: usize,
    texts: &[String],
    row_group: usize,
) -> Result<()> {
    let file = File::create(path).map_err(Error::io(path, "create"))?;
    let fault = |error: ParquetError| Error::io(path, "write")(std::io::Error::other(error));
    let properties = WriterProperties::builder()
        .set_created_by("atpm demo data".into())
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .build();
    let schema = Arc::new(parse_message_type(SCHEMA).map_err(fault)?);
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(fault)?;
    for (index, group) in texts.chunks(row_group).enumerate() {
        let first = index * row_group;
        let place = |row: usize| format!("{split}-{shard:05}-{:06}", first + row);
        let mut group_writer = writer.next_row_group().map_err(fault)?;
        columns(&mut group_writer, group, &place).map_err(fault)?;
        group_writer.close().map_err(fault)?;
    }
    writer.close().map_err(fault)?;
    Ok(())
}

/// Writes the columns of one row group; `place` names a row.
fn columns(
    writer: &mut SerializedRowGroupWriter<'_, File>,
    texts: &[String],
    place: &dyn Fn(usize) -> String,
) -> std::result::Result<(), ParquetError> {
    let rows = 0..texts.len();
    strings(writer, texts.iter().cloned())?;
    strings(writer, rows.clone().map(place))?;
    strings(writer, rows.clone().map(|_| "demo".into()))?;
    strings(writer, rows.clone().map(|row| format!("https://demo.invalid/{}", place(row))))?;
    strings(writer, rows.clone().map(|_| "2024-01-01T00:00:00Z".into()))?;
    strings(writer, rows.clone().map(|row| format!("demo/{}.txt", place(row))))?;
    strings(writer, rows.map(|_| "en".into()))?;
    let levels = vec![1; texts.len()];
    if let Some(mut column) = writer.next_column()? {
        column.typed::<DoubleType>().write_batch(&vec![1.0; texts.len()], Some(&levels), None)?;
        column.close()?;
    }
    if let Some(mut column) = writer.next_column()? {
        // FineWeb counts GPT-2 tokens here; four bytes a token is near enough for a column that nothing reads.
        let counts: Vec<i64> =
            texts.iter().map(|text| i64::try_from(text.len() / 4).unwrap_or(i64::MAX)).collect();
        column.typed::<Int64Type>().write_batch(&counts, Some(&levels), None)?;
        column.close()?;
    }
    Ok(())
}

fn strings(
    writer: &mut SerializedRowGroupWriter<'_, File>,
    values: impl Iterator<Item = String>,
) -> std::result::Result<(), ParquetError> {
    let values: Vec<ByteArray> = values.map(|value| ByteArray::from(value.into_bytes())).collect();
    if let Some(mut column) = writer.next_column()? {
        column.typed::<ByteArrayType>().write_batch(&values, Some(&vec![1; values.len()]), None)?;
        column.close()?;
    }
    Ok(())
}
