//! The text source: order, resume, prefetch, several processes.

use std::collections::HashMap;
use std::path::Path;

use super::*;
use crate::shards::Shard;
use crate::testing::{bytes, config, documents, folder, numbered, raw_shard, shard};
use crate::{IGNORE, OnBadShard, OnInvalidUtf8};

/// Ids, targets, positions and starts of a row.
type PackedRow = (Vec<u32>, Vec<u32>, Vec<u32>, Vec<usize>);

fn open(config: &TextConfig, resume: Option<&TextPosition>) -> TextSource {
    TextSource::open(config, bytes(), resume).unwrap()
}

fn refused(config: &TextConfig, resume: Option<&TextPosition>) -> String {
    TextSource::open(config, bytes(), resume).err().unwrap().to_string()
}

fn batches(source: &mut TextSource, count: usize) -> Vec<Batch> {
    (0..count).map(|_| source.next_batch().unwrap()).collect()
}

/// The rows of batches, one after the other.
fn rows(batches: &[Batch]) -> Vec<PackedRow> {
    let row = |batch: &Batch, row: usize| {
        let cut = |values: &[u32]| values[row * batch.tokens..(row + 1) * batch.tokens].to_vec();
        (cut(&batch.ids), cut(&batch.targets), cut(&batch.positions), batch.starts[row].clone())
    };
    batches.iter().flat_map(|batch| (0..batch.rows).map(move |index| row(batch, index))).collect()
}

/// The documents of one lane's rows, checked to be packed as promised; the last may be unfinished.
fn unpack(rows: &[PackedRow]) -> Vec<String> {
    let stream: Vec<u32> = rows.iter().flat_map(|row| row.0.clone()).collect();
    let mut documents = Vec::new();
    let mut current = Vec::new();
    let mut next = 0;
    for (ids, targets, positions, starts) in rows {
        // Tokens of the document that stand in this row.
        let mut read = 0;
        for at in 0..ids.len() {
            next += 1;
            assert_eq!(positions[at], read);
            assert_eq!(starts.contains(&at), current.is_empty());
            read += 1;
            if ids[at] == 256 {
                // D26: the token after a document's end is no target.
                assert_eq!(targets[at], IGNORE);
                documents.push(String::from_utf8(std::mem::take(&mut current)).unwrap());
                read = 0;
            } else {
                current.push(u8::try_from(ids[at]).unwrap());
                // Also at a row's end: the target is the first id of the lane's next row.
                assert!(next == stream.len() || targets[at] == stream[next]);
            }
        }
    }
    documents
}

/// The documents that each lane gives in its first `rows_each` rows.
fn by_lane(config: &TextConfig, rows_each: usize) -> Vec<Vec<String>> {
    let lanes = config.data.lanes;
    let config = TextConfig { rows: lanes, ..config.clone() };
    let all = rows(&batches(&mut open(&config, None), rows_each));
    (0..lanes)
        .map(|lane| unpack(&all.iter().skip(lane).step_by(lanes).cloned().collect::<Vec<_>>()))
        .collect()
}

#[test]
fn every_epoch_gives_every_document_once_in_its_own_order() {
    let dir = folder();
    let mut texts = numbered(dir.path(), 97, 3, 9);
    let config = config(dir.path(), 1, 1, 32);
    let stream = by_lane(&config, 200).remove(0);
    let epochs: Vec<_> = stream.chunks_exact(97).take(3).collect();
    assert_eq!(epochs.len(), 3);
    assert_ne!(epochs[0], epochs[1]);
    texts.sort();
    for epoch in epochs {
        let mut epoch = epoch.to_vec();
        epoch.sort();
        assert_eq!(epoch, texts);
    }
    let mut source = open(&config, None);
    batches(&mut source, 200);
    let counters = source.counters();
    assert_eq!(counters.tokens, 200 * 32);
    assert!(counters.kept > 3 * 97 && counters.epoch >= 3, "{counters:?}");
}

#[test]
fn batches_do_not_depend_on_prefetch_and_other_seeds_differ() {
    let dir = folder();
    numbered(dir.path(), 60, 2, 10);
    let config = config(dir.path(), 4, 3, 16);
    let expected = batches(&mut open(&config, None), 30);
    for prefetch in [0, 1, 8] {
        let mut config = config.clone();
        config.data.prefetch = prefetch;
        assert_eq!(batches(&mut open(&config, None), 30), expected);
    }
    let mut other = config.clone();
    other.seed += 1;
    assert_ne!(batches(&mut open(&other, None), 30), expected);
    let target_bytes: u64 = expected.iter().map(|batch| batch.target_bytes).sum();
    let counted = expected.iter().flat_map(|batch| &batch.targets).filter(|&&id| id < 256).count();
    assert_eq!(target_bytes, counted as u64);
}

/// D16, S9, S10: every position continues with the very next token, through several epochs and whatever was prefetched.
#[test]
fn every_position_resumes_exactly() {
    let dir = folder();
    numbered(dir.path(), 40, 2, 6);
    let mut config = config(dir.path(), 3, 7, 13);
    let mut source = open(&config, None);
    let mut positions = Vec::new();
    let mut expected = Vec::new();
    for _ in 0..42 {
        positions.push(source.position());
        expected.push(source.next_batch().unwrap());
    }
    assert!(positions[40].lanes.iter().all(|lane| lane.epoch >= 2));
    assert!(positions.iter().any(|position| position.lanes.iter().any(|lane| lane.token > 0)));
    for (step, position) in positions.iter().enumerate().take(41) {
        config.data.prefetch = [0, 1, 8][step % 3];
        let stored: TextPosition = serde_json::from_str(&serde_json::to_string(position).unwrap()).unwrap();
        let mut resumed = open(&config, Some(&stored));
        assert_eq!(resumed.position(), *position);
        assert_eq!(batches(&mut resumed, 2.min(42 - step)), expected[step..42.min(step + 2)], "step {step}");
    }
}

/// D19: a position at the very end of an epoch goes on with the first document of the next.
#[test]
fn the_end_of_an_epoch_resumes_with_the_next() {
    let dir = folder();
    let texts: Vec<String> = (0..12).map(|index| format!("{index:03}")).collect();
    for (file, part) in texts.chunks(6).enumerate() {
        let part: Vec<_> = part.iter().map(|text| Some(text.as_str())).collect();
        shard(dir.path(), &format!("{file}.parquet"), &part, 3);
    }
    // A document and its end-of-text fill a row, so the 12th row ends with the epoch, and every third with a row group.
    let config = config(dir.path(), 1, 1, 4);
    let mut source = open(&config, None);
    let mut expected = Vec::new();
    for step in 0..24 {
        let position = source.position();
        let batch = source.next_batch().unwrap();
        assert_eq!(open(&config, Some(&position)).next_batch().unwrap(), batch, "step {step}");
        assert_eq!(source.counters().epoch, u64::from(step >= 12));
        expected.push(batch);
    }
    let second: std::collections::HashSet<_> = expected[12..].iter().map(|batch| batch.ids.clone()).collect();
    assert_eq!(second.len(), 12);
}

/// D17: any number of processes that divides the lanes gives the same global batches, also after a skip, and they can change.
#[test]
fn processes_share_the_rows() {
    let dir = folder();
    let texts = numbered(dir.path(), 120, 3, 5);
    let whole = config(dir.path(), 12, 24, 16);
    let mut single = open(&whole, None);
    batches(&mut single, 3);
    let moment = single.position();
    let expected = rows(&batches(&mut single, 20));
    for world in [2, 3, 4] {
        let part = |rank| TextConfig { rank, world, ..whole.clone() };
        let mut shares: Vec<_> = (0..world).map(|rank| open(&part(rank), None)).collect();
        for share in &mut shares {
            batches(share, 3);
        }
        let gathered =
            TextPosition::gather(&shares.iter().map(BatchSource::position).collect::<Vec<_>>()).unwrap();
        assert_eq!(gathered, moment);
        let mut resumed: Vec<_> = (0..world).map(|rank| open(&part(rank), Some(&moment))).collect();
        for sources in [&mut shares, &mut resumed] {
            let parts: Vec<_> = sources.iter_mut().map(|source| rows(&batches(source, 20))).collect();
            let dealt: Vec<_> =
                (0..expected.len()).map(|row| parts[row % world][row / world].clone()).collect();
            assert!(dealt == expected, "world {world}");
        }
    }
    let mut seen = HashMap::new();
    for (lane, documents) in by_lane(&whole, 200).iter().enumerate() {
        // A lane's first epoch is its share of the 24 row groups: two of five documents each.
        seen.extend(documents.iter().take(10).map(|document| (document.clone(), lane)));
    }
    assert_eq!(seen.len(), texts.len());
    let wrong = TextConfig { world: 5, ..whole.clone() };
    assert!(refused(&wrong, None).contains("data.lanes = 12"));
    assert!(TextPosition::gather(&[]).is_err());
}

/// S14: a run may go on with another batch size, or row length, and misses no token.
#[test]
fn the_batch_size_may_change() {
    let dir = folder();
    numbered(dir.path(), 50, 1, 5);
    let config = config(dir.path(), 4, 6, 16);
    let expected = rows(&batches(&mut open(&config, None), 20));
    let mut first = open(&config, None);
    let mut all = rows(&batches(&mut first, 3));
    for size in [5, 1, 7] {
        let changed = TextConfig { rows: size, ..config.clone() };
        let mut next = open(&changed, Some(&first.position()));
        all.extend(rows(&batches(&mut next, 3)));
        first = next;
    }
    assert!(all[..] == expected[..all.len()]);
    let longer = TextConfig { tokens: 24, rows: 4, ..config.clone() };
    let position = first.position();
    let continued = rows(&batches(&mut open(&longer, Some(&position)), 2));
    let same = rows(&batches(&mut open(&TextConfig { rows: 4, ..config }, Some(&position)), 3));
    let lane = |rows: &[PackedRow]| rows.iter().step_by(4).flat_map(|row| row.0.clone()).collect::<Vec<_>>();
    assert_eq!(lane(&continued), lane(&same));
}

/// D25: what a position depends on is checked; each difference is named.
#[test]
fn changed_data_is_refused() {
    let dir = folder();
    numbered(dir.path(), 40, 2, 5);
    let config = config(dir.path(), 2, 2, 16);
    let mut source = open(&config, None);
    batches(&mut source, 2);
    let position = source.position();
    let change = |name: &str, edit: &dyn Fn(&mut TextConfig)| {
        let mut changed = config.clone();
        edit(&mut changed);
        let error = refused(&changed, Some(&position));
        assert!(error.contains(name), "{name} is not in: {error}");
    };
    change("seed was 7 and is 8", &|config| config.seed = 8);
    change("data.lanes was 2 and is 4", &|config| config.data.lanes = 4);
    change("data.shuffle_window was 10", &|config| config.data.shuffle_window = 11);
    change("number of shards was 2 and is 1", &|config| {
        config.data.train = vec![format!("{}/000.parquet", dir.path().display())];
    });
    let gpt2 = Arc::new(Tokenizer::open("gpt2").unwrap());
    let error = TextSource::open(&config, gpt2, Some(&position)).err().unwrap().to_string();
    assert!(error.contains("tokenizer") && error.contains("end-of-text id was 256 and is 50256"), "{error}");
    let moved = folder();
    for name in ["000.parquet", "001.parquet"] {
        std::fs::copy(dir.path().join(name), moved.path().join(name)).unwrap();
    }
    let mut elsewhere = config.clone();
    elsewhere.data.train = vec![moved.path().display().to_string()];
    assert!(TextSource::open(&elsewhere, bytes(), Some(&position)).is_ok());
    let path = moved.path().join("001.parquet");
    let mut content = std::fs::read(&path).unwrap();
    let at = content.windows(4).position(|window| window == b"39:a").unwrap();
    content[at] = b'8';
    std::fs::write(&path, content).unwrap();
    let error = refused(&elsewhere, Some(&position));
    assert!(error.contains("001.parquet") && error.contains("content"), "{error}");
    let mut broken = position.clone();
    broken.lanes[0].token = 10_000;
    let mut source = open(&config, Some(&broken));
    assert!(matches!(source.next_batch(), Err(Error::BadPosition { .. })));
    assert!(matches!(source.next_batch(), Err(Error::Stopped)));
    broken.lanes.remove(0);
    assert!(refused(&config, Some(&broken)).contains("no lane 0"));
}

/// D2: nulls and empty rows are counted and give no token; blanks are text; the counts add up to the rows.
#[test]
fn null_and_empty_rows_follow_the_policy() {
    let dir = folder();
    shard(dir.path(), "a.parquet", &[Some("a"), Some(""), None, Some("  "), Some("b")], 10);
    let mut config = config(dir.path(), 1, 1, 7);
    config.data.shuffle_window = 1;
    let mut source = open(&config, None);
    let batch = source.next_batch().unwrap();
    assert_eq!(batch.ids, [97, 256, 32, 32, 256, 98, 256]);
    assert_eq!(batch.targets, [256, IGNORE, 32, 256, IGNORE, 256, IGNORE]);
    assert_eq!(batch.starts, [vec![0, 2, 5]]);
    assert_eq!(batch.target_bytes, 1);
    assert_eq!(source.position().lanes[0].document + source.position().lanes[0].window, 5);
    let counters = source.counters();
    assert_eq!((counters.kept, counters.empty, counters.null, counters.tokens), (3, 1, 1, 7));

    let dir = folder();
    raw_shard(dir.path(), "a.parquet", &[b"ok", b"b\xffd"]);
    let mut config = crate::testing::config(dir.path(), 1, 1, 9);
    let mut source = open(&config, None);
    let error = source.next_batch().unwrap_err().to_string();
    assert!(error.contains("row 1 of row group 0") && error.contains("replace"), "{error}");
    config.data.invalid_utf8 = OnInvalidUtf8::Replace;
    let mut source = open(&config, None);
    source.next_batch().unwrap();
    assert_eq!((source.counters().kept, source.counters().invalid), (2, 1));
}

/// D6: a page that turns out bad is an error of `next_batch`, or a counted skip that gives the same batches every time.
#[test]
fn bad_pages_follow_the_policy() {
    let dir = folder();
    numbered(dir.path(), 60, 2, 10);
    let path = dir.path().join("001.parquet");
    let sound = Shard::open(&path, "text").unwrap();
    let mut content = std::fs::read(&path).unwrap();
    let at = content.windows(3).position(|window| window == b"41:").unwrap();
    content[at - 60..at + 20].fill(0xff);
    std::fs::write(&path, content).unwrap();
    assert_eq!(Shard::open(&path, "text").unwrap().rows(), sound.rows());

    let mut config = config(dir.path(), 2, 2, 16);
    let mut source = open(&config, None);
    let error = (0..100).find_map(|_| source.next_batch().err()).unwrap().to_string();
    assert!(error.contains("001.parquet") && error.contains("row group"), "{error}");
    assert!(matches!(source.next_batch(), Err(Error::Stopped)));

    config.data.on_bad_shard = OnBadShard::Skip;
    let mut source = open(&config, None);
    let first = batches(&mut source, 60);
    assert!(source.counters().bad_row_groups > 0);
    let mut again = open(&config, None);
    batches(&mut again, 30);
    let mut resumed = open(&config, Some(&again.position()));
    assert_eq!(batches(&mut resumed, 30), first[30..]);
    assert_eq!(resumed.counters(), source.counters());
}

/// D6: a shard that is gone when its turn comes follows the same policy.
#[test]
fn a_shard_removed_during_the_run_follows_the_policy() {
    let dir = folder();
    numbered(dir.path(), 60, 2, 10);
    let mut config = config(dir.path(), 1, 1, 16);
    config.data.prefetch = 0;
    for policy in [OnBadShard::Skip, OnBadShard::Fail] {
        config.data.on_bad_shard = policy;
        let mut source = open(&config, None);
        source.next_batch().unwrap();
        std::fs::rename(dir.path().join("001.parquet"), dir.path().join("away")).unwrap();
        let error = (0..200).find_map(|_| source.next_batch().err());
        std::fs::rename(dir.path().join("away"), dir.path().join("001.parquet")).unwrap();
        match policy {
            OnBadShard::Skip => {
                assert!(error.is_none(), "{error:?}");
                assert!(source.counters().bad_row_groups > 0 && source.counters().epoch > 1);
            }
            OnBadShard::Fail => assert!(error.unwrap().to_string().contains("001.parquet: cannot open")),
        }
    }
}

/// D6: a worker's panic is a failure of the run, not the end of the data.
#[test]
fn a_worker_panic_is_an_error() {
    let dir = folder();
    numbered(dir.path(), 20, 1, 10);
    let config = config(dir.path(), 1, 1, 8);
    let data = &config.data;
    let shards = Shards::open("data.train", &data.train, "text", OnBadShard::Fail).unwrap();
    let mut units = order::units(&shards, 1, 10);
    for unit in &mut units {
        unit.shard = 99;
    }
    let plan = Arc::new(Plan {
        shards,
        units,
        tokenizer: bytes(),
        specials: Specials::of(data, &bytes()).unwrap(),
        lanes: 1,
        seed: Some(1),
        tokens: 8,
        on_bad_shard: OnBadShard::Skip,
        invalid_utf8: OnInvalidUtf8::Fail,
        logged: Mutex::default(),
        stop: AtomicBool::new(false),
    });
    let lane = Lane::new(Arc::clone(&plan), LaneState::start(0));
    let mut prefetch = Prefetch::start(&plan, vec![lane], 0, 4).unwrap();
    for part in ["index out of bounds", "ended"] {
        let error = prefetch.next_row().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn dropping_a_source_stops_its_threads_at_once() {
    let dir = folder();
    numbered(dir.path(), 200, 2, 10);
    for prefetch in [0, 2, 50] {
        let mut config = config(dir.path(), 8, 8, 64);
        config.data.prefetch = prefetch;
        let source = open(&config, None);
        std::thread::sleep(std::time::Duration::from_millis(20));
        let start = std::time::Instant::now();
        drop(source);
        assert!(start.elapsed().as_secs() < 2);
    }
}

/// Data has no more threads than the run is given (`threads`), which is the size of rayon's pool.
#[test]
fn workers_are_no_more_than_the_threads_of_the_run() {
    let dir = folder();
    numbered(dir.path(), 60, 2, 10);
    let config = config(dir.path(), 4, 4, 16);
    let expected = batches(&mut open(&config, None), 20);
    for (threads, workers) in [(1, 1), (3, 3), (9, 4)] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut source = pool.install(|| open(&config, None));
        assert_eq!(source.prefetch.workers(), workers);
        assert_eq!(batches(&mut source, 20), expected);
    }
}

#[test]
fn small_and_useless_data() {
    let dir = folder();
    let texts = documents(20);
    let part: Vec<_> = texts.iter().map(|text| Some(text.as_str())).collect();
    shard(dir.path(), "a.parquet", &part, 100);
    // One row group feeds many lanes in slices, and no document is lost.
    let config = config(dir.path(), 8, 8, 8);
    let mut seen: Vec<String> = by_lane(&config, 60).into_iter().flatten().collect();
    seen.sort();
    seen.dedup();
    let mut expected = texts.clone();
    expected.sort();
    assert_eq!(seen, expected);
    let many = crate::testing::config(dir.path(), 21, 1, 8);
    assert!(refused(&many, None).contains("20 documents cannot feed 21 lanes"));

    shard(dir.path(), "a.parquet", &[None; 30], 5);
    let empty = crate::testing::config(dir.path(), 2, 2, 8);
    let error = open(&empty, None).next_batch().unwrap_err().to_string();
    assert!(error.contains("no usable document") && error.contains("null"), "{error}");
    shard(dir.path(), "a.parquet", &[], 5);
    assert!(refused(&empty, None).contains("no usable shard among 1 files"));
    let mut missing = empty.clone();
    missing.data.train = vec![format!("{}/none_*.parquet", dir.path().display())];
    assert!(refused(&missing, None).contains("none_*.parquet"));
    missing.data.train = Vec::new();
    assert!(refused(&missing, None).contains("data.train"));
}

/// D22, smaller: many shards leave no file open and nothing growing.
#[test]
#[cfg(target_os = "linux")]
fn files_do_not_stay_open() {
    let open_shards = |dir: &Path| {
        let links = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        links.filter(|target| target.starts_with(dir)).count()
    };
    let dir = folder();
    numbered(dir.path(), 500, 50, 5);
    let config = config(dir.path(), 4, 4, 64);
    let begin = std::time::Instant::now();
    let mut source = open(&config, None);
    for _ in 0..200 {
        source.next_batch().unwrap();
        // One a lane, and one more while a page of it is read.
        assert!(open_shards(dir.path()) <= 2 * 4);
    }
    assert!(source.counters().epoch >= 1);
    // Nothing is done between the batches, so some of this time was spent waiting for rows.
    let waited = source.wait_seconds();
    assert!(waited > 0.0 && waited < begin.elapsed().as_secs_f64(), "{waited}");
    drop(source);
    assert_eq!(open_shards(dir.path()), 0);
}
