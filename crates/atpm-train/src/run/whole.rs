//! Files that are written whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context;

/// [`replace`], and says which file could not be written.
///
/// # Errors
/// As [`replace`].
pub fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    replace(path, bytes).with_context(|| format!("cannot write {}", path.display()))
}

/// Writes beside the target first and renames, so that nobody meets half a file; what stood there gives way.
///
/// # Errors
/// Whatever the file system refuses; the target is then as it was.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    // Two programs that write the same file do not share what stands beside it.
    name.push(format!(".{}.partial", std::process::id()));
    let beside = path.with_file_name(name);
    let written = fill(&beside, bytes).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        // The error that is told is the first one.
        drop(fs::remove_file(&beside));
    }
    written
}

fn fill(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_stays_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.json");
        for text in ["old and longer", "new"] {
            write(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        // A folder stands where the file should go.
        let taken = folder.path().join("taken");
        fs::create_dir_all(taken.join("inside")).unwrap();
        let error = write(&taken, b"x").unwrap_err();
        assert!(error.to_string().contains("cannot write") && error.to_string().contains("taken"), "{error}");
        let mut names: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["results.json", "taken"]);
    }
}
