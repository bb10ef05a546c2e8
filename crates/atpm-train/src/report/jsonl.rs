//! metrics.jsonl: one JSON object a step.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;

use super::metrics::{Record, Sink};

/// The file's name in a run folder.
pub const METRICS: &str = "metrics.jsonl";

/// Appends records to a run's metrics.jsonl.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    file: File,
    resumed_from: Option<u64>,
}

impl JsonLines {
    /// A new file, empty. Where the run goes on from another folder's checkpoint, of step `resumed_from`, the first record
    /// says so.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn create(run_dir: &Path, resumed_from: Option<u64>) -> anyhow::Result<Self> {
        let path = run_dir.join(METRICS);
        let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { path, file, resumed_from })
    }

    /// Goes on after `step`: records beyond it, which the resumed run makes again, and a half-written last
    /// line are dropped, and the next record says where the run was resumed. The file is replaced whole.
    ///
    /// # Errors
    /// A file that cannot be read or replaced.
    pub fn resume(run_dir: &Path, step: u64) -> anyhow::Result<Self> {
        let path = run_dir.join(METRICS);
        keep_up_to(&path, step).with_context(|| format!("cannot resume {}", path.display()))?;
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self { path, file, resumed_from: Some(step) })
    }
}

impl Sink for JsonLines {
    fn record(&mut self, record: &Record) -> anyhow::Result<()> {
        let resumed_from = self.resumed_from.take().or(record.resumed_from);
        let record = Record { resumed_from, ..record.clone() };
        let mut line = serde_json::to_vec(&record).context("cannot write a record as JSON")?;
        line.push(b'\n');
        self.file.write_all(&line).with_context(|| format!("cannot write {}", self.path.display()))
    }
}

/// Drops the records beyond `step` and a half-written last line. The file is replaced whole; without one there is
/// nothing to do.
///
/// # Errors
/// A file that cannot be read or replaced.
pub fn keep_up_to(path: &Path, step: u64) -> anyhow::Result<()> {
    #[derive(Deserialize)]
    struct Numbered {
        step: u64,
    }

    let Ok(old) = File::open(path) else { return Ok(()) };
    let beside = path.with_extension("jsonl.tmp");
    let mut new = File::create(&beside)?;
    for line in BufReader::new(old).lines() {
        let line = line?;
        match serde_json::from_str::<Numbered>(&line) {
            Ok(numbered) if numbered.step <= step => writeln!(new, "{line}")?,
            _ => break,
        }
    }
    new.sync_all()?;
    std::fs::rename(beside, path)?;
    Ok(())
}

/// Reads the records of a run folder's metrics.jsonl.
///
/// # Errors
/// A file that is missing or a line that is no record (named by its number).
pub fn read(run_dir: &Path) -> anyhow::Result<Vec<Record>> {
    let path = run_dir.join(METRICS);
    let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
    BufReader::new(file)
        .lines()
        .enumerate()
        .map(|(number, line)| {
            serde_json::from_str(&line?).with_context(|| format!("{}, line {}", path.display(), number + 1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(run_dir: &Path) -> Vec<(u64, Option<u64>)> {
        read(run_dir).unwrap().iter().map(|record| (record.step, record.resumed_from)).collect()
    }

    fn write(sink: &mut JsonLines, steps: impl IntoIterator<Item = u64>) {
        for step in steps {
            sink.record(&Record { step, ..Record::default() }).unwrap();
        }
    }

    // O1: one record a step, also across a resume from an older step; the first record afterwards says so.
    #[test]
    fn a_resume_from_an_older_step_replaces_what_came_after() {
        let folder = tempfile::tempdir().unwrap();
        write(&mut JsonLines::create(folder.path(), None).unwrap(), 1..=6);
        write(&mut JsonLines::resume(folder.path(), 4).unwrap(), 5..=7);
        let marked = [1, 2, 3, 4].map(|step| (step, None));
        assert_eq!(steps(folder.path()), [&marked[..], &[(5, Some(4)), (6, None), (7, None)]].concat());
    }

    #[test]
    fn a_half_written_line_and_a_missing_file_are_borne() {
        let folder = tempfile::tempdir().unwrap();
        write(&mut JsonLines::resume(folder.path(), 2).unwrap(), [3]);
        let path = folder.path().join(METRICS);
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("{\"step\":4,\"lo");
        std::fs::write(&path, text).unwrap();
        write(&mut JsonLines::resume(folder.path(), 4).unwrap(), [5]);
        assert_eq!(steps(folder.path()), [(3, Some(2)), (5, Some(4))]);
    }

    #[test]
    fn records_read_back_to_the_same_bits() {
        let folder = tempfile::tempdir().unwrap();
        let record = Record {
            step: 1,
            loss: Some(0.1 + 0.2),
            lr: 1e-3 / 3.0,
            skipped: Some(super::super::metrics::Skip::NonFinite),
            ..Record::default()
        };
        JsonLines::create(folder.path(), None).unwrap().record(&record).unwrap();
        assert_eq!(read(folder.path()).unwrap(), [record]);
    }
}
