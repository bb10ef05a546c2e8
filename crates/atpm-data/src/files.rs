//! From what a user writes to a list of shard files.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// The files that `patterns` name: in the order given, each folder and glob sorted by path, none twice.
///
/// A folder stands for the `.parquet` files directly in it. `what` names the setting in messages.
pub(crate) fn expand(what: &'static str, patterns: &[String]) -> Result<Vec<PathBuf>> {
    if patterns.is_empty() {
        return Err(Error::NoFiles { what, pattern: String::new() });
    }
    let mut seen = HashSet::new();
    let mut files = Vec::new();
    for pattern in patterns {
        let found = one(pattern)?;
        if found.is_empty() {
            return Err(Error::NoFiles { what, pattern: pattern.clone() });
        }
        for file in found {
            if seen.insert(identity(&file)) {
                files.push(file);
            }
        }
    }
    Ok(files)
}

/// The files of `data.train` that `data.val` names too, by whatever path or link, in reading order. Loss on them says
/// nothing about text that the model has not seen.
///
/// # Errors
/// Patterns that match nothing; an empty `val` has no file in common.
pub fn common_files(train: &[String], val: &[String]) -> Result<Vec<PathBuf>> {
    if val.is_empty() {
        return Ok(Vec::new());
    }
    let val: HashSet<PathBuf> = expand("data.val", val)?.iter().map(|file| identity(file)).collect();
    let train = expand("data.train", train)?;
    Ok(train.into_iter().filter(|file| val.contains(&identity(file))).collect())
}

/// What a file is known by, however it was named.
fn identity(file: &Path) -> PathBuf {
    file.canonicalize().unwrap_or_else(|_| file.to_owned())
}

fn one(pattern: &str) -> Result<Vec<PathBuf>> {
    let path = Path::new(pattern);
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    if path.is_dir() {
        return in_folder(path);
    }
    let matches = glob::glob(pattern)
        .map_err(|error| Error::BadPattern { pattern: pattern.into(), reason: error.to_string() })?;
    let mut files = Vec::new();
    for entry in matches {
        let path = entry.map_err(|error| {
            let path = error.path().to_owned();
            Error::Io { path, action: "list", source: error.into() }
        })?;
        if path.is_dir() {
            files.extend(in_folder(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

fn in_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(Error::io(folder, "list"))? {
        let path = entry.map_err(Error::io(folder, "list"))?.path();
        // A link that leads nowhere is listed too: whoever opens it decides what a missing shard means.
        if !path.is_dir() && path.extension().is_some_and(|extension| extension == "parquet") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_folders_and_globs_expand_in_order_and_once() {
        let dir = crate::testing::folder();
        for name in ["b.parquet", "a.parquet", "c.txt"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        std::fs::create_dir(dir.path().join("d")).unwrap();
        let names = |patterns: &[&str]| {
            let patterns: Vec<_> =
                patterns.iter().map(|part| dir.path().join(part).display().to_string()).collect();
            let files = expand("data.train", &patterns).map_err(|error| error.to_string())?;
            Ok::<_, String>(
                files
                    .iter()
                    .map(|file| file.file_name().unwrap().to_str().unwrap().to_owned())
                    .collect::<Vec<_>>(),
            )
        };
        assert_eq!(names(&["."]).unwrap(), ["a.parquet", "b.parquet"]);
        assert_eq!(names(&["b.parquet", "*.parquet"]).unwrap(), ["b.parquet", "a.parquet"]);
        assert_eq!(names(&["c.txt"]).unwrap(), ["c.txt"]);
        for nothing in ["none.parquet", "d", "*.csv"] {
            assert!(names(&[nothing]).unwrap_err().contains("matches no parquet file"), "{nothing}");
        }
        assert!(names(&["[.parquet"]).unwrap_err().contains("not a valid pattern"));
        assert!(expand("data.val", &[]).unwrap_err().to_string().contains("data.val"));
    }

    #[test]
    #[cfg(unix)]
    fn files_of_training_and_validation_are_told() {
        let dir = crate::testing::folder();
        for name in ["a.parquet", "b.parquet"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        std::fs::create_dir(dir.path().join("val")).unwrap();
        let link = dir.path().join("val/c.parquet");
        std::os::unix::fs::symlink(dir.path().join("b.parquet"), link).unwrap();
        let common = |train: &str, val: &[&str]| {
            let path = |part: &str| dir.path().join(part).display().to_string();
            let val: Vec<_> = val.iter().map(|part| path(part)).collect();
            common_files(&[path(train)], &val).map(|files| files.len())
        };
        assert_eq!(common("*.parquet", &["val"]).unwrap(), 1);
        assert_eq!(common(".", &["a.parquet", "b.parquet"]).unwrap(), 2);
        assert_eq!(common("a.parquet", &["val"]).unwrap(), 0);
        assert_eq!(common("a.parquet", &[]).unwrap(), 0);
        assert!(common("a.parquet", &["none"]).unwrap_err().to_string().contains("data.val"));
    }
}
