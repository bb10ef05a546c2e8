//! Memory over large data, measured from inside a process of its own with the program's allocator.
//!
//! That process is this test binary again, told by an environment variable what to do; what it measured is its last
//! line. The sizes of every day are small; the full ones (3 GB of disk, seven minutes on two cores) run with
//! `cargo nextest run --workspace --locked --run-ignored only --no-capture -E 'binary(memory)'`.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use atpm_data::{BatchSource, DataConfig, EvalSource, IGNORE, TextConfig, TextSource, Tokenizer, WordCache};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use serde::{Deserialize, Serialize};

/// The program's own; see src/allocator.rs.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TASK: &str = "ATPM_TEST_MEMORY";

/// What the measured process is to do.
#[derive(Debug, Serialize, Deserialize)]
enum Task {
    /// Tokenizes and packs every shard of `folder` once, `documents` in all.
    Pack { folder: String, documents: u64 },
    /// Reads the one shard of `folder`, whose documents are all of one letter.
    Letters { folder: String },
    /// Encodes `strings` different strings of 5 kB.
    Encode { tokenizer: String, strings: u64 },
}

/// What it measured: memory after a tenth of the work and at the end, and at most, in kB; most files open in that tenth
/// and after it; documents and tokens.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Measured {
    early_kb: u64,
    late_kb: u64,
    most_kb: u64,
    early_files: usize,
    late_files: usize,
    documents: u64,
    tokens: u64,
}

/// The measured process; does nothing unless it is told what.
#[test]
fn measured_process() {
    let Ok(task) = std::env::var(TASK) else { return };
    let mut measured = match serde_json::from_str(&task).unwrap() {
        Task::Pack { folder, documents } => pack(&folder, documents),
        Task::Letters { folder } => letters(&folder),
        Task::Encode { tokenizer, strings } => encode(&tokenizer, strings),
    };
    measured.most_kb = memory("VmHWM:");
    eprintln!("{}", serde_json::to_string(&measured).unwrap());
}

fn measure(task: &Task) -> Measured {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["measured_process", "--exact", "--nocapture"])
        .env(TASK, serde_json::to_string(task).unwrap())
        // What `keep_memory` sets in the program.
        .env("MIMALLOC_PURGE_DELAY", "-1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let measured = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    eprintln!("{task:?}: {measured:?}");
    measured
}

/// A line of the kernel's account of this process, in kB.
fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn pack(folder: &str, documents: u64) -> Measured {
    let data = DataConfig { train: vec![folder.into()], ..DataConfig::default() };
    let config = TextConfig::new(data, 1, 8, 1024);
    let mut source = TextSource::open(&config, Arc::new(Tokenizer::open("gpt2").unwrap()), None).unwrap();
    let mut measured = Measured::default();
    loop {
        source.next_batch().unwrap();
        let done = source.counters().kept;
        if done * 10 < documents {
            measured.early_files = measured.early_files.max(open_files());
        } else {
            if measured.early_kb == 0 {
                measured.early_kb = memory("VmRSS:");
            }
            measured.late_files = measured.late_files.max(open_files());
        }
        if done >= documents {
            let counters = source.counters();
            (measured.documents, measured.tokens) = (counters.kept, counters.tokens);
            measured.late_kb = memory("VmRSS:");
            return measured;
        }
    }
}

fn letters(folder: &str) -> Measured {
    let data = DataConfig { val: vec![folder.into()], ..DataConfig::default() };
    let config = TextConfig::new(data, 1, 1, 1 << 16);
    let mut source = EvalSource::open(&config, Arc::new(Tokenizer::open("bytes").unwrap())).unwrap();
    while let Some(batch) = source.next_batch().unwrap() {
        let is_letter = |(&id, &target): (&u32, &u32)| match id {
            256 => target == IGNORE,
            id => id == u32::from(b'a') && (target == u32::from(b'a') || target == 256),
        };
        assert!(batch.ids.iter().zip(&batch.targets).all(is_letter), "a letter was lost or changed");
    }
    let counters = source.counters();
    Measured { documents: counters.kept, tokens: counters.tokens, ..Measured::default() }
}

fn encode(tokenizer: &str, strings: u64) -> Measured {
    let tokenizer = Tokenizer::open(tokenizer).unwrap();
    let (mut random, mut words, mut ids) = (Random(1), WordCache::default(), Vec::new());
    let mut measured = Measured::default();
    for number in 0..strings {
        if number == strings / 10 {
            measured.early_kb = memory("VmRSS:");
        }
        // Words of 1 to 60 letters, none ever again: what fills a cache that is not bounded.
        let mut text = String::new();
        while text.len() < 5_000 {
            let length = 1 + random.below(60);
            text.extend((0..length).map(|_| char::from(b'a' + random.below(26) as u8)));
            text.push(' ');
        }
        ids.clear();
        tokenizer.encode_with(&mut words, &text, &mut ids).unwrap();
        measured.tokens += ids.len() as u64;
    }
    measured.documents = strings;
    measured.late_kb = memory("VmRSS:");
    measured
}

/// Xorshift: fast, and the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }
}

/// Writes documents into one shard, `row_group` rows to a row group, `piece` documents in memory at a time.
fn write_shard(
    path: &Path,
    documents: usize,
    row_group: usize,
    piece: usize,
    mut text: impl FnMut() -> String,
) {
    let batch = |texts: Vec<String>| {
        RecordBatch::try_from_iter([("text", Arc::new(StringArray::from(texts)) as ArrayRef)]).unwrap()
    };
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(row_group))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap()))
        .build();
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch(Vec::new()).schema(), Some(properties)).unwrap();
    for start in (0..documents).step_by(piece) {
        let texts = (start..documents.min(start + piece)).map(|_| text()).collect();
        writer.write(&batch(texts)).unwrap();
    }
    writer.close().unwrap();
}

/// 50 shards of `documents` documents of about 3 kB, packed once: memory and open files stay what they were after a
/// tenth of them.
fn fifty_shards(documents: usize, row_group: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random(7);
    let letters = |length: u64, random: &mut Random| -> String {
        (0..length).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
    };
    let words: Vec<String> = (0..20_000)
        .map(|_| {
            let length = 2 + random.below(8);
            letters(length, &mut random)
        })
        .collect();
    for shard in 0..50 {
        write_shard(&folder.path().join(format!("{shard:02}.parquet")), documents, row_group, 1000, || {
            let mut text = String::new();
            let size = 1000 + random.below(4000) as usize;
            while text.len() < size {
                text.push_str(&words[random.below(words.len() as u64) as usize]);
                text.push(' ');
            }
            text
        });
    }
    let all = 50 * documents as u64;
    let measured = measure(&Task::Pack { folder: folder.path().display().to_string(), documents: all });
    assert!(measured.documents >= all, "{measured:?}");
    // How far the reading threads run ahead differs from moment to moment by some MB; texts that were kept would be
    // nine tenths of all (54 MB in the small size), their ids more than twice that.
    let growth = measured.late_kb.saturating_sub(measured.early_kb);
    let allowed = (measured.early_kb / 10).max(24 << 10);
    assert!(growth < allowed, "memory grew by {growth} kB: {measured:?}");
    // A lane has one shard open while it reads, and one more while a page of it is read.
    let lanes = DataConfig::default().lanes;
    assert!(measured.late_files <= measured.early_files + lanes, "{measured:?}");
}

/// `rows` documents of `bytes` letters in one row group: all of them arrive, in at most `most_kb` of memory.
fn one_letter(rows: usize, bytes: usize, most_kb: u64) {
    let folder = tempfile::tempdir().unwrap();
    write_shard(&folder.path().join("a.parquet"), rows, rows, 4, || "a".repeat(bytes));
    let measured = measure(&Task::Letters { folder: folder.path().display().to_string() });
    let expected = (rows as u64, (rows * (bytes + 1)) as u64);
    assert_eq!((measured.documents, measured.tokens), expected);
    assert!(measured.most_kb < most_kb, "{measured:?}");
}

/// Strings of words that never come again: memory after the first tenth is memory at the end, but for 2 MB.
fn ever_new_words(strings: u64, strings_library: u64) {
    let folder = tempfile::tempdir().unwrap();
    Tokenizer::open("gpt2").unwrap().save(folder.path()).unwrap();
    let path = folder.path().join("tokenizer.json");
    let mut root: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    // A tokenizer with a normalizer runs through Hugging Face's library, which has a cache of its own.
    root["normalizer"] = serde_json::json!({"type": "Lowercase"});
    std::fs::write(&path, root.to_string()).unwrap();
    for (tokenizer, strings) in [("gpt2", strings), (path.to_str().unwrap(), strings_library)] {
        let measured = measure(&Task::Encode { tokenizer: tokenizer.into(), strings });
        let growth = measured.late_kb.saturating_sub(measured.early_kb);
        assert!(growth < 2048, "{tokenizer}: memory grew by {growth} kB: {measured:?}");
    }
}

// D22: many shards leave nothing growing.
#[test]
fn fifty_small_shards_leave_memory_as_it_was() {
    fifty_shards(400, 100);
}

#[test]
#[ignore = "5 GB of text: minutes"]
fn fifty_large_shards_leave_memory_as_it_was() {
    fifty_shards(33_000, 10_000);
}

// D8: more text in a row group than a batch of it may hold in memory.
#[test]
fn large_rows_arrive_in_little_memory() {
    one_letter(250, 500_000, 60_000);
}

#[test]
#[ignore = "2.5 GB of text: minutes"]
fn huge_rows_arrive_in_little_memory() {
    one_letter(500, 5_000_000, 1_000_000);
}

// D11: what is remembered of words is bounded.
#[test]
fn new_words_leave_memory_as_it_was() {
    ever_new_words(4_000, 1_000);
}

#[test]
#[ignore = "1 GB of text: minutes"]
fn very_many_new_words_leave_memory_as_it_was() {
    ever_new_words(200_000, 20_000);
}
