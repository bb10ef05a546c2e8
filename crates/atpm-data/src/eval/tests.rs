//! Validation: every document once, in order.

use super::*;
use crate::IGNORE;
use crate::testing::{bytes, config, folder, numbered, shard};

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

#[test]
fn a_pass_without_text_is_an_error() {
    let dir = folder();
    shard(dir.path(), "a.parquet", &[None, Some("")], 10);
    let error = EvalSource::open(&config(dir.path(), 8, 2, 8), bytes()).unwrap().next_batch().unwrap_err();
    assert!(error.to_string().contains("data.val") && error.to_string().contains("2 rows"), "{error}");
}
