//! Folders that are damaged or of another kind are told apart, with the file and the reason.

use std::fs;
use std::path::Path;

use super::super::manifest::Manifest;
use super::super::tensor_file::{self, Encoding};
use super::super::{Error, digest, find_latest, load};
use super::Model;

const FILES: [&str; 4] = ["model.safetensors", "optimizer.safetensors", "state.json", "tokenizer.json"];

/// A run with complete checkpoints of steps 1 and 2, the second then changed by `damage`: it must be passed
/// over for the first, and refused when asked for, each time with `expected` in the reason.
fn check(damage: impl Fn(&Path), expected: &str) {
    let run = tempfile::tempdir().unwrap();
    let good = Model::new(1).save(run.path(), 1).unwrap();
    let bad = Model::new(2).save(run.path(), 2).unwrap();
    damage(&bad);
    let latest = find_latest(run.path()).unwrap();
    assert_eq!(latest.path, Some(good), "{expected}");
    assert_eq!(latest.passed_over.len(), 1);
    assert_eq!(latest.passed_over[0].0, bad);
    assert!(latest.passed_over[0].1.contains(expected), "{} / {expected}", latest.passed_over[0].1);
    let error = load(&bad).unwrap_err();
    assert!(error.is_user_mistake());
    assert!(error.to_string().contains(expected), "{error} / {expected}");
    assert!(error.to_string().contains("step-00000002"), "the folder is named: {error}");
}

// S1: sizes and checksums of each file are checked, not only the manifest's presence.
#[test]
fn a_changed_byte_in_any_file_is_found_and_named() {
    for name in FILES {
        for from_end in [false, true] {
            let damage = |folder: &Path| {
                let mut bytes = fs::read(folder.join(name)).unwrap();
                let at = if from_end { bytes.len() - 1 } else { bytes.len() / 2 };
                bytes[at] ^= 1;
                fs::write(folder.join(name), bytes).unwrap();
            };
            check(damage, &format!("{name} is damaged"));
        }
    }
}

#[test]
fn missing_and_cut_files_are_named() {
    for name in FILES {
        check(|folder| fs::remove_file(folder.join(name)).unwrap(), &format!("{name} is missing"));
        let cut = |folder: &Path| {
            let file = fs::OpenOptions::new().write(true).open(folder.join(name)).unwrap();
            file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        };
        check(cut, &format!("{name} has "));
    }
    check(|folder| fs::remove_file(folder.join("manifest.json")).unwrap(), "manifest.json is missing");
}

#[test]
fn a_manifest_that_cannot_be_right_is_refused() {
    let edit = |from: &str, to: &str| {
        let (from, to) = (from.to_string(), to.to_string());
        move |folder: &Path| {
            let path = folder.join("manifest.json");
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(&from), "{text}");
            fs::write(&path, text.replacen(&from, &to, 1)).unwrap();
        }
    };
    check(edit("\"version\": 1", "\"version\": 7"), "format version 7, this program reads version 1");
    check(edit("\"version\": 1", "\"version\": 7, \"new\": 0"), "format version 7");
    check(edit("atpm-checkpoint", "recipe"), "of a `recipe`");
    check(edit("\"name\": \"state.json\"", "\"name\": \"../state.json\""), "does not list state.json");
    check(edit("\"name\": \"tokenizer.json\"", "\"name\": \"../x\""), "no plain file name");
    check(|folder| fs::write(folder.join("manifest.json"), "{").unwrap(), "manifest.json cannot be read");
}

/// Puts a folder's manifest in order again after its files were changed on purpose.
fn seal(folder: &Path, step: u64) {
    let files = FILES
        .iter()
        .map(|name| (name.to_string(), digest::digest_file(&folder.join(name)).unwrap()))
        .collect();
    Manifest::new(step, files).write(folder).unwrap();
}

// S8: a file of another dtype is refused, although its manifest is in order.
#[test]
fn a_checkpoint_of_another_dtype_is_refused() {
    for (file, prefixes) in [("model.safetensors", vec![""]), ("optimizer.safetensors", vec!["m.", "v."])] {
        let run = tempfile::tempdir().unwrap();
        let model = Model::new(1);
        let path = model.save(run.path(), 1).unwrap();
        let tensors: Vec<_> = prefixes
            .iter()
            .flat_map(|prefix| {
                model.parameters.iter().map(move |p| (format!("{prefix}{}", p.name), &p.value))
            })
            .collect();
        tensor_file::write(&path.join(file), &tensors, Encoding::Bf16, ("format", "pt")).unwrap();
        seal(&path, 1);
        let error = load(&path).unwrap().restore(&model.parameters, &model.m, &model.v).unwrap_err();
        assert!(error.to_string().contains("is stored as BF16, only F32 is read here"), "{error}");
        assert!(error.to_string().contains(file), "{error}");
    }
}

#[test]
fn files_that_contradict_their_manifest_are_refused() {
    let run = tempfile::tempdir().unwrap();
    let path = Model::new(1).save(run.path(), 1).unwrap();
    seal(&path, 9);
    assert!(load(&path).unwrap_err().to_string().contains("of step 1, its manifest of step 9"));
    for (content, expected) in [
        (&b"abc"[..], "too few"),
        (&[255u8; 64][..], "cannot be right"),
        (b"\x02\0\0\0\0\0\0\0[]", "its header cannot be read"),
        (b"\x02\0\0\0\0\0\0\0{}xx", "but its header announces 10"),
    ] {
        fs::write(path.join("model.safetensors"), content).unwrap();
        seal(&path, 1);
        let error = load(&path).unwrap_err();
        assert!(matches!(error, Error::Format { .. }));
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn paths_that_are_no_checkpoints_are_refused() {
    let run = tempfile::tempdir().unwrap();
    fs::write(run.path().join("file"), "x").unwrap();
    for name in ["nowhere", "file"] {
        let error = load(&run.path().join(name)).unwrap_err();
        assert!(error.is_user_mistake() && error.to_string().contains(name), "{error}");
    }
    assert!(load(run.path()).unwrap_err().to_string().contains("manifest.json is missing"));
}
