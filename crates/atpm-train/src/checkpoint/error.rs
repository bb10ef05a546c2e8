//! What can go wrong with a checkpoint.

use std::path::{Path, PathBuf};

/// Shorthand for results of this room.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong when a checkpoint is written, found or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried: `write`, `read`, `rename`, …
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A folder that is not a complete checkpoint: unfinished, damaged, or something else.
    #[error("{} is not a complete checkpoint: {reason}", path.display())]
    Incomplete {
        /// The folder.
        path: PathBuf,
        /// What is missing or damaged.
        reason: String,
    },
    /// A file whose content cannot be understood.
    #[error("{}: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Tensors in the file and in the model that do not correspond.
    #[error("{} does not fit this model: {}", path.display(), problems.join("; "))]
    Mismatch {
        /// The file.
        path: PathBuf,
        /// One sentence a tensor.
        problems: Vec<String>,
    },
    /// A tensor that must not be saved.
    #[error("`{name}` is not saved: {reason}; the last complete checkpoint stays as it is")]
    Refused {
        /// The tensor's name.
        name: String,
        /// Why.
        reason: String,
    },
    /// Reading or writing a tensor's elements failed.
    #[error(transparent)]
    Tensor(#[from] atpm_core::Error),
}

impl Error {
    /// Whether the user can set it right by giving another path or model: exit code 2 instead of 1.
    pub fn is_user_mistake(&self) -> bool {
        match self {
            Self::Incomplete { .. } | Self::Format { .. } | Self::Mismatch { .. } => true,
            Self::Io { source, .. } => atpm_data::is_users_io(source.kind()),
            Self::Refused { .. } | Self::Tensor(_) => false,
        }
    }

    /// For `map_err`: an I/O error with what was tried, and where.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_path_buf(), source }
    }

    /// A file that cannot be understood.
    pub(crate) fn format(path: &Path, reason: impl Into<String>) -> Self {
        Self::Format { path: path.to_path_buf(), reason: reason.into() }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::{NotFound, PermissionDenied, StorageFull};

    use super::*;

    // A full disk may refuse a folder as well as a file's bytes.
    #[test]
    fn who_has_to_act_depends_on_what_the_system_says() {
        for (kind, users) in [(NotFound, true), (PermissionDenied, true), (StorageFull, false)] {
            for action in ["create", "read", "write"] {
                let error = Error::io(action, Path::new("x"))(kind.into());
                assert_eq!(error.is_user_mistake(), users, "{error}");
            }
        }
    }
}
