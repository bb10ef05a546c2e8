//! A digest that tells whether a shard is still the same file.
//!
//! Data sets of up to 1 GiB are hashed whole.
//! Of larger ones, each file's size, its last 64 KiB (which hold the footer) and 16 blocks of 4 KiB spread over it are hashed,
//! so that opening a terabyte stays quick; a change that misses all of them goes unseen.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::{Error, Result};

const WHOLE_LIMIT: u64 = 1 << 30;
const FOOTER_BLOCK: u64 = 64 << 10;
const BLOCK: u64 = 4 << 10;
const BLOCKS: u64 = 16;

/// The digest of the file at `path`, `bytes` long, of a data set of `total` bytes.
pub(super) fn digest(path: &Path, bytes: u64, total: u64) -> Result<String> {
    let mut file = File::open(path).map_err(Error::io(path, "open"))?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(&bytes.to_le_bytes());
    if total <= WHOLE_LIMIT {
        hasher.update_reader(file).map_err(Error::io(path, "read"))?;
    } else {
        let footer = bytes.saturating_sub(FOOTER_BLOCK);
        let spread = (0..BLOCKS).map(|block| (bytes / BLOCKS * block, BLOCK));
        for (start, length) in spread.chain([(footer, FOOTER_BLOCK)]) {
            file.seek(SeekFrom::Start(start)).map_err(Error::io(path, "read"))?;
            hasher.update_reader(Read::by_ref(&mut file).take(length)).map_err(Error::io(path, "read"))?;
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}
