//! What can go wrong between a shard and a batch. Every message names the place, the fault and the way out.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why data could not be read, tokenized or resumed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A pattern, file or folder gives no shard.
    #[error(
        "{what}: {pattern:?} matches no parquet file; give a .parquet file, a folder that holds some, or a glob"
    )]
    NoFiles {
        /// Which list of files was meant, e.g. `data.train`.
        what: &'static str,
        /// The pattern as the user wrote it.
        pattern: String,
    },
    /// A pattern is not a valid glob.
    #[error("{pattern:?} is not a valid pattern: {reason}")]
    BadPattern {
        /// The pattern as the user wrote it.
        pattern: String,
        /// What the parser says.
        reason: String,
    },
    /// A file could not be opened, read or written.
    #[error("{}: cannot {action}: {source}{}", path.display(), way_out(action, source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, e.g. `read`.
        action: &'static str,
        /// What the system says.
        source: std::io::Error,
    },
    /// A shard is not readable parquet.
    #[error("{}: {reason}; replace the shard, or {}", path.display(), SKIP)]
    BadShard {
        /// The shard.
        path: PathBuf,
        /// The fault and where it is.
        reason: String,
    },
    /// Every shard was skipped as bad, or none holds a row.
    #[error(
        "{what}: no usable shard among {files} files ({skipped} skipped as bad, the others hold no rows)"
    )]
    NoUsableShard {
        /// Which list of files was meant.
        what: &'static str,
        /// Files that were looked at.
        files: usize,
        /// Files that were skipped.
        skipped: usize,
    },
    /// The text column is missing or has a type that cannot be text.
    #[error(
        "{}: {reason}; set data.text_column (--text-column NAME) to the column that holds the text",
        path.display()
    )]
    TextColumn {
        /// The shard.
        path: PathBuf,
        /// The fault, with the columns that the file has.
        reason: String,
    },
    /// A document is not valid UTF-8 and the policy is to fail.
    #[error(
        "{}: row {row} of row group {row_group} is not valid UTF-8; repair it, or set data.invalid_utf8 = \"replace\" \
         (--invalid-utf8 replace)",
        path.display()
    )]
    InvalidUtf8 {
        /// The shard.
        path: PathBuf,
        /// The row group in the shard.
        row_group: usize,
        /// The row in the row group.
        row: usize,
    },
    /// The tokenizer has no ids for a document.
    #[error("{}: row {row} of row group {row_group}: {reason}", path.display())]
    Document {
        /// The shard.
        path: PathBuf,
        /// The row group in the shard.
        row_group: usize,
        /// The row in the row group.
        row: usize,
        /// What the tokenizer says.
        reason: String,
    },
    /// There are fewer documents than lanes.
    #[error(
        "{rows} documents cannot feed {lanes} lanes; set data.lanes to at most {rows}, or give more data"
    )]
    TooFewDocuments {
        /// Rows in all shards.
        rows: u64,
        /// Lanes of the run.
        lanes: usize,
    },
    /// No document of the data has a token.
    #[error("{what}: no usable document: {detail}")]
    NoDocuments {
        /// Which list of files was meant.
        what: &'static str,
        /// The counts.
        detail: String,
    },
    /// A setting is out of its range.
    #[error("{key} = {value}: {reason}")]
    Setting {
        /// The key as it stands in the configuration.
        key: &'static str,
        /// Its value.
        value: String,
        /// The rule it breaks.
        reason: String,
    },
    /// A tokenizer could not be opened, used, trained or saved.
    #[error("tokenizer {name}: {reason}")]
    Tokenizer {
        /// The spec or the file.
        name: String,
        /// The fault and the way out.
        reason: String,
    },
    /// The data set or the settings that decide the order differ from those of the checkpoint.
    #[error(
        "the checkpoint's place in the data does not fit this data: {}; restore them, or start a new run",
        changes.join("; ")
    )]
    Changed {
        /// One entry for each difference: what it was and what it is.
        changes: Vec<String>,
    },
    /// A stored position cannot be used.
    #[error("the checkpoint's place in the data is unusable: {reason}")]
    BadPosition {
        /// The fault.
        reason: String,
    },
    /// A worker thread panicked.
    #[error(
        "a data worker stopped unexpectedly: {reason}; this is a defect, please report it with the data that caused it"
    )]
    Worker {
        /// The panic's message.
        reason: String,
    },
    /// The source gave an error before and cannot go on.
    #[error("the data source has stopped after an earlier error")]
    Stopped,
}

/// The way out of a bad shard.
const SKIP: &str = "set data.on_bad_shard = \"skip\" (--on-bad-shard skip) to go on without it";

/// Whether an I/O error is about the path that was given or the rights to it, and not about the machine as a full disk is.
pub fn is_users_io(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::ReadOnlyFilesystem
            | ErrorKind::InvalidInput
            | ErrorKind::AlreadyExists
    )
}

impl Error {
    /// Whether the user can correct it: data, settings, paths and rights are the user's. A full disk, a broken device or a
    /// defect of this program is a failure.
    pub fn is_user_mistake(&self) -> bool {
        match self {
            Self::Worker { .. } | Self::Stopped => false,
            Self::Io { source, .. } => is_users_io(source.kind()),
            _ => true,
        }
    }

    /// Whether it is the fault of one shard, which `data.on_bad_shard = "skip"` goes on without.
    pub(crate) fn is_bad_shard(&self) -> bool {
        matches!(self, Self::BadShard { .. } | Self::TextColumn { .. } | Self::Io { .. })
    }

    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }
}

/// What to do about an error of the system. Shards alone are opened and read through [`Error::Io`].
fn way_out(action: &str, source: &std::io::Error) -> String {
    let remedy = match source.kind() {
        ErrorKind::NotFound => "check that it, and what it may link to, is there",
        ErrorKind::PermissionDenied => "give the user of this program the right to do so",
        ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::AlreadyExists => "check the path",
        ErrorKind::ReadOnlyFilesystem => "choose a folder that can be written to",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room, or choose another disk",
        _ => "",
    };
    let skip = if matches!(action, "open" | "read") { SKIP } else { "" };
    let ways: Vec<&str> = [remedy, skip].into_iter().filter(|way| !way.is_empty()).collect();
    if ways.is_empty() { String::new() } else { format!("; {}", ways.join(", or ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_told_from_failures() {
        let io = |action, kind: ErrorKind| Error::io(Path::new("a.parquet"), action)(kind.into());
        let cases = [
            (Error::Stopped, false, ""),
            (Error::Worker { reason: "panic".into() }, false, "defect"),
            (Error::NoFiles { what: "data.train", pattern: "x".into() }, true, "folder"),
            (io("open", ErrorKind::NotFound), true, "link to, is there, or set data.on_bad_shard"),
            (io("read", ErrorKind::PermissionDenied), true, "the right to do so, or set"),
            (io("list", ErrorKind::PermissionDenied), true, "the right to do so"),
            (io("write", ErrorKind::ReadOnlyFilesystem), true, "can be written to"),
            (io("write", ErrorKind::StorageFull), false, "make room"),
            (io("read", ErrorKind::Other), false, "; set data.on_bad_shard = \"skip\" (--on-bad-shard skip)"),
        ];
        for (error, mistake, way) in cases {
            assert_eq!(error.is_user_mistake(), mistake, "{error}");
            assert!(error.to_string().contains(way), "{error}");
        }
        assert!(!io("list", ErrorKind::PermissionDenied).to_string().contains("on_bad_shard"));
        assert!(io("create", ErrorKind::Other).to_string().starts_with("a.parquet: cannot create: "));
    }
}
