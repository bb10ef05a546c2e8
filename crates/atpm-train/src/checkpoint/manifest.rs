//! The manifest: which files a checkpoint consists of, with sizes and checksums. A folder without a manifest
//! that fits it is no checkpoint.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::digest::{self, Digest};
use super::{Error, Result, layout};

/// The content of `manifest.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    format: String,
    version: u32,
    /// The checkpoint's step.
    pub(crate) step: u64,
    files: Vec<FileRecord>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRecord {
    name: String,
    bytes: u64,
    blake3: String,
}

/// The part of a manifest that every version has.
#[derive(Deserialize)]
struct Head {
    format: String,
    version: u32,
}

impl Manifest {
    /// The manifest of files just written.
    pub(crate) fn new(step: u64, files: Vec<(String, Digest)>) -> Self {
        let files = files
            .into_iter()
            .map(|(name, digest)| FileRecord { name, bytes: digest.bytes, blake3: digest.blake3 })
            .collect();
        Self { format: layout::FORMAT_NAME.into(), version: layout::FORMAT_VERSION, step, files }
    }

    /// Writes the manifest into its folder: from here on the folder is complete.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(layout::MANIFEST);
        let json =
            serde_json::to_vec_pretty(self).map_err(|error| Error::format(&path, error.to_string()))?;
        digest::write_file(&path, &json)?;
        Ok(())
    }

    /// Reads a folder's manifest and checks every file against it.
    ///
    /// # Errors
    /// [`Error::Incomplete`] with the file that is missing or damaged.
    pub(crate) fn verify(folder: &Path) -> Result<Self> {
        Self::check(folder, FileRecord::check_content)
    }

    /// As [`Self::verify`], but looks at sizes only: cheap enough to ask about every checkpoint after each save.
    ///
    /// # Errors
    /// As [`Self::verify`].
    pub(crate) fn verify_sizes(folder: &Path) -> Result<Self> {
        Self::check(folder, FileRecord::check_size)
    }

    fn check(
        folder: &Path,
        check_file: impl Fn(&FileRecord, &Path) -> std::result::Result<(), String>,
    ) -> Result<Self> {
        let incomplete = |reason: String| Error::Incomplete { path: PathBuf::from(folder), reason };
        if !folder.is_dir() {
            return Err(incomplete("there is no such folder".into()));
        }
        let manifest = Self::read(folder).map_err(incomplete)?;
        for name in [layout::MODEL, layout::OPTIMIZER, layout::STATE] {
            if !manifest.files.iter().any(|file| file.name == name) {
                return Err(incomplete(format!("{} does not list {name}", layout::MANIFEST)));
            }
        }
        for file in &manifest.files {
            check_file(file, folder).map_err(incomplete)?;
        }
        Ok(manifest)
    }

    fn read(folder: &Path) -> std::result::Result<Self, String> {
        let name = layout::MANIFEST;
        let json = match std::fs::read(folder.join(name)) {
            Ok(json) => json,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(format!("{name} is missing (it was never finished, or is half removed)"));
            }
            Err(error) => return Err(format!("{name} cannot be read: {error}")),
        };
        let damaged = |error: serde_json::Error| format!("{name} cannot be read: {error}");
        let head: Head = serde_json::from_slice(&json).map_err(damaged)?;
        if head.format != layout::FORMAT_NAME {
            return Err(format!("{name} is of a `{}`, not of an `{}`", head.format, layout::FORMAT_NAME));
        }
        if head.version != layout::FORMAT_VERSION {
            return Err(format!(
                "it has format version {}, this program reads version {}",
                head.version,
                layout::FORMAT_VERSION
            ));
        }
        serde_json::from_slice(&json).map_err(damaged)
    }
}

impl FileRecord {
    fn check_size(&self, folder: &Path) -> std::result::Result<(), String> {
        let name = &self.name;
        if Path::new(name).file_name() != Some(name.as_ref()) {
            return Err(format!("{} lists `{name}`, which is no plain file name", layout::MANIFEST));
        }
        let path = folder.join(name);
        let bytes = match std::fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(format!("{name} is missing"));
            }
            Err(error) => return Err(format!("{name} cannot be read: {error}")),
        };
        if bytes != self.bytes {
            return Err(format!("{name} has {bytes} bytes, the manifest says {}", self.bytes));
        }
        Ok(())
    }

    fn check_content(&self, folder: &Path) -> std::result::Result<(), String> {
        self.check_size(folder)?;
        let name = &self.name;
        let digest = digest::digest_file(&folder.join(name)).map_err(|error| error.to_string())?;
        if digest.blake3 != self.blake3 {
            return Err(format!("{name} is damaged: its checksum is not the manifest's"));
        }
        Ok(())
    }
}
