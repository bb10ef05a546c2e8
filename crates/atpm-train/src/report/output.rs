//! The one writer of reports to standard output; logs go to standard error.

use std::fmt::Display;
use std::io::{self, Write};

use anyhow::Context;
use serde::Serialize;

/// Writes text and a line end.
///
/// # Errors
/// Standard output that cannot be written; a closed pipe is no error, the reader has seen enough.
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
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// Writes one JSON object on one line.
///
/// # Errors
/// As [`line()`], or a value that JSON cannot hold.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(serde_json::to_string(value).context("cannot write the report as JSON")?)
}
