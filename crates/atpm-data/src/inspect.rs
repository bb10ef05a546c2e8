//! A report on shards: schema, sizes, tokens and problems.

#[cfg(test)]
mod tests;

use std::path::PathBuf;

use rayon::prelude::*;
use serde::Serialize;

use crate::shards::{self, RowReader, Shard};
use crate::{OnInvalidUtf8, Result, Tokenizer, WordCache, files};

/// Rows that are read at once.
const BATCH: usize = 32;
/// Problems of one kind that are listed one by one.
const LISTED: usize = 20;

/// What [`inspect`] found.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Inspection {
    /// One report for each file, in reading order.
    pub files: Vec<FileReport>,
    /// Columns of the first readable file.
    pub schema: Vec<ColumnReport>,
    /// The column that was read.
    pub text_column: String,
    /// The tokenizer that was used.
    pub tokenizer: String,
    /// Row groups of all readable shards.
    pub row_groups: u64,
    /// Rows of all readable shards.
    pub rows: u64,
    /// Documents with at least one token.
    pub documents: u64,
    /// Tokens of these documents, end-of-text not counted.
    pub tokens: u64,
    /// Bytes of text.
    pub text_bytes: u64,
    /// `text_bytes / tokens`, 0 when there are no tokens.
    pub bytes_per_token: f64,
    /// Tokens of the longest document.
    pub longest_document_tokens: u64,
    /// Rows whose text is null.
    pub nulls: u64,
    /// Rows without a byte or without a token.
    pub empties: u64,
    /// Rows that are not valid UTF-8; counted as documents with replaced characters.
    pub invalid_utf8: u64,
    /// What a user should look at, one sentence each.
    pub problems: Vec<String>,
}

/// One shard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FileReport {
    /// Where it is.
    pub path: PathBuf,
    /// Size on disk.
    pub bytes: u64,
    /// Row groups.
    pub row_groups: u64,
    /// Rows.
    pub rows: u64,
    /// Why it cannot be used, if so.
    pub problem: Option<String>,
}

/// One column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ColumnReport {
    /// Its path in the schema.
    pub name: String,
    /// Physical type, and logical type where there is one.
    pub kind: String,
    /// Whether it may be null.
    pub nullable: bool,
}

/// Reads every document of `files` (files, folders, globs) and counts. A bad shard is a problem in the report, not an error.
///
/// # Errors
/// When no file matches.
pub fn inspect(files: &[String], text_column: &str, tokenizer: &Tokenizer) -> Result<Inspection> {
    let paths = files::expand("data inspect", files)?;
    let footer = paths.iter().find_map(|path| shards::read_footer(path).ok());
    let mut report = Inspection {
        schema: footer.map(|(metadata, _)| shards::describe(&metadata)).unwrap_or_default(),
        text_column: text_column.into(),
        tokenizer: tokenizer.name().into(),
        ..Inspection::default()
    };
    let mut problems = Vec::new();
    for path in paths {
        let bytes = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
        let mut file = FileReport { path, bytes, ..FileReport::default() };
        match Shard::open(&file.path, text_column) {
            Ok(shard) => {
                file.row_groups = shard.row_groups.len() as u64;
                file.rows = shard.rows();
                let counts = count_shard(&shard, tokenizer);
                file.problem = counts.problems.first().cloned();
                report.add(&counts);
                problems.extend(counts.problems);
            }
            Err(error) => {
                file.problem = Some(error.to_string());
                problems.push(error.to_string());
            }
        }
        report.row_groups += file.row_groups;
        report.rows += file.rows;
        report.files.push(file);
    }
    report.bytes_per_token =
        if report.tokens > 0 { report.text_bytes as f64 / report.tokens as f64 } else { 0.0 };
    report.problems = list(problems, &report);
    Ok(report)
}

/// Sums over some rows.
#[derive(Debug, Default)]
struct Counts {
    documents: u64,
    tokens: u64,
    text_bytes: u64,
    longest: u64,
    nulls: u64,
    empties: u64,
    invalid: u64,
    problems: Vec<String>,
}

impl Counts {
    fn join(mut self, other: Self) -> Self {
        self.documents += other.documents;
        self.tokens += other.tokens;
        self.text_bytes += other.text_bytes;
        self.longest = self.longest.max(other.longest);
        self.nulls += other.nulls;
        self.empties += other.empties;
        self.invalid += other.invalid;
        self.problems.extend(other.problems);
        self
    }
}

impl Inspection {
    fn add(&mut self, counts: &Counts) {
        self.documents += counts.documents;
        self.tokens += counts.tokens;
        self.text_bytes += counts.text_bytes;
        self.longest_document_tokens = self.longest_document_tokens.max(counts.longest);
        self.nulls += counts.nulls;
        self.empties += counts.empties;
        self.invalid_utf8 += counts.invalid;
    }
}

/// Counts all row groups of a shard, in parallel.
fn count_shard(shard: &Shard, tokenizer: &Tokenizer) -> Counts {
    let groups = (0..shard.row_groups.len()).into_par_iter();
    let count = |row_group| {
        let mut counts = Counts::default();
        if let Err(error) = count_row_group(shard, row_group, tokenizer, &mut counts) {
            counts.problems.push(error.to_string());
        }
        counts
    };
    let parts: Vec<Counts> = groups.map(count).collect();
    parts.into_iter().fold(Counts::default(), Counts::join)
}

fn count_row_group(
    shard: &Shard,
    row_group: usize,
    tokenizer: &Tokenizer,
    counts: &mut Counts,
) -> Result<()> {
    let mut reader = RowReader::open(shard, row_group, 0)?;
    let mut words = WordCache::default();
    let mut ids = Vec::new();
    loop {
        let texts = reader.read(BATCH)?;
        if texts.is_empty() {
            return Ok(());
        }
        for text in texts {
            let Some(content) = text.decode(shard, row_group, OnInvalidUtf8::Replace)? else {
                counts.nulls += 1;
                continue;
            };
            ids.clear();
            let encoded = tokenizer.encode_with(&mut words, &content, &mut ids);
            encoded.map_err(|error| text.refused(shard, row_group, &error))?;
            if ids.is_empty() {
                counts.empties += 1;
                continue;
            }
            counts.invalid += u64::from(matches!(content, std::borrow::Cow::Owned(_)));
            counts.documents += 1;
            counts.tokens += ids.len() as u64;
            counts.text_bytes += content.len() as u64;
            counts.longest = counts.longest.max(ids.len() as u64);
        }
    }
}

/// The problems of the files, cut to a readable number, and those of the whole.
fn list(mut problems: Vec<String>, report: &Inspection) -> Vec<String> {
    let n_problems = problems.len();
    problems.truncate(LISTED);
    if n_problems > LISTED {
        problems.push(format!("{} problems more of the same kind", n_problems - LISTED));
    }
    if report.invalid_utf8 > 0 {
        problems.push(format!(
            "{} documents are not valid UTF-8; training needs data.invalid_utf8 = \"replace\"",
            report.invalid_utf8
        ));
    }
    let void = report.nulls + report.empties;
    if void * 2 > report.rows {
        problems.push(format!("{void} of {} rows are null or empty", report.rows));
    }
    if report.documents == 0 {
        problems.push("there is no usable document".into());
    }
    problems
}
