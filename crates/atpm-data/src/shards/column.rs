//! Finds the text column and describes the others.

use std::path::Path;

use parquet::basic::{ConvertedType, LogicalType, Type};
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::ColumnDescriptor;

use crate::{ColumnReport, Error, Result};

/// The index of the leaf column `name`, which must hold one byte string a row.
///
/// Utf8, `LargeUtf8`, `Utf8View`, binary and dictionary columns are all stored as parquet byte arrays, so one test fits them.
pub(super) fn find(path: &Path, metadata: &ParquetMetaData, name: &str) -> Result<usize> {
    let columns = metadata.file_metadata().schema_descr().columns();
    let refuse = |fault: String| Error::TextColumn { path: path.to_owned(), reason: fault };
    let Some(index) = columns.iter().position(|column| column.path().string() == name) else {
        let list: Vec<String> = columns.iter().map(|column| one(column)).collect();
        return Err(refuse(format!("no column {name:?}; the file has {}", list.join(", "))));
    };
    let column = &columns[index];
    if column.max_rep_level() > 0 || !holds_text(column) {
        return Err(refuse(format!("column {} cannot hold text", one(column))));
    }
    Ok(index)
}

/// Every leaf column of a file.
pub(crate) fn describe(metadata: &ParquetMetaData) -> Vec<ColumnReport> {
    let columns = metadata.file_metadata().schema_descr().columns();
    let report = |column: &ColumnDescriptor| ColumnReport {
        name: column.path().string(),
        kind: kind(column),
        nullable: column.max_def_level() > 0,
    };
    columns.iter().map(|column| report(column)).collect()
}

fn holds_text(column: &ColumnDescriptor) -> bool {
    let logical = matches!(
        column.logical_type_ref(),
        None | Some(LogicalType::String | LogicalType::Json | LogicalType::Enum)
    );
    let converted = matches!(
        column.converted_type(),
        ConvertedType::NONE | ConvertedType::UTF8 | ConvertedType::JSON | ConvertedType::ENUM
    );
    column.physical_type() == Type::BYTE_ARRAY && logical && converted
}

fn one(column: &ColumnDescriptor) -> String {
    format!("{:?} ({})", column.path().string(), kind(column))
}

fn kind(column: &ColumnDescriptor) -> String {
    let physical = column.physical_type().to_string().to_lowercase();
    let logical = match (column.logical_type_ref(), column.converted_type()) {
        (Some(logical), _) => format!(", {logical:?}").to_lowercase(),
        (None, ConvertedType::NONE) => String::new(),
        (None, converted) => format!(", {converted}").to_lowercase(),
    };
    let list = if column.max_rep_level() > 0 { ", in a list" } else { "" };
    format!("{physical}{logical}{list}")
}
