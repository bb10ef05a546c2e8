//! Which folder is taken, which are replaced, and which are removed.

use std::fs;

use super::super::{Latest, find_latest, load, prune};
use super::{Model, listing};

// S13: no checkpoints is an answer, not an error.
#[test]
fn a_run_without_checkpoints_has_no_latest() {
    let run = tempfile::tempdir().unwrap();
    assert_eq!(find_latest(&run.path().join("not/there")).unwrap(), Latest::default());
    assert_eq!(find_latest(run.path()).unwrap(), Latest::default());
    fs::create_dir(run.path().join("checkpoints")).unwrap();
    assert_eq!(find_latest(run.path()).unwrap(), Latest::default());
}

#[test]
fn the_newest_step_is_taken_by_number() {
    let run = tempfile::tempdir().unwrap();
    for step in [3, 100_000_000, 99_999_999] {
        Model::new(step).save(run.path(), step).unwrap();
    }
    for foreign in ["step-", "step-x", "best", "step-00000004.bak"] {
        fs::create_dir(run.path().join("checkpoints").join(foreign)).unwrap();
    }
    let latest = find_latest(run.path()).unwrap();
    assert_eq!(latest.path, Some(run.path().join("checkpoints/step-100000000")));
    assert_eq!(latest.passed_over, []);
}

// S2: what a killed save left is passed over, refused when asked for, and replaced by the next save.
#[test]
fn left_overs_of_the_same_step_are_replaced() {
    for left_over in ["step-00000005", ".tmp-step-00000005"] {
        let run = tempfile::tempdir().unwrap();
        let good = Model::new(1).save(run.path(), 4).unwrap();
        let dirty = run.path().join("checkpoints").join(left_over);
        fs::create_dir(&dirty).unwrap();
        fs::write(dirty.join("model.safetensors"), "cut").unwrap();
        let latest = find_latest(run.path()).unwrap();
        assert_eq!(latest.path, Some(good));
        assert_eq!(latest.passed_over.len(), 1);
        assert!(load(&dirty).unwrap_err().is_user_mistake());

        let model = Model::new(2);
        let path = model.save(run.path(), 5).unwrap();
        assert_eq!(listing(run.path()), ["step-00000004", "step-00000005"]);
        let restored = Model::new(3);
        load(&path).unwrap().restore(&restored.parameters, &restored.m, &restored.v).unwrap();
        assert_eq!(restored.hash(), model.hash());
    }
}

#[test]
fn a_complete_checkpoint_of_the_same_step_is_replaced() {
    let run = tempfile::tempdir().unwrap();
    Model::new(1).save(run.path(), 5).unwrap();
    let model = Model::new(2);
    let path = model.save(run.path(), 5).unwrap();
    assert_eq!(listing(run.path()), ["step-00000005"]);
    let restored = Model::new(3);
    load(&path).unwrap().restore(&restored.parameters, &restored.m, &restored.v).unwrap();
    assert_eq!(restored.hash(), model.hash());
}

// S1: stopped between the two renames of a replacement, the older checkpoint of the step is still found.
#[test]
fn a_checkpoint_that_was_being_replaced_is_found() {
    let run = tempfile::tempdir().unwrap();
    let path = Model::new(1).save(run.path(), 5).unwrap();
    let aside = run.path().join("checkpoints/.old-step-00000005");
    fs::rename(&path, &aside).unwrap();
    assert_eq!(find_latest(run.path()).unwrap().path, Some(aside));
    Model::new(1).save(run.path(), 6).unwrap();
    assert_eq!(listing(run.path()), ["step-00000005", "step-00000006"]);
    load(&path).unwrap();
}

// S15: a place that cannot be written gives one sentence with the path.
#[test]
fn a_place_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let error = Model::new(1).save(&file.join("run"), 1).unwrap_err();
    assert!(error.is_user_mistake());
    let text = error.to_string();
    assert!(text.contains("cannot create") && text.contains("file/run/checkpoints"), "{text}");
}

#[test]
fn pruning_keeps_the_newest_every_nth_and_the_protected() {
    let table: [(u64, u64, u64, &[u64]); 5] = [
        (2, 0, 8, &[7, 8]),
        (0, 0, 8, &[8]),
        (1, 3, 8, &[3, 6, 8]),
        (1, 0, 2, &[2, 8]),
        (9, 0, 8, &[1, 2, 3, 4, 5, 6, 7, 8]),
    ];
    for (keep_last, keep_every, protect, expected) in table {
        let run = tempfile::tempdir().unwrap();
        let paths: Vec<_> = (1..=8).map(|step| Model::new(step).save(run.path(), step).unwrap()).collect();
        let removed = prune(run.path(), keep_last, keep_every, &paths[protect as usize - 1]).unwrap();
        let expected: Vec<String> = expected.iter().map(|step| format!("step-{step:08}")).collect();
        assert_eq!(listing(run.path()), expected, "keep_last {keep_last}, keep_every {keep_every}");
        assert_eq!(removed.len(), 8 - expected.len());
    }
}

// S3: a half-removed folder counts for nothing, so the newest complete one survives.
#[test]
fn incomplete_folders_do_not_count_as_kept() {
    let run = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (1..=4).map(|step| Model::new(step).save(run.path(), step).unwrap()).collect();
    fs::remove_file(paths[3].join("manifest.json")).unwrap();
    prune(run.path(), 1, 0, &run.path().join("elsewhere")).unwrap();
    assert_eq!(find_latest(run.path()).unwrap().path, Some(paths[2].clone()));
}

// S3: several prunings at once agree; S4: a folder removed by hand stops nothing.
#[test]
fn folders_that_vanish_meanwhile_are_no_error() {
    let run = tempfile::tempdir().unwrap();
    for step in 1..=20 {
        let newest = Model::new(step).save(run.path(), step).unwrap();
        std::thread::scope(|scope| {
            let prunings: Vec<_> = (0..4).map(|_| scope.spawn(|| prune(run.path(), 1, 0, &newest))).collect();
            for pruning in prunings {
                pruning.join().unwrap().unwrap();
            }
        });
        assert_eq!(listing(run.path()).len(), 1, "after step {step}");
    }
    fs::remove_dir_all(run.path().join("checkpoints/step-00000020")).unwrap();
    let newest = Model::new(21).save(run.path(), 21).unwrap();
    assert!(prune(run.path(), 3, 0, &newest).unwrap().is_empty());
    assert_eq!(find_latest(run.path()).unwrap().path, Some(newest));
}
