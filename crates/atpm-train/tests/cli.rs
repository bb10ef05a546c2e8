//! The program from outside: exit codes and what is said with them.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn run_in(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_atpm-train"))
        .args(args)
        .current_dir(folder)
        .env_remove("RUST_LOG")
        .output()
        .expect("the program starts")
}

fn config(name: &str) -> String {
    root().join("configs").join(name).canonicalize().unwrap().display().to_string()
}

/// Mistakes end with code 2 and one sentence on standard error; nothing is left behind.
#[test]
fn mistakes_exit_with_2() {
    let (debug, smoke) = (config("debug.toml"), config("suite/smoke.toml"));
    let table: &[(&[&str], &[&str])] = &[
        (&[], &["no config given", "configs/debug.toml"]),
        (&["--config", "none.toml"], &["cannot read the config none.toml"]),
        (&["--no-such-flag"], &["--no-such-flag"]),
        (&["no-such-command"], &["no-such-command"]),
        (&["--config", &debug, "--set", "train.setps=3"], &["`setps` in [train]", "`steps`"]),
        // S13: the flag is read.
        (&["--config", &debug, "--resume", "/no/such"], &["--resume /no/such", "no such folder"]),
        // D23: refused before the data, which is not there either, is looked for.
        (&["--config", &debug, "--set", "model.vocab=100"], &["model.vocab = 100", "largest id is 256"]),
        (&["--config", &debug], &["data.train", "atpm-train data demo"]),
        (&["--config", &debug, "--set", "device=cuda"], &["cuda", "cpu"]),
        (&["--config", &debug, "--set", "data.tokenizer=none.json"], &["none.json", "tokenizer train"]),
        (&["--config", &debug, "--set", "train.rows=100000", "--set", "train.tokens=100000"], &["GiB"]),
        (&["data", "inspect", "none.parquet"], &["none.parquet"]),
        (
            &["suite", "show", "--task", "kv-recal"],
            &["--task kv-recal", "did you mean `kv_recall`?", "mixed_all"],
        ),
        (&["suite", "show", "--task", "recall of all"], &["no such task", "kv_recall, inverse_recall"]),
        (
            &["suite", "show", "--task", "sort", "--split", "stres"],
            &["--split stres", "`stress`", "validation"],
        ),
        (&["suite", "show"], &["--task"]),
        (&["suite", "ntm", "train", "--task", "repeat-copi"], &["did you mean `repeat_copy`?"]),
        (&["suite", "ntm", "train", "--task", "copy", "--set", "train.stepps=3"], &["did you mean `steps`?"]),
        (&["suite", "ntm", "eval", "--model", "none"], &["there is no such folder"]),
        (&["suite", "ntm", "inspect", "--model", "none"], &["there is no such folder"]),
        (&["suite", "match"], &["no config given"]),
        (&["suite", "match", "--config", &debug, "--by", "layers"], &["params, flops"]),
        (&["suite"], &["no config given", "configs/suite/smoke.toml"]),
        (&["suite", "--config", "none.toml"], &["cannot read the config none.toml"]),
        (&["suite", "--config", &smoke, "--set", "models=['gnd']"], &["`gnd`", "did you mean `gdn`?"]),
        (&["--config", &debug, "--set", "model.kind=mamba"], &["transformer", "mamba"]),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (args, expected) in table {
        let output = run_in(folder.path(), args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}\n{said}");
        for part in *expected {
            assert!(said.contains(part), "{args:?}\n{said}\nlacks {part}");
        }
        assert!(output.stdout.is_empty(), "{args:?}: reports only on standard output");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing half-written");
}

#[test]
fn help_of_every_command_has_examples() {
    let commands: &[&[&str]] = &[
        &[],
        &["eval"],
        &["generate"],
        &["export"],
        &["plot"],
        &["bench"],
        &["data", "demo"],
        &["data", "inspect"],
        &["tokenizer", "train"],
        &["suite"],
        &["suite", "show"],
        &["suite", "match"],
        &["suite", "ntm", "train"],
        &["suite", "ntm", "eval"],
        &["suite", "ntm", "inspect"],
        &["doctor"],
        &["verify-resume"],
    ];
    for command in commands {
        let output = run_in(root(), &[command, &["--help"][..]].concat());
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("Example"), "{command:?}\n{text}");
    }
}

#[test]
fn suite_show_prints_samples_with_their_answers() {
    let show = ["suite", "show", "--task", "kv_recall", "--split", "stress", "--seed", "5", "--count", "2"];
    let output = run_in(root(), &show);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    for line in &lines {
        assert!(line.starts_with("kv_recall ") && line.contains(" = [v") && line.ends_with(']'), "{line}");
    }
    let output = run_in(root(), &[&show[..], &["--json"]].concat());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["task"], &report["split"], &report["seed"]),
        (&"kv_recall".into(), &"stress".into(), &5.into())
    );
    for (index, line) in lines.iter().enumerate() {
        let sample = &report["samples"][index];
        assert_eq!((&sample["text"], &sample["index"]), (&(*line).into(), &index.into()));
        let targets = sample["targets"].as_array().unwrap();
        assert_eq!(targets.len(), sample["ids"].as_array().unwrap().len());
        assert_eq!(targets.iter().filter(|target| !target.is_null()).count(), 4);
    }
}

#[test]
fn the_paper_config_passes_a_dry_run() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_in(folder.path(), &["suite", "--config", &config("suite/paper.toml"), "--dry-run"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("150 trials of 3000 steps"), "{text}");
    let counts: Vec<f64> =
        text.lines().filter_map(|line| line.split(' ').nth(1)?.parse().ok()).take(4).collect();
    assert_eq!(counts.len(), 4, "{text}");
    assert!(counts.iter().all(|count| (count / counts[0] - 1.0).abs() < 0.02), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

// What `suite match` prints, laid over the run's settings, is a model as large as the run's.
#[test]
fn matched_settings_are_a_run_of_equal_size() {
    let debug = config("debug.toml");
    let json = |args: &[&str]| -> serde_json::Value {
        let output = run_in(root(), args);
        assert!(output.status.success(), "{args:?}\n{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    for (by, key) in [("params", "parameters"), ("flops", "training_flop_per_token")] {
        let report = json(&["suite", "match", "--config", &debug, "--by", by, "--json"]);
        let wanted = report[key].as_f64().unwrap();
        let models = report["models"].as_array().unwrap();
        let found: Vec<_> = models.iter().filter(|model| model["settings"].is_array()).collect();
        let named = |name: &str| found.iter().copied().find(|model| model["name"] == name);
        for name in ["gdn", "transformer", "lstm", "ntm"] {
            let model = named(name).unwrap_or_else(|| panic!("{name}: {report}"));
            assert!((model[key].as_f64().unwrap() / wanted - 1.0).abs() <= 0.02, "{model}");
        }
        // A kind without pinned parameters, whose dry run counts the same.
        let lstm = named("lstm").unwrap();
        let settings = lstm["settings"].as_array().unwrap().iter().map(|setting| setting.as_str().unwrap());
        let flags: Vec<&str> = settings.flat_map(|setting| ["--set", setting]).collect();
        let run = json(&[&["--config", &debug, "--dry-run", "--json"], &flags[..]].concat());
        assert_eq!(run[key], lstm[key], "{lstm}");
    }
}

#[test]
fn the_200m_config_passes_a_dry_run() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_in(folder.path(), &["--config", &config("200m.toml"), "--dry-run", "--json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let parameters = report["parameters"].as_u64().unwrap();
    assert!((195_000_000..215_000_000).contains(&parameters), "{report}");
    assert_eq!(report["tokens_per_step"], 32 * 2048);
    assert!(report["memory_bytes"].as_u64().unwrap() < 12 << 30, "{report}");
    assert!(report["data"].as_str().unwrap().starts_with("not checked"), "{report}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

// B7: a build without optimisation says so once where speed matters, and nowhere else; an optimised one never does.
#[test]
fn a_development_build_says_so() {
    let debug = config("debug.toml");
    let folder = tempfile::tempdir().unwrap();
    let expected = usize::from(env!("ATPM_OPT_LEVEL") != "3");
    let sizes =
        ["--d", "16", "--layers", "1", "--heads", "1", "--S", "4", "--K", "4", "--V", "4", "--R", "2"];
    let decode =
        [&["bench", "decode", "--after", "0", "--tokens", "1", "--mlp", "16", "--vocab", "64"][..], &sizes];
    let train = ["--config", &debug, "--set", "train.stop_after=1", "--set", "eval.every=0"];
    for (args, expected) in [
        (&["data", "demo", "--train-bytes", "60000", "--val-bytes", "8000"][..], 0),
        (&train, expected),
        (&decode.concat(), expected),
        (&["generate", "--model", "runs/debug", "--prompt", "x", "--max-tokens", "1"], 0),
    ] {
        let output = run_in(folder.path(), args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}\n{said}");
        assert_eq!(said.matches("development build").count(), expected, "{args:?}\n{said}");
    }
}

/// A run that would take hours, stopped as soon as it has recorded a step.
#[cfg(unix)]
mod signals {
    use std::process::{Child, ExitStatus, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    fn demo(folder: &Path) {
        let demo = run_in(folder, &["data", "demo", "--train-bytes", "60000", "--val-bytes", "8000"]);
        assert!(demo.status.success(), "{}", String::from_utf8_lossy(&demo.stderr));
    }

    fn train(folder: &Path, flags: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_atpm-train"))
            .args(["--config", &config("debug.toml"), "--set", "train.steps=100000000", "--json"])
            .args(["--set", "eval.every=0"])
            .args(flags)
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts")
    }

    fn wait_for_records(folder: &Path, count: usize) {
        let metrics = folder.join("runs/debug/metrics.jsonl");
        wait_until(|| std::fs::read_to_string(&metrics).is_ok_and(|text| text.lines().count() >= count));
    }

    fn start(folder: &Path) -> Child {
        demo(folder);
        let child = train(folder, &[]);
        wait_for_records(folder, 1);
        child
    }

    fn wait_until(mut done: impl FnMut() -> bool) {
        let began = Instant::now();
        while !done() {
            assert!(began.elapsed() < Duration::from_mins(1), "it never happened");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn send(child: &Child, signal: &str) {
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    fn end(mut child: Child) -> ExitStatus {
        wait_until(|| child.try_wait().unwrap().is_some());
        child.wait().unwrap()
    }

    // O4: the first signal saves and exits with the documented code.
    #[test]
    fn a_signal_saves_at_the_next_step() {
        for (signal, code) in [("-TERM", 143), ("-INT", 130)] {
            let folder = tempfile::tempdir().unwrap();
            let child = start(folder.path());
            send(&child, signal);
            assert_eq!(end(child).code(), Some(code));
            assert_eq!(checkpoints(folder.path()).len(), 1);
        }
    }

    fn checkpoints(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder.join("runs/debug/checkpoints")).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    // O4: the second signal ends the program in the middle of a step; what was saved before is all there is, and the
    // run goes on from it.
    #[test]
    fn a_second_signal_ends_the_program_at_once() {
        for (first, second, code) in [("-INT", "-INT", 130), ("-TERM", "-TERM", 143), ("-INT", "-TERM", 143)]
        {
            let folder = tempfile::tempdir().unwrap();
            let folder = folder.path();
            demo(folder);
            assert!(end(train(folder, &["--set", "train.stop_after=1"])).success());
            assert_eq!(checkpoints(folder), ["step-00000001"]);
            // Steps of a second and more: both signals arrive within the third one.
            let long = ["--resume", "auto", "--set", "train.accumulate=80"];
            let child = train(folder, &long);
            wait_for_records(folder, 2);
            send(&child, first);
            std::thread::sleep(Duration::from_millis(20));
            send(&child, second);
            assert_eq!(end(child).code(), Some(code), "{first} {second}");
            assert_eq!(checkpoints(folder), ["step-00000001"], "{first} {second}");
            let again = train(folder, &["--resume", "auto", "--set", "train.stop_after=3"]);
            assert!(end(again).success(), "{first} {second}");
            assert_eq!(checkpoints(folder), ["step-00000001", "step-00000003"], "{first} {second}");
        }
    }
}

#[test]
fn doctor_looks_and_checks_every_op() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_in(folder.path(), &["doctor", "--device", "cpu", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["right"], &report["device"], &report["compared_with"]),
        (&true.into(), &"cpu".into(), &"definition".into())
    );
    assert_eq!(report["ops"].as_array().unwrap().len(), 13);
    assert!(report["memory_bytes"].as_u64().unwrap() > 1 << 20);

    let output = run_in(folder.path(), &["doctor", "--device", "cpu"]);
    let said = String::from_utf8_lossy(&output.stdout);
    for part in ["processor", "instructions", "ops on cpu, compared with their definitions", "mixer", "right"]
    {
        assert!(said.contains(part), "{said}\nlacks {part}");
    }
    assert!(!said.contains("WRONG"), "{said}");

    // A device that is not there: what there is is shown all the same.
    let output = run_in(folder.path(), &["doctor", "--device", "cuda:9"]);
    assert_ne!(output.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&output.stdout).contains("processor"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cuda:9"));
}
