//! One lane: packing, document starts, and its place in the data.

use std::path::Path;
use std::sync::Mutex;

use super::*;
use crate::testing::{bytes, folder, shard};

/// A lane alone over the given texts, one pass in file order.
fn lane(dir: &Path, texts: &[Option<&str>], tokens: usize) -> Lane {
    let files = [shard(dir, "a.parquet", texts, 3).display().to_string()];
    let shards = Shards::open("data.val", &files, "text", OnBadShard::Fail).unwrap();
    let plan = Plan {
        units: order::units(&shards, 1, 2),
        shards,
        tokenizer: bytes(),
        specials: Specials { bos: None, eos: Some(256) },
        lanes: 1,
        seed: None,
        tokens,
        on_bad_shard: OnBadShard::Fail,
        invalid_utf8: OnInvalidUtf8::Fail,
        logged: Mutex::default(),
        stop: AtomicBool::new(false),
    };
    Lane::new(Arc::new(plan), LaneState::start(0))
}

#[test]
fn a_document_longer_than_a_row_goes_on_in_the_next() {
    let dir = folder();
    let mut lane = lane(dir.path(), &[Some("abcdef"), Some("g")], 3);
    let rows: Vec<Row> = std::iter::from_fn(|| lane.next_row(&mut WordCache::default()).unwrap()).collect();
    let ids: Vec<_> = rows.iter().map(|row| row.ids.as_slice()).collect();
    assert_eq!(ids, [[97, 98, 99], [100, 101, 102], [256, 103, 256]]);
    let targets: Vec<_> = rows.iter().map(|row| row.targets.as_slice()).collect();
    assert_eq!(targets, [[98, 99, 100], [101, 102, 256], [IGNORE, 256, IGNORE]]);
    let positions: Vec<_> = rows.iter().map(|row| row.positions.as_slice()).collect();
    // What the model has read of the document: nothing of an earlier row.
    assert_eq!(positions, [[0, 1, 2], [0, 1, 2], [0, 0, 1]]);
    assert_eq!(rows.iter().map(|row| row.starts.clone()).collect::<Vec<_>>(), [vec![0], vec![], vec![1]]);
    assert_eq!(rows.iter().map(|row| row.target_bytes).collect::<Vec<_>>(), [3, 2, 0]);
    assert_eq!(rows.iter().map(|row| row.after.token).collect::<Vec<_>>(), [3, 6, 0]);
}
