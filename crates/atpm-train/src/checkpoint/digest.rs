//! Writing a file while its checksum is taken, and taking the checksum of a file that is there.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use super::{Error, Result};

const BUFFER_BYTES: usize = 1 << 20;

/// Size and checksum of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Digest {
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// BLAKE3, in hex.
    pub(crate) blake3: String,
}

/// A new file whose checksum is taken on the way.
pub(crate) struct DigestWriter {
    path: PathBuf,
    file: BufWriter<File>,
    hasher: blake3::Hasher,
    bytes: u64,
}

impl DigestWriter {
    /// Creates the file, or empties it.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(Error::io("create", path))?;
        Ok(Self {
            path: path.to_path_buf(),
            file: BufWriter::with_capacity(BUFFER_BYTES, file),
            hasher: blake3::Hasher::new(),
            bytes: 0,
        })
    }

    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(Error::io("write", &self.path))?;
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Brings everything to the disk and gives what was written.
    pub(crate) fn finish(self) -> Result<Digest> {
        let file = self
            .file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .map_err(Error::io("write", &self.path))?;
        file.sync_all().map_err(Error::io("write", &self.path))?;
        Ok(Digest { bytes: self.bytes, blake3: self.hasher.finalize().to_hex().to_string() })
    }
}

/// Writes a whole small file and brings it to the disk.
pub(crate) fn write_file(path: &Path, bytes: &[u8]) -> Result<Digest> {
    let mut file = DigestWriter::create(path)?;
    file.write(bytes)?;
    file.finish()
}

/// Size and checksum of a file on the disk.
pub(crate) fn digest_file(path: &Path) -> Result<Digest> {
    let mut file = BufReader::with_capacity(BUFFER_BYTES, File::open(path).map_err(Error::io("read", path))?);
    let mut hasher = blake3::Hasher::new();
    let mut block = vec![0u8; BUFFER_BYTES];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut block).map_err(Error::io("read", path))?;
        if read == 0 {
            return Ok(Digest { bytes, blake3: hasher.finalize().to_hex().to_string() });
        }
        hasher.update(&block[..read]);
        bytes += read as u64;
    }
}

/// Brings a folder's entries (new, renamed, removed files) to the disk.
pub(crate) fn sync_folder(path: &Path) -> Result<()> {
    File::open(path).and_then(|folder| folder.sync_all()).map_err(Error::io("sync", path))
}
