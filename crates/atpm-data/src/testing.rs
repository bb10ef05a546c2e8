//! Small shards and other helpers for this crate's tests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryArray, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use serde_json::{Value, json};

use crate::{DataConfig, TextConfig, Tokenizer};

/// Writes columns into one shard, `row_group` rows to a row group and `page` rows to a page.
pub(crate) fn write_columns(path: &Path, columns: Vec<(&str, ArrayRef)>, row_group: usize, page: usize) {
    let batch = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    );
    let batch = batch.unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(row_group))
        .set_data_page_row_count_limit(page)
        .set_write_batch_size(page)
        .set_dictionary_page_size_limit(64 << 20)
        .build();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

/// Writes a shard whose only column is `text`.
pub(crate) fn shard(dir: &Path, name: &str, texts: &[Option<&str>], row_group: usize) -> PathBuf {
    let path = dir.join(name);
    write_columns(&path, vec![("text", Arc::new(StringArray::from(texts.to_vec())))], row_group, 1000);
    path
}

/// Writes a shard whose `text` may be any bytes.
pub(crate) fn raw_shard(dir: &Path, name: &str, texts: &[&[u8]]) -> PathBuf {
    let path = dir.join(name);
    write_columns(&path, vec![("text", Arc::new(BinaryArray::from(texts.to_vec())))], 100, 100);
    path
}

/// `count` documents of different lengths, each beginning with its number.
pub(crate) fn documents(count: usize) -> Vec<String> {
    (0..count).map(|index| format!("{index}:{}", "ab ".repeat(index * 7 % 11))).collect()
}

/// Writes `count` of these documents into `shards` shards with row groups of `row_group`.
pub(crate) fn numbered(dir: &Path, count: usize, shards: usize, row_group: usize) -> Vec<String> {
    let texts = documents(count);
    let size = count.div_ceil(shards);
    for (index, part) in texts.chunks(size).enumerate() {
        let part: Vec<_> = part.iter().map(|text| Some(text.as_str())).collect();
        shard(dir, &format!("{index:03}.parquet"), &part, row_group);
    }
    texts
}

/// Settings for the shards of a folder, for training and validation alike.
pub(crate) fn config(dir: &Path, lanes: usize, rows: usize, tokens: usize) -> TextConfig {
    let files = vec![dir.display().to_string()];
    let data =
        DataConfig { train: files.clone(), val: files, lanes, shuffle_window: 10, ..DataConfig::default() };
    TextConfig::new(data, 7, rows, tokens)
}

/// The tokenizer of most tests.
pub(crate) fn bytes() -> Arc<Tokenizer> {
    Arc::new(Tokenizer::open("bytes").unwrap())
}

/// What the template of a `tokenizer.json` would add by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Template {
    Nothing,
    Bos,
    BosAndEos,
}

/// Writes into `dir` the `tokenizer.json` of bytes, with `<|endoftext|>` as 256, `<s>` as 257 and a template; one that
/// lowers its text goes through Hugging Face's library.
pub(crate) fn templated(dir: &Path, template: Template, lower: bool) -> PathBuf {
    bytes().save(dir).unwrap();
    std::fs::remove_file(dir.join("tokenizer_config.json")).unwrap();
    let path = dir.join("tokenizer.json");
    let mut root: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let special = |id: &str| json!({"SpecialToken": {"id": id, "type_id": 0}});
    let sequence = json!({"Sequence": {"id": "A", "type_id": 0}});
    let template = match template {
        Template::Nothing => vec![sequence],
        Template::Bos => vec![special("<s>"), sequence],
        Template::BosAndEos => vec![special("<s>"), sequence, special("<|endoftext|>")],
    };
    let bos = json!({"id": 257, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                     "normalized": false, "special": true});
    root["added_tokens"].as_array_mut().unwrap().push(bos);
    root["post_processor"] = json!({
        "type": "TemplateProcessing", "single": template, "pair": template,
        "special_tokens": {
            "<s>": {"id": "<s>", "ids": [257], "tokens": ["<s>"]},
            "<|endoftext|>": {"id": "<|endoftext|>", "ids": [256], "tokens": ["<|endoftext|>"]},
        }
    });
    if lower {
        root["normalizer"] = json!({"type": "Lowercase"});
    }
    std::fs::write(&path, root.to_string()).unwrap();
    path
}

/// A folder that is removed at the end of the test.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A shard of the shared corpus, or `None` (and a line that says so) where it is not there.
pub(crate) fn corpus(name: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus").join(name);
    if !path.is_file() {
        eprintln!("not compared on the corpus: there is no {} (see README.md, Tests)", path.display());
        return None;
    }
    Some(path)
}
