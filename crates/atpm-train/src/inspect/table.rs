//! The values as parquet: a row for each token, layer and head. docs/inspect.md describes the columns.

use std::sync::Arc;

use atpm_model::{MemoryTrace, Quantity};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use super::subject::{KINDS, Subject};

const SCHEMA: &str = "message values {
    required int32 token;
    required int32 id;
    required binary word (utf8);
    required boolean mark;
    optional binary write (utf8);
    required int32 layer;
    required int32 head;
";

/// The bytes of the file.
///
/// # Errors
/// Whatever the format's library refuses.
pub fn encode(subject: &Subject, traces: &[MemoryTrace]) -> Result<Vec<u8>> {
    let quantities = Quantity::ALL.map(|quantity| format!("    required double {};\n", quantity.name()));
    let schema = Arc::new(parse_message_type(&format!("{SCHEMA}{}}}", quantities.concat()))?);
    let properties =
        WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    columns(&mut group, subject, traces)?;
    group.close()?;
    writer.into_inner()
}

/// Where a row stands.
#[derive(Clone, Copy)]
struct Place {
    token: usize,
    layer: usize,
    head: usize,
}

fn columns(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    subject: &Subject,
    traces: &[MemoryTrace],
) -> Result<()> {
    let layers = |token| {
        let heads = move |(layer, trace): (usize, &MemoryTrace)| {
            (0..trace.heads()).map(move |head| Place { token, layer, head })
        };
        traces.iter().enumerate().flat_map(heads)
    };
    let places: Vec<Place> = (0..subject.ids.len()).flat_map(layers).collect();
    let number = |of: &dyn Fn(&Place) -> usize| -> Vec<i32> {
        places.iter().map(|place| i32::try_from(of(place)).unwrap_or(i32::MAX)).collect()
    };
    let text = |word: &str| ByteArray::from(word.as_bytes().to_vec());
    column::<Int32Type>(group, &number(&|place| place.token), None)?;
    column::<Int32Type>(group, &number(&|place| subject.ids[place.token] as usize), None)?;
    let words: Vec<_> = places.iter().map(|place| text(&subject.words[place.token])).collect();
    column::<ByteArrayType>(group, &words, None)?;
    let marks: Vec<bool> = places.iter().map(|place| subject.marks.contains(&place.token)).collect();
    column::<BoolType>(group, &marks, None)?;
    let name = |place: &Place| {
        let kind = subject.writes[place.token]?;
        KINDS.iter().find(|(known, ..)| *known == kind).map(|(_, _, name)| text(name))
    };
    let writes: Vec<Option<ByteArray>> = places.iter().map(name).collect();
    let present: Vec<i16> = writes.iter().map(|write| i16::from(write.is_some())).collect();
    column::<ByteArrayType>(group, &writes.into_iter().flatten().collect::<Vec<_>>(), Some(&present))?;
    column::<Int32Type>(group, &number(&|place| place.layer), None)?;
    column::<Int32Type>(group, &number(&|place| place.head), None)?;
    for quantity in Quantity::ALL {
        let value = |&Place { token, layer, head }: &Place| traces[layer].at(quantity, token, head);
        column::<DoubleType>(group, &places.iter().map(value).collect::<Vec<_>>(), None)?;
    }
    Ok(())
}

/// The next column; `present` has a 1 for each row with a value, in an optional one.
fn column<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[T::T],
    present: Option<&[i16]>,
) -> Result<()> {
    if let Some(mut column) = group.next_column()? {
        column.typed::<T>().write_batch(values, present, None)?;
        column.close()?;
    }
    Ok(())
}
