//! Saves that are killed at any moment, and saves that do not fit on the disk.
//!
//! The saving process is this test binary again, told by an environment variable to save in a loop.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::super::{find_latest, load, prune};
use super::{Model, listing};

const RUN_DIR: &str = "ATPM_TEST_SAVE_LOOP";
const WIDTH: usize = 20_000;

fn model(step: u64) -> Model {
    Model::with_shapes(step, &[("a.weight", &[WIDTH]), ("b.weight", &[3, 5])])
}

/// The saving process; does nothing unless it is told where to save.
#[test]
fn saving_process() {
    let Ok(run_dir) = std::env::var(RUN_DIR) else { return };
    let run_dir = Path::new(&run_dir);
    let first = find_latest(run_dir).unwrap().path.map_or(1, |path| load(&path).unwrap().state.step + 1);
    for step in first.. {
        match model(step).save(run_dir, step) {
            Ok(path) => {
                eprintln!("saved {step}");
                prune(run_dir, 2, 0, &path).unwrap();
            }
            Err(error) => {
                eprintln!("failed {step}: {error}");
                return;
            }
        }
    }
}

fn saving(mut command: Command, run_dir: &Path) -> Command {
    command
        .args(["checkpoint::tests::interrupted::saving_process", "--exact", "--nocapture"])
        .env(RUN_DIR, run_dir)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// The newest checkpoint is complete, at least as new as `at_least`, and has the bits of its step.
fn check_latest(run_dir: &Path, at_least: u64) -> u64 {
    let latest = find_latest(run_dir).unwrap();
    let loaded = load(&latest.path.unwrap()).unwrap();
    let step = loaded.state.step;
    assert!(step >= at_least, "step {at_least} was reported as saved, step {step} is the newest");
    let restored = model(0);
    loaded.restore(&restored.parameters, &restored.m, &restored.v).unwrap();
    assert_eq!(restored.hash(), model(step).hash());
    step
}

// S1: kill -9 at random moments of a save loop; the newest complete checkpoint is always found.
#[test]
fn a_killed_save_never_costs_a_finished_checkpoint() {
    let run = tempfile::tempdir().unwrap();
    let mut saved = 0;
    for round in 0..10u64 {
        let mut child = saving(Command::new(std::env::current_exe().unwrap()), run.path()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        // At least one save a round, then a moment that differs from round to round.
        let wanted = saved + 1;
        while saved < wanted {
            let line = lines.next().expect("the saving process ended").unwrap();
            assert!(!line.starts_with("failed"), "{line}");
            if let Some(step) = line.strip_prefix("saved ") {
                saved = step.parse().unwrap();
            }
        }
        std::thread::sleep(Duration::from_micros(round * 1_370));
        child.kill().unwrap();
        child.wait().unwrap();
        saved = check_latest(run.path(), saved);
    }
}

// S1: a save that does not fit leaves the old checkpoint intact and nothing half-written.
#[test]
fn a_save_that_does_not_fit_leaves_the_old_checkpoint() {
    let run = tempfile::tempdir().unwrap();
    model(1).save(run.path(), 1).unwrap();
    // A limit of 64 blocks of 512 bytes a file, and the signal that would end the process ignored: writes
    // fail as they do on a full disk.
    let mut shell = Command::new("sh");
    shell
        .args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap());
    let output = saving(shell, run.path()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("failed 2: cannot write") && stderr.contains("model.safetensors"), "{stderr}");
    assert_eq!(listing(run.path()), ["step-00000001"]);
    assert_eq!(check_latest(run.path(), 1), 1);
}
