//! Whole runs on demo shards.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use atpm_data::demo::{self, DemoOptions};
use atpm_train::report::jsonl;
use atpm_train::report::metrics::Record;
use atpm_train::run::config::Run;
use atpm_train::run::exit;
use atpm_train::run::folder::Resume;
use atpm_train::run::logging::Console;
use atpm_train::training::signals::StopFlag;
use atpm_train::training::{Outcome, Stopped, train};

const CONFIG: &str = r#"
[model]
d_model = 32
layers = 2
heads = 2
address = 8
key = 8
value = 8
rank = 4
mlp = 64
[data]
train = "unset"
tokenizer = "bytes"
lanes = 4
[train]
steps = 12
rows = 2
tokens = 64
accumulate = 2
[optimizer]
lr = 1e-2
[schedule]
warmup = 3
[eval]
batches = 2
rows = 2
[report]
telemetry_every = 5
"#;

/// A folder with demo shards and room for runs.
struct Lab(tempfile::TempDir);

impl Lab {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options =
            DemoOptions { train_bytes: 60_000, val_bytes: 8_000, row_group: 16, ..DemoOptions::default() };
        demo::write(folder.path(), &options).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, name: &str, overrides: &[&str]) -> Run {
        let paths = [
            format!("run_dir={}", self.path(name).display()),
            format!("data.train={}", self.path("train_*.parquet").display()),
            format!("data.val={}", self.path("val_*.parquet").display()),
        ];
        let all: Vec<_> = paths.iter().map(String::as_str).chain(overrides.iter().copied()).collect();
        Run::from_toml(CONFIG, "test").unwrap().with(&all).unwrap()
    }
}

fn go(run: &Run, resume: &Resume) -> Outcome {
    train(run, resume, &StopFlag::default(), &Console::default()).unwrap()
}

fn checkpoint_files(run_dir: &Path, step: u64) -> Vec<Vec<u8>> {
    let folder = run_dir.join(format!("checkpoints/step-{step:08}"));
    ["model.safetensors", "optimizer.safetensors"]
        .map(|name| std::fs::read(folder.join(name)).unwrap())
        .into()
}

/// What must not depend on interruptions.
type Essence = (u64, Option<f64>, f64, Option<f64>, u64, u64);

fn essence(record: &Record) -> Essence {
    let Record { step, loss, lr, grad_norm_preclip, tokens, target_tokens, .. } = *record;
    (step, loss, lr, grad_norm_preclip, tokens, target_tokens)
}

fn essences(run_dir: &Path) -> Vec<Essence> {
    jsonl::read(run_dir).unwrap().iter().map(essence).collect()
}

#[test]
fn a_run_learns_and_records_every_step_once() {
    let lab = Lab::new();
    let run = lab.run("a", &["train.steps=30", "eval.every=10"]);
    let outcome = go(&run, &Resume::Never);
    let records = jsonl::read(run.run_dir()).unwrap();
    // O1: one record a step, what happened after it inside.
    assert_eq!(records.iter().map(|record| record.step).collect::<Vec<_>>(), (1..=30).collect::<Vec<_>>());
    let evaluated: Vec<_> = records.iter().filter(|r| r.eval.is_some()).map(|r| r.step).collect();
    assert_eq!(evaluated, [10, 20, 30]);
    let text = std::fs::read_to_string(run.run_dir().join("metrics.jsonl")).unwrap();
    let observed = text.lines().filter(|line| line.contains("\"half_life\"")).count();
    assert_eq!(observed, 6, "telemetry every 5 steps");

    let mean = |records: &[Record]| records.iter().filter_map(|r| r.loss).sum::<f64>() / records.len() as f64;
    let (first, last) = (mean(&records[..5]), mean(&records[25..]));
    assert!(first > 4.5, "bytes start near ln 257 = 5.5, got {first}");
    assert!(last < first - 1.0, "{first} → {last}");
    let evaluation = outcome.eval.as_ref().unwrap();
    assert!(
        (evaluation.loss / std::f64::consts::LN_2 - evaluation.bits_per_byte).abs() < 0.05,
        "bytes are tokens"
    );
    assert_eq!((outcome.step, outcome.stopped), (30, Stopped::Finished));
    assert_eq!(outcome.tokens, 30 * 2 * 2 * 64);

    // The resolved settings read back; the log is there.
    let config = std::fs::read_to_string(run.run_dir().join("config.toml")).unwrap();
    let resolved = Run::from_toml(&config, "config.toml").unwrap();
    assert_eq!(resolved.model().vocab, 320, "filled in from the tokenizer");
    assert_eq!(resolved.with(&["model.vocab=0"]).unwrap(), run);
    assert!(run.run_dir().join("train.log").exists());
}

// S10, S9, T5: stopping, resuming, evaluating and observing change no bit of what training does.
#[test]
fn interruptions_change_no_bit() {
    let lab = Lab::new();
    let straight = lab.run("straight", &["report.telemetry_every=0"]);
    go(&straight, &Resume::Never);
    let broken = lab.run("broken", &["eval.every=2", "train.stop_after=4"]);
    assert_eq!(go(&broken, &Resume::Never).stopped, Stopped::StopAfter);
    let broken = lab.run("broken", &["eval.every=3", "train.stop_after=9", "checkpoint.every=2"]);
    assert_eq!(go(&broken, &Resume::Auto).resumed_from, Some(4));
    let broken = lab.run("broken", &["data.prefetch=0"]);
    let outcome = go(&broken, &Resume::Auto);
    assert_eq!((outcome.resumed_from, outcome.stopped), (Some(9), Stopped::Finished));

    assert_eq!(essences(broken.run_dir()), essences(straight.run_dir()));
    assert_eq!(checkpoint_files(broken.run_dir(), 12), checkpoint_files(straight.run_dir(), 12));
    let marks: Vec<_> = jsonl::read(broken.run_dir())
        .unwrap()
        .iter()
        .filter_map(|record| record.resumed_from.map(|from| (record.step, from)))
        .collect();
    assert_eq!(marks, [(5, 4), (10, 9)]);
}

// O1, O4: an older checkpoint replaces what came after it; newer checkpoints are set aside.
#[test]
fn going_back_to_an_older_checkpoint() {
    let lab = Lab::new();
    let run = lab.run("a", &["train.steps=8", "checkpoint.every=2", "checkpoint.keep_last=9"]);
    go(&run, &Resume::Never);
    let before = essences(run.run_dir());
    let from = run.run_dir().join("checkpoints/step-00000004");
    let outcome = go(&run.with(&["train.stop_after=6"]).unwrap(), &Resume::From(from));
    assert_eq!((outcome.resumed_from, outcome.step), (Some(4), 6));
    assert_eq!(essences(run.run_dir()), before[..6]);
    assert!(run.run_dir().join("checkpoints/abandoned-step-00000008").exists());
    assert_eq!(go(&run, &Resume::Auto).resumed_from, Some(6));
    assert_eq!(essences(run.run_dir()), before);
}

// S13: a folder with checkpoints is refused without --resume; auto without checkpoints starts afresh.
#[test]
fn a_used_folder_is_refused() {
    let lab = Lab::new();
    let run = lab.run("a", &["train.steps=2"]);
    assert_eq!(go(&run, &Resume::Auto).resumed_from, None);
    let again = train(&run, &Resume::Never, &StopFlag::default(), &Console::default()).unwrap_err();
    assert_eq!(exit::code(&again), 2);
    assert!(
        again.to_string().contains("step-00000002") && again.to_string().contains("--resume auto"),
        "{again}"
    );
    let outcome = go(&run, &Resume::Auto);
    assert_eq!(
        (outcome.resumed_from, outcome.step, outcome.loss),
        (Some(2), 2, None),
        "nothing is left to do"
    );
}

// S14: another model is refused with both values; another learning rate or batch size goes on.
#[test]
fn settings_that_changed_since_the_checkpoint() {
    let lab = Lab::new();
    go(&lab.run("a", &["train.steps=2"]), &Resume::Never);
    let other = lab.run("a", &["model.mlp=96"]);
    let error = train(&other, &Resume::Auto, &StopFlag::default(), &Console::default()).unwrap_err();
    assert_eq!(exit::code(&error), 2);
    assert!(error.to_string().contains("model.mlp: 64 → 96"), "{error}");
    let milder = lab.run("a", &["train.steps=3", "optimizer.lr=1e-3"]);
    assert_eq!(go(&milder, &Resume::Auto).step, 3);
}

// O4: a raised flag ends the run at a step boundary with a checkpoint that resumes exactly.
#[test]
fn a_signal_saves_and_the_run_goes_on_later() {
    let lab = Lab::new();
    let straight = lab.run("straight", &[]);
    go(&straight, &Resume::Never);
    let run = lab.run("stopped", &[]);
    let stop = StopFlag::default();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            while jsonl::read(run.run_dir()).map_or(0, |records| records.len()) < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.raise(15);
        });
        train(&run, &Resume::Never, &stop, &Console::default()).unwrap()
    });
    if outcome.step < 12 {
        assert_eq!(outcome.stopped, Stopped::Signal(15));
        assert!(outcome.checkpoint.unwrap().ends_with(format!("step-{:08}", outcome.step)));
        go(&run, &Resume::Auto);
    }
    assert_eq!(essences(run.run_dir()), essences(straight.run_dir()));
    assert_eq!(checkpoint_files(run.run_dir(), 12), checkpoint_files(straight.run_dir(), 12));
}

// The run's own tokenizer is trained once, and travels with its checkpoints.
#[test]
fn a_run_trains_its_own_tokenizer() {
    let lab = Lab::new();
    let run = lab.run("a", &["data.tokenizer=bpe:300", "train.steps=2"]);
    go(&run, &Resume::Never);
    assert!(run.run_dir().join("tokenizer.json").exists());
    std::fs::remove_file(run.run_dir().join("tokenizer.json")).unwrap();
    let outcome = go(&run.with(&["train.steps=3"]).unwrap(), &Resume::Auto);
    assert_eq!((outcome.resumed_from, outcome.step), (Some(2), 3));
    let other = run.with(&["data.tokenizer=bytes", "model.vocab=320"]).unwrap();
    let error = train(&other, &Resume::Auto, &StopFlag::default(), &Console::default()).unwrap_err();
    assert!(error.to_string().contains("tokenizer"), "{error}");
}
