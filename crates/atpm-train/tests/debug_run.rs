//! configs/debug.toml against its golden losses: a change of numerics must be meant.
//!
//! If it is meant, `UPDATE_GOLDEN=1 cargo test -p atpm-train --test debug_run` writes the file anew; the
//! change log says why.
#![expect(clippy::unwrap_used, reason = "a test's helpers fail as the test does")]

use std::path::PathBuf;

use atpm_core::Precision;
use atpm_data::demo::{self, DemoOptions};
use atpm_train::report::jsonl;
use atpm_train::run::cli::ConfigArgs;
use atpm_train::run::config;
use atpm_train::run::folder::Resume;
use atpm_train::run::logging::Console;
use atpm_train::training::signals::StopFlag;
use atpm_train::training::train;
use serde::{Deserialize, Serialize};

/// Processors differ in the last bits of a matrix product, and training carries them on.
const RELATIVE: f64 = 2e-3;

#[derive(Debug, Serialize, Deserialize)]
struct Golden {
    /// What the numbers are.
    about: String,
    /// Training loss of every step, in nats.
    losses: Vec<f64>,
    /// Validation loss after the last step, in nats.
    final_eval_loss: f64,
}

/// Losses of every step and the final validation loss of configs/debug.toml, with the products' operands in `dtype`.
fn debug_run(dtype: &str) -> (Vec<f64>, f64) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    demo::write(folder.path(), &DemoOptions::default()).unwrap();
    let run = config::load(&ConfigArgs {
        config: Some(root().join("configs/debug.toml")),
        set: vec![
            format!("run_dir={}", path("run")),
            format!("data.train={}", path("train_*.parquet")),
            format!("data.val={}", path("val_*.parquet")),
            format!("train.dtype={dtype}"),
        ],
    })
    .unwrap();
    let outcome = train(&run, &Resume::Never, &StopFlag::default(), &Console::default()).unwrap();
    let losses = jsonl::read(run.run_dir()).unwrap().iter().map(|r| r.loss.unwrap()).collect();
    (losses, outcome.eval.unwrap().loss)
}

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn golden_file() -> PathBuf {
    root().join("configs/debug.losses.json")
}

fn golden() -> Golden {
    serde_json::from_str(&std::fs::read_to_string(golden_file()).unwrap()).unwrap()
}

#[test]
fn losses_are_the_golden_ones() {
    let (losses, final_eval_loss) = debug_run("f32");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let about =
            "configs/debug.toml on `atpm-train data demo`, nats; see crates/atpm-train/tests/debug_run.rs";
        let golden = Golden { about: about.into(), losses, final_eval_loss };
        std::fs::write(golden_file(), serde_json::to_string_pretty(&golden).unwrap() + "\n").unwrap();
        return;
    }
    let golden = golden();
    assert_eq!(losses.len(), golden.losses.len());
    for (step, (loss, expected)) in (1..).zip(losses.iter().zip(&golden.losses)) {
        assert!((loss / expected - 1.0).abs() < RELATIVE, "step {step}: {loss}, expected {expected}");
    }
    let ratio = final_eval_loss / golden.final_eval_loss;
    assert!((ratio - 1.0).abs() < RELATIVE, "{final_eval_loss}, expected {}", golden.final_eval_loss);
}

/// What rounding operands to bf16 may move a loss by; another seed moves it by more.
const BF16_RELATIVE: f64 = 1e-2;

// Where the processor has no bf16 products, the run is the f32 one, and passes as such.
#[test]
fn bf16_losses_follow_the_golden_ones() {
    let (losses, final_eval_loss) = debug_run("bf16");
    let golden = golden();
    let pairs =
        losses.iter().chain([&final_eval_loss]).zip(golden.losses.iter().chain([&golden.final_eval_loss]));
    for (step, (loss, expected)) in (1..).zip(pairs) {
        assert!((loss / expected - 1.0).abs() < BF16_RELATIVE, "step {step}: {loss}, expected {expected}");
    }
    let differs =
        losses.iter().zip(&golden.losses).any(|(loss, expected)| (loss / expected - 1.0).abs() > 1e-6);
    assert!(differs || !Precision::Bf16.supported(), "dtype = bf16 changed nothing");
}
