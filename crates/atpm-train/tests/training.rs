//! Whole runs on demo shards.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod lab;

use std::path::Path;
use std::time::{Duration, Instant};

use atpm_data::demo::DemoOptions;
use atpm_train::report::jsonl;
use atpm_train::report::metrics::Record;
use atpm_train::run::config::Run;
use atpm_train::run::exit;
use atpm_train::run::folder::Resume;
use atpm_train::run::logging::Console;
use atpm_train::training::signals::StopFlag;
use atpm_train::training::{Stopped, train};
use serde_json::Value;

use lab::{Lab, checkpoint_files, go};

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

impl Lab {
    fn new() -> Self {
        Self::of(60_000, 16)
    }

    fn of(train_bytes: usize, row_group: usize) -> Self {
        Self::with(
            CONFIG,
            &DemoOptions { train_bytes, row_group, val_bytes: 8_000, ..DemoOptions::default() },
        )
    }
}

/// The place in the data that a checkpoint holds.
fn position(run_dir: &Path, step: u64) -> Value {
    let state = std::fs::read(run_dir.join(format!("checkpoints/step-{step:08}/state.json"))).unwrap();
    serde_json::from_slice::<Value>(&state).unwrap()["data"].take()
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

// The baselines go through the same trainer, checkpoints and resume as ATPM.
#[test]
fn baselines_learn_and_resume_bit_for_bit() {
    let lab = Lab::new();
    for kind in ["transformer", "lstm", "ntm"] {
        let set = format!("model.kind={kind}");
        let straight = lab.run(&format!("{kind}-straight"), &[&set]);
        go(&straight, &Resume::Never);
        let broken = format!("{kind}-broken");
        go(&lab.run(&broken, &[&set, "train.stop_after=5"]), &Resume::Never);
        let broken = lab.run(&broken, &[&set]);
        assert_eq!(go(&broken, &Resume::Auto).resumed_from, Some(5));
        let (straight, broken) = (straight.run_dir(), broken.run_dir());
        assert_eq!(checkpoint_files(straight, 12), checkpoint_files(broken, 12), "{kind}");
        let losses: Vec<f64> =
            jsonl::read(straight).unwrap().iter().filter_map(|record| record.loss).collect();
        assert!(losses[11] < losses[0] - 0.3, "{kind}: {losses:?}");
    }
    let refused =
        Run::from_toml(CONFIG, "test").unwrap().with(&["model.kind=ntm", "device=cuda"]).unwrap_err();
    assert!(refused.to_string().contains("no CUDA kernels"), "{refused}");
    assert_eq!(exit::code(&refused), 2);
}

// S9, D19: resumed in the second and in the third pass over the data, a run has the order of an uninterrupted one, and
// more steps than a pass has go on.
#[test]
fn a_resume_in_a_later_pass_goes_on_in_its_order() {
    let lab = Lab::of(8_000, 4);
    let settings = |more: &[&'static str]| [&["train.steps=150", "report.telemetry_every=0"], more].concat();
    let straight = lab.run("straight", &settings(&[]));
    assert_eq!(go(&straight, &Resume::Never).stopped, Stopped::Finished);
    let pass = |run: &Run, step| {
        let lanes = position(run.run_dir(), step)["lanes"].take();
        lanes.as_array().unwrap().iter().map(|lane| lane["epoch"].as_u64().unwrap()).min().unwrap()
    };
    assert!(pass(&straight, 150) >= 3, "the steps are enough for three passes");

    let broken = |stop| lab.run("broken", &settings(&[stop]));
    go(&broken("train.stop_after=60"), &Resume::Never);
    assert_eq!(pass(&broken("train.stop_after=60"), 60), 1, "stopped in the second pass");
    go(&broken("train.stop_after=100"), &Resume::Auto);
    assert_eq!(pass(&broken("train.stop_after=100"), 100), 2, "stopped in the third pass");
    let last = lab.run("broken", &settings(&[]));
    assert_eq!(go(&last, &Resume::Auto).resumed_from, Some(100));
    assert_eq!(essences(last.run_dir()), essences(straight.run_dir()));
    assert_eq!(checkpoint_files(last.run_dir(), 150), checkpoint_files(straight.run_dir(), 150));
    assert_eq!(position(last.run_dir(), 150), position(straight.run_dir(), 150));
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

// Another run's checkpoint goes on in a folder of its own, and never among the steps of a third one.
#[test]
fn a_checkpoint_of_another_folder_starts_a_new_one() {
    let lab = Lab::new();
    let first = lab.run("first", &["train.stop_after=4"]);
    go(&first, &Resume::Never);
    let from = || Resume::From(first.run_dir().join("checkpoints/step-00000004"));

    let used = lab.run("used", &["train.steps=2"]);
    go(&used, &Resume::Never);
    let before = essences(used.run_dir());
    let error = train(&lab.run("used", &[]), &from(), &StopFlag::default(), &Console::default()).unwrap_err();
    assert_eq!(exit::code(&error), 2);
    assert!(error.to_string().contains("already holds checkpoints/step-00000002"), "{error}");
    assert_eq!(essences(used.run_dir()), before);

    let second = lab.run("second", &["train.stop_after=6"]);
    assert_eq!(go(&second, &from()).resumed_from, Some(4));
    let records = jsonl::read(second.run_dir()).unwrap();
    let steps: Vec<_> = records.iter().map(|record| (record.step, record.resumed_from)).collect();
    assert_eq!(steps, [(5, Some(4)), (6, None)]);
    go(&lab.run("first", &[]), &Resume::Auto);
    assert_eq!(essences(second.run_dir()), essences(first.run_dir())[4..6]);
}

/// Overwrites one of the eighths of a shard: its footer reads well, some pages do not.
fn spoil(shard: &Path, which: usize) {
    let mut bytes = std::fs::read(shard).unwrap();
    let eighth = bytes.len() / 8;
    let start = 4 + which * eighth;
    bytes[start..start + eighth].fill(0xff);
    std::fs::write(shard, bytes).unwrap();
}

// A page that cannot be read ends the run, and costs no step of it.
#[test]
fn an_error_in_the_data_saves_what_was_trained() {
    let lab = Lab::new();
    spoil(&lab.path("train_00000.parquet"), 4);
    let run =
        lab.run("a", &["train.steps=400", "train.rows=1", "train.accumulate=3", "report.telemetry_every=0"]);
    let error = train(&run, &Resume::Never, &StopFlag::default(), &Console::default()).unwrap_err();
    assert_eq!(exit::code(&error), 2);
    assert!(error.to_string().contains("data.on_bad_shard"), "{error}");
    let done = jsonl::read(run.run_dir()).unwrap().len() as u64;
    assert!((2..400).contains(&done), "{done} steps");

    let skipping = |name: &str| {
        let stop = format!("train.stop_after={}", done + 5);
        let settings = ["train.steps=400", "train.rows=1", "train.accumulate=3", "report.telemetry_every=0"];
        lab.run(name, &[&settings[..], &["data.on_bad_shard=skip", &stop]].concat())
    };
    assert_eq!(go(&skipping("a"), &Resume::Auto).resumed_from, Some(done));
    let straight = skipping("straight");
    go(&straight, &Resume::Never);
    assert_eq!(essences(run.run_dir()), essences(straight.run_dir()));
}

#[test]
fn an_evaluation_that_fails_costs_no_step() {
    let lab = Lab::new();
    spoil(&lab.path("val_00000.parquet"), 0);
    let run = lab.run("a", &["eval.every=3", "eval.batches=0"]);
    let error = train(&run, &Resume::Never, &StopFlag::default(), &Console::default()).unwrap_err();
    assert_eq!(exit::code(&error), 2, "{error:#}");
    assert_eq!(jsonl::read(run.run_dir()).unwrap().len(), 3);
    assert_eq!(go(&lab.run("a", &["eval.every=0"]), &Resume::Auto).resumed_from, Some(3));
}

// A run whose last evaluation was cut short is not finished.
#[test]
fn a_signal_in_the_last_evaluation_is_told() {
    let options =
        DemoOptions { train_bytes: 60_000, row_group: 16, val_bytes: 600_000, ..DemoOptions::default() };
    let lab = Lab::with(CONFIG, &options);
    let run = lab.run("a", &["train.steps=1", "schedule.warmup=0", "eval.every=1", "eval.batches=0"]);
    let stop = StopFlag::default();
    let outcome = std::thread::scope(|scope| {
        let raiser = scope.spawn(|| {
            let metrics = run.run_dir().join("metrics.jsonl");
            let began = Instant::now();
            while !metrics.exists() && began.elapsed() < Duration::from_mins(1) {
                std::thread::sleep(Duration::from_millis(1));
            }
            // The step takes milliseconds, the evaluation seconds.
            std::thread::sleep(Duration::from_millis(100));
            stop.raise(15);
        });
        let outcome = train(&run, &Resume::Never, &stop, &Console::default()).unwrap();
        raiser.join().unwrap();
        outcome
    });
    assert_eq!((outcome.stopped, outcome.eval), (Stopped::Signal(15), None));
    assert_eq!(outcome.checkpoint.is_some(), outcome.step == 1);
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

// S14: with other rows a run goes on with the very next token: the same rows, however they are cut into batches, have
// the same losses, and lead to the same place.
#[test]
fn another_batch_size_goes_on_with_the_next_token() {
    let lab = Lab::new();
    let straight = lab.run("straight", &[]);
    go(&straight, &Resume::Never);
    let changed = |settings: &[&str]| lab.run("changed", settings);
    go(&changed(&["train.stop_after=5"]), &Resume::Never);
    // The same four rows a step in one batch, and in four.
    go(&changed(&["train.stop_after=7", "train.rows=4", "train.accumulate=1"]), &Resume::Auto);
    go(&changed(&["train.stop_after=9", "train.rows=1", "train.accumulate=4"]), &Resume::Auto);
    let losses = |run_dir: &Path| -> Vec<f64> {
        jsonl::read(run_dir).unwrap().iter().map(|record| record.loss.unwrap()).collect()
    };
    let run_dir = lab.path("changed");
    for (step, (loss, expected)) in (1..).zip(losses(&run_dir).iter().zip(losses(straight.run_dir()))) {
        // Sums in another order: the last digits differ; other tokens differ in the second.
        assert!((loss / expected - 1.0).abs() < 1e-4, "step {step}: {loss}, expected {expected}");
    }
    // Six rows a step: the twelve rows that are left take two steps.
    let outcome = go(&changed(&["train.stop_after=11", "train.rows=6", "train.accumulate=1"]), &Resume::Auto);
    assert_eq!((outcome.resumed_from, outcome.step), (Some(9), 11));
    assert_eq!(outcome.tokens, 12 * 2 * 2 * 64);
    assert_eq!(position(&run_dir, 11), position(straight.run_dir(), 12));
}

// S14: another model is refused with both values; another learning rate or batch size goes on.
#[test]
fn settings_that_changed_since_the_checkpoint() {
    let lab = Lab::new();
    go(&lab.run("a", &["train.steps=2"]), &Resume::Never);
    for (setting, change) in [
        ("model.mlp=96", "model.mlp: 64 → 96"),
        ("model.vocab=384", "model.vocab: 320 → 384"),
        ("model.d_model=64", "model.d_model: 32 → 64"),
        ("model.layers=3", "model.layers: 2 → 3"),
        ("model.heads=4", "model.heads: 2 → 4"),
        ("model.address=16", "model.address: 8 → 16"),
        ("model.key=4", "model.key: 8 → 4"),
        ("model.value=4", "model.value: 8 → 4"),
        ("model.rank=2", "model.rank: 4 → 2"),
        ("model.short_conv=0", "model.short_conv: 4 → 0"),
        ("model.tied=false", "model.tied: true → false"),
        ("model.query_norm=false", "model.query_norm: true → false"),
        ("model.rho=0", "model.rho: not set → 0.0"),
    ] {
        let other = lab.run("a", &[setting]);
        let error = train(&other, &Resume::Auto, &StopFlag::default(), &Console::default()).unwrap_err();
        assert_eq!(exit::code(&error), 2, "{setting}");
        assert!(error.to_string().contains(change), "{setting}: {error}");
    }
    let milder = lab.run("a", &["train.steps=3", "optimizer.lr=1e-3"]);
    assert_eq!(go(&milder, &Resume::Auto).step, 3);
}

// O4: a raised flag ends the run at a step boundary with a checkpoint that resumes exactly.
#[test]
fn a_signal_saves_and_the_run_goes_on_later() {
    let lab = Lab::new();
    let run = lab.run("stopped", &["train.steps=400"]);
    let stop = StopFlag::default();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            let began = Instant::now();
            let recorded = || jsonl::read(run.run_dir()).map_or(0, |records| records.len());
            while recorded() < 2 && began.elapsed() < Duration::from_mins(1) {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.raise(15);
        });
        train(&run, &Resume::Never, &stop, &Console::default()).unwrap()
    });
    assert!(outcome.step < 400, "the signal came in time");
    assert_eq!(outcome.stopped, Stopped::Signal(15));
    assert!(outcome.checkpoint.unwrap().ends_with(format!("step-{:08}", outcome.step)));
    let rest = format!("train.stop_after={}", outcome.step + 3);
    go(&run.with(&[&rest]).unwrap(), &Resume::Auto);
    let straight = lab.run("straight", &["train.steps=400", &rest]);
    go(&straight, &Resume::Never);
    assert_eq!(essences(run.run_dir()), essences(straight.run_dir()));
    let end = outcome.step + 3;
    assert_eq!(checkpoint_files(run.run_dir(), end), checkpoint_files(straight.run_dir(), end));
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
