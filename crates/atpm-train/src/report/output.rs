//! The one writer of reports to standard output; logs go to standard error.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::Context;
use serde::Serialize;

/// Whoever read standard output has gone: there is nobody to write for, and nothing is wrong (exit code 0).
#[derive(Debug, thiserror::Error)]
#[error("the reader of standard output has gone")]
pub struct ReaderGone;

/// Writes text and a line end.
///
/// # Errors
/// Standard output that cannot be written; [`ReaderGone`] where it is a closed pipe.
pub fn line(text: impl Display) -> anyhow::Result<()> {
    part(format_args!("{text}\n"))
}

/// Writes text as it is and flushes it, for output that streams.
///
/// # Errors
/// As [`line()`].
pub fn part(text: impl Display) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        outcome => outcome.context("cannot write to standard output"),
    }
}

/// For a command whose exit code tells what its text does: goes on where nobody reads.
///
/// # Errors
/// Those of `written`, but for [`ReaderGone`].
pub fn read_or_not(written: anyhow::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.is::<ReaderGone>() => Ok(()),
        outcome => outcome,
    }
}

/// Writes one JSON object on one line.
///
/// # Errors
/// As [`line()`], or a value that JSON cannot hold.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(serde_json::to_string(value).context("cannot write the report as JSON")?)
}
