//! Validation: every document once, in order.

use super::*;
use crate::testing::{bytes, config, folder, numbered, shard};
use crate::{IGNORE, OnBadShard};

fn pass(config: &TextConfig) -> (Vec<Batch>, Counters) {
    let mut source = EvalSource::open(config, bytes()).unwrap();
    let mut batches = Vec::new();
    while let Some(batch) = source.next_batch().unwrap() {
        batches.push(batch);
    }
    assert!(source.next_batch().unwrap().is_none());
    (batches, source.counters())
}

#[test]
fn a_pass_gives_every_document_in_file_order() {
    let dir = folder();
    let texts = numbered(dir.path(), 50, 3, 4);
    let config = config(dir.path(), 8, 3, 33);
    let (batches, counters) = pass(&config);
    assert_eq!(pass(&config).0, batches);
    let mut expected: Vec<u32> = Vec::new();
    for text in &texts {
        expected.extend(text.bytes().map(u32::from));
        expected.push(256);
    }
    let ids: Vec<u32> = batches.iter().flat_map(|batch| batch.ids.clone()).collect();
    let targets: Vec<u32> = batches.iter().flat_map(|batch| batch.targets.clone()).collect();
    assert_eq!(ids[..expected.len()], expected);
    assert_eq!(counters.tokens, expected.len() as u64);
    assert_eq!(counters.kept, 50);
    // What fills up the last row counts for nothing.
    let padding = ids.len() - expected.len();
    assert!(padding > 0 && padding < 33);
    assert!(targets[expected.len()..].iter().all(|&target| target == IGNORE));
    assert_eq!(targets.iter().filter(|&&target| target != IGNORE).count(), expected.len() - 50);
    let bytes: u64 = batches.iter().map(|batch| batch.target_bytes).sum();
    assert_eq!(bytes, texts.iter().map(|text| text.len() as u64 - 1).sum::<u64>());
    assert!(
        batches.iter().all(|batch| batch.ids.len() == batch.rows * 33 && batch.starts.len() == batch.rows)
    );
    assert!(batches.last().unwrap().rows <= 3);
}

/// Rows without a token after a row that is exactly full belong to the pass as any other.
#[test]
fn counts_are_complete_after_a_full_last_row() {
    let dir = folder();
    shard(dir.path(), "a.parquet", &[Some("abc"), None, Some("")], 10);
    let (batches, counters) = pass(&config(dir.path(), 8, 2, 4));
    assert_eq!((batches.len(), batches[0].ids.as_slice()), (1, &[97, 98, 99, 256][..]));
    assert_eq!((counters.kept, counters.null, counters.empty, counters.tokens), (1, 1, 1, 4));
}

/// What was left out is counted, and an error does not call unreadable what it calls empty.
#[test]
fn what_is_skipped_is_counted() {
    let dir = folder();
    numbered(dir.path(), 10, 1, 5);
    std::fs::write(dir.path().join("bad.parquet"), "no parquet").unwrap();
    let mut config = config(dir.path(), 8, 2, 8);
    config.data.on_bad_shard = OnBadShard::Skip;
    let mut source = EvalSource::open(&config, bytes()).unwrap();
    std::fs::remove_file(dir.path().join("000.parquet")).unwrap();
    let error = source.next_batch().unwrap_err().to_string();
    assert!(error.contains("0 are null and 0 empty; 2 row groups are unreadable"), "{error}");
    let counters = source.counters();
    assert_eq!((counters.bad_shards, counters.bad_row_groups, counters.kept), (1, 2, 0));
}

#[test]
fn a_pass_without_text_is_an_error() {
    let dir = folder();
    shard(dir.path(), "a.parquet", &[None, Some("")], 10);
    let error = EvalSource::open(&config(dir.path(), 8, 2, 8), bytes()).unwrap().next_batch().unwrap_err();
    assert!(error.to_string().contains("data.val") && error.to_string().contains("2 rows"), "{error}");
}
