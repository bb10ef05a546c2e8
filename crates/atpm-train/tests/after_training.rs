//! The binary after training: a small run on demo shards is resumed, evaluated, sampled and exported.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Demo shards in a folder of their own, and the binary called on them.
struct Workplace(tempfile::TempDir);

impl Workplace {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        place.done(&["data", "demo", "--out", "demo", "--train-bytes", "60000", "--val-bytes", "10000"]);
        place
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_atpm-train"));
        command.args(args).current_dir(&self.0);
        command
    }

    /// Standard output of a call that must succeed.
    fn done(&self, args: &[&str]) -> String {
        let output = self.command(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.done(&[args, &["--json"]].concat())).unwrap()
    }

    /// Exit code and standard error of a call that must fail.
    fn refused(&self, args: &[&str]) -> (i32, String) {
        let Output { status, stderr, .. } = self.command(args).output().unwrap();
        (status.code().unwrap(), String::from_utf8_lossy(&stderr).into_owned())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

/// configs/debug.toml, smaller still.
fn config() -> Vec<&'static str> {
    let mut flags = vec!["--config", concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs/debug.toml")];
    for setting in [
        "data.train=demo/train_*.parquet",
        "data.val=demo/val_*.parquet",
        "train.steps=40",
        "train.rows=2",
        "train.tokens=64",
        "train.accumulate=1",
        "eval.every=2",
        "eval.batches=1",
        "report.telemetry_every=2",
        "threads=1",
    ] {
        flags.extend(["--set", setting]);
    }
    flags
}

// S10, T5: killed and resumed, every parameter, moment, loss and learning rate is that of the straight run.
#[test]
fn verify_resume_proves_that_resuming_is_exact() {
    let place = Workplace::new();
    let verify = [&["verify-resume"][..], &config(), &["--steps", "4", "--more", "3"]].concat();
    let report = place.json(&verify);
    assert_eq!(report["identical"], true, "{report}");
    assert_eq!(report["killed"], true);
    assert_eq!(report["records"], 7);
    assert_eq!(report["first_difference"], Value::Null);
    assert!(report["parameters"].as_u64().unwrap() > 10);
    assert_eq!(report["moments"].as_u64(), report["parameters"].as_u64().map(|count| 2 * count));

    let mistake = [&["verify-resume"][..], &config(), &["--set", "data.train=nothing/*.parquet"]].concat();
    let (code, message) = place.refused(&mistake);
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("nothing/*.parquet"), "{message}");
    let (code, message) = place.refused(&[&verify[..], &["--steps", "0"]].concat());
    assert_eq!(code, 2, "{message}");
}

#[test]
fn a_trained_model_is_evaluated_sampled_exported_and_looked_into() {
    let place = Workplace::new();
    let train = [
        &config()[..],
        &["--set", "run_dir=run", "--set", "train.stop_after=4", "--set", "checkpoint.every=2"],
    ];
    place.done(&train.concat());
    export(&place);
    generate(&place);
    a_reader_leaves(&place);
    inspect(&place);
    mistakes(&place);
}

// D13: a model that was trained with beginning-of-text tokens is measured, continued and resumed with them.
#[test]
fn special_tokens_stay_with_the_model() {
    let place = Workplace::new();
    place.done(&["tokenizer", "train", "demo", "--out", "tokenizer.json", "--vocab", "300"]);
    let path = place.path().join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let mut bos = tokenizer["added_tokens"][0].clone();
    (bos["id"], bos["content"]) = (300.into(), "<s>".into());
    tokenizer["added_tokens"].as_array_mut().unwrap().push(bos);
    std::fs::write(&path, tokenizer.to_string()).unwrap();

    let with =
        ["--set", "data.tokenizer=tokenizer.json", "--set", "data.bos=true", "--set", "data.eos=false"];
    let train = [&config()[..], &["--set", "run_dir=run", "--set", "train.stop_after=2"], &with].concat();
    place.done(&train);
    std::fs::remove_file(&path).unwrap();
    let eval = |model: &str| {
        place.json(&[
            "eval",
            "--model",
            model,
            "--data",
            "demo/val_*.parquet",
            "--tokens",
            "64",
            "--batches",
            "2",
        ])
    };
    place.json(&["export", "--checkpoint", "run", "--out", "out"]);
    assert_eq!(eval("run")["loss"], eval("out")["loss"]);
    let out: Value =
        serde_json::from_str(&std::fs::read_to_string(place.path().join("out/config.json")).unwrap())
            .unwrap();
    assert_eq!((&out["bos_token_id"], &out["add_bos_token"]), (&300.into(), &true.into()));
    assert_eq!(out["add_eos_token"], false);
    let generate = ["generate", "--model", "out", "--max-tokens", "0", "--prompt", "Ada", "--prompt", "Bob"];
    let report = place.json(&generate);
    let prompts: u64 =
        report["answers"].as_array().unwrap().iter().map(|a| a["prompt_tokens"].as_u64().unwrap()).sum();
    assert_eq!(
        report["tokens_read"].as_u64().unwrap(),
        prompts,
        "one beginning for one memory, and the last token not read yet: {report}"
    );

    // Packing without the token is another model's packing: the loss differs.
    let config = std::fs::read_to_string(place.path().join("out/config.json")).unwrap();
    let without = config.replace("\"add_bos_token\": true", "\"add_bos_token\": false");
    assert_ne!(without, config);
    std::fs::write(place.path().join("out/config.json"), without).unwrap();
    assert_ne!(eval("run")["loss"], eval("out")["loss"]);

    std::fs::write(&path, tokenizer.to_string()).unwrap();
    let (code, message) =
        place.refused(&[&train[..], &["--resume", "auto", "--set", "data.bos=false"]].concat());
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("data.bos was true (id 300) and is false"), "{message}");
    let bytes = ["--set", "data.tokenizer=bytes", "--set", "data.bos=true"];
    let (code, message) = place.refused(&[&self::config()[..], &bytes].concat());
    assert_eq!(code, 2, "{message}");
    assert!(message.contains("`bytes` has none"), "{message}");
    std::fs::write(&path, tokenizer.to_string().replace("<s>", "<i>")).unwrap();
    for flags in [&[][..], &["--dry-run"]] {
        let other = [&self::config()[..], &["--set", "run_dir=other"], &with, flags].concat();
        let (code, message) = place.refused(&other);
        assert_eq!(code, 2, "{message}");
        assert!(
            message.contains("no beginning-of-text token") && !place.path().join("other").exists(),
            "{message}"
        );
    }
}

// S14: what differs from the checkpoint's settings is listed, one line a key.
#[test]
fn a_resume_lists_what_changed() {
    let place = Workplace::new();
    let train = [&config()[..], &["--set", "run_dir=run", "--set", "train.stop_after=2"]].concat();
    place.done(&train);
    let changes = [
        ("train.stop_after=3", "train.stop_after: 2 → 3"),
        ("train.rows=3", "train.rows: 2 → 3"),
        ("optimizer.lr=0.25", "optimizer.lr: 0.004 → 0.25"),
        ("schedule.kind=wsd", "schedule.kind: \"cosine\" → \"wsd\""),
    ];
    let mut args = [&train[..], &["--resume", "auto"]].concat();
    args.extend(changes.iter().flat_map(|(setting, _)| ["--set", *setting]));
    let output = place.command(&args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for (_, change) in changes {
        assert!(said.contains(&format!("changed since the checkpoint: {change}")), "{said}\nlacks {change}");
    }
    assert_eq!(said.matches("changed since the checkpoint").count(), changes.len(), "{said}");

    // The log has what was said before its folder was there, of both sessions.
    let log = std::fs::read_to_string(place.path().join("run/train.log")).unwrap();
    for (part, times) in
        [("fresh start in run", 1), ("resuming from run", 1), ("data: ", 2), ("changed since", changes.len())]
    {
        assert_eq!(log.matches(part).count(), times, "{part}\n{log}");
    }
}

// A dry run tells what the run would do, and refuses what it would refuse.
#[test]
fn a_dry_run_looks_at_the_starting_point_and_at_all_shards() {
    let place = Workplace::new();
    let train = [&config()[..], &["--set", "run_dir=run"]].concat();
    let plan = |flags: &[&'static str]| [&train[..], &["--dry-run"], flags].concat();
    assert_eq!(place.json(&plan(&[]))["resumes_from"], Value::Null);
    place.done(&[&train[..], &["--set", "train.stop_after=2"]].concat());
    assert_eq!(place.json(&plan(&["--resume", "auto"]))["resumes_from"], 2);
    for (flags, expected) in [
        (&[][..], "already holds checkpoints"),
        (&["--resume", "nowhere"], "no such folder"),
        (&["--resume", "auto", "--set", "model.mlp=96"], "another model"),
    ] {
        let (code, message) = place.refused(&plan(flags));
        assert!(code == 2 && message.contains(expected), "{flags:?}: {code} {message}");
    }
    let overlap = plan(&["--resume", "auto", "--set", "data.train=demo"]);
    let said = place.command(&overlap).output().unwrap().stderr;
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("val_00000.parquet in both data.train and data.val"), "{said}");

    std::fs::write(place.path().join("demo/val_00000.parquet"), "no shard").unwrap();
    let (code, message) = place.refused(&plan(&["--resume", "auto"]));
    assert!(code == 2 && message.contains("val_00000.parquet"), "{code} {message}");
}

/// A file system of a few megabytes; gone when dropped.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    /// Mounts it, or gives the reason for which that is not possible.
    fn mount(folder: &Path) -> Result<Self, String> {
        std::fs::create_dir(folder).unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"]).arg(folder).output();
        match mount {
            Ok(output) if output.status.success() => Ok(Self(folder.into())),
            Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().into()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Leaves `left` bytes of room.
    fn fill(&self, left: u64) {
        let mut filler = std::fs::File::create(self.0.join("filler")).unwrap();
        let block = vec![1u8; 1 << 16];
        let mut size = 0;
        while let Ok(written @ 1..) = filler.write(&block) {
            size += written as u64;
        }
        filler.set_len(size - left).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

// S1: a checkpoint that does not fit on the disk leaves the one before as it was, says why in one error, and ends the
// run with 1; with room again, the run goes on.
#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_costs_no_checkpoint() {
    let place = Workplace::new();
    let disk = match SmallDisk::mount(&place.path().join("disk")) {
        Ok(disk) => disk,
        Err(reason) => {
            eprintln!("skipped: a small file system cannot be mounted here ({reason})");
            return;
        }
    };
    let train = [&config()[..], &["--set", "run_dir=disk/run", "--set", "eval.every=0"]].concat();
    place.done(&[&train[..], &["--set", "train.stop_after=2"]].concat());
    let listing = || -> Vec<String> {
        let entries = std::fs::read_dir(place.path().join("disk/run/checkpoints")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    };
    let content =
        |name: &str| std::fs::read(place.path().join("disk/run/checkpoints/step-00000002").join(name));
    let before = content("model.safetensors").unwrap();
    // Room for records and the log, not for a checkpoint.
    disk.fill(1 << 16);
    let go_on = [&train[..], &["--resume", "auto", "--set", "train.stop_after=4"]].concat();
    let (code, message) = place.refused(&go_on);
    assert_eq!(code, 1, "{message}");
    assert_eq!(message.matches("error: ").count(), 1, "{message}");
    let error = message.lines().find(|line| line.starts_with("error: ")).unwrap();
    assert!(error.contains("cannot write") && error.contains("No space left on device"), "{message}");
    assert_eq!(listing(), ["step-00000002"], "nothing half-written");
    assert_eq!(content("model.safetensors").unwrap(), before);

    std::fs::remove_file(place.path().join("disk/filler")).unwrap();
    place.done(&go_on);
    assert_eq!(listing().len(), 2);
    drop(disk);
}

fn export(place: &Workplace) {
    let report = place.json(&["export", "--checkpoint", "run", "--out", "out"]);
    assert_eq!((report["step"].as_u64(), &report["dtype"]), (Some(4), &"f32".into()));
    place.done(&[
        "export",
        "--checkpoint",
        "run/checkpoints/step-00000002",
        "--out",
        "half",
        "--dtype",
        "bf16",
    ]);

    // The export is the checkpoint; the other step is another model.
    let eval = |model: &str| {
        let flags = ["--data", "demo/val_*.parquet", "--tokens", "64", "--rows", "2", "--batches", "3"];
        place.json(&[&["eval", "--model", model][..], &flags].concat())
    };
    let (run, out, half) = (eval("run"), eval("out"), eval("half"));
    token_losses(place, &run);
    assert_eq!(run["loss"], out["loss"]);
    assert_eq!(run["by_position"], out["by_position"]);
    assert_ne!(run["loss"], half["loss"]);
    for key in ["perplexity", "bits_per_byte"] {
        assert!(run[key].as_f64().unwrap() > 0.0, "{key}");
    }
    let table = place.done(&["eval", "--model", "out", "--data", "demo/val_*.parquet", "--tokens", "64"]);
    assert!(table.contains("bits per byte") && table.contains("tokens before"), "{table}");
}

/// The losses of all tokens are those whose mean was reported.
fn token_losses(place: &Workplace, report: &Value) {
    let flags = ["--data", "demo/val_*.parquet", "--tokens", "64", "--rows", "2", "--batches", "3"];
    place.done(&[&["eval", "--model", "run", "--token-losses", "losses.safetensors"][..], &flags].concat());
    let bytes = std::fs::read(place.path().join("losses.safetensors")).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let words = |name: &str| -> Vec<u32> {
        let (chunks, _) = file.tensor(name).unwrap().data().as_chunks();
        chunks.iter().map(|&word| u32::from_le_bytes(word)).collect()
    };
    assert_eq!(file.tensor("losses").unwrap().shape(), [6, 64]);
    let (targets, losses) = (words("targets"), words("losses"));
    let counted: Vec<f64> = targets
        .iter()
        .zip(&losses)
        .filter(|&(&target, _)| target != u32::MAX)
        .map(|(_, &bits)| f64::from(f32::from_bits(bits)))
        .collect();
    assert_eq!(report["target_tokens"].as_u64().unwrap(), counted.len() as u64);
    let mean = counted.iter().sum::<f64>() / counted.len() as f64;
    assert!((mean - report["loss"].as_f64().unwrap()).abs() < 1e-9, "{mean}, reported {report}");
}

fn generate(place: &Workplace) {
    let generate = |flags: &[&str]| place.json(&[&["generate", "--max-tokens", "24"][..], flags].concat());
    let texts = |report: &Value| -> Vec<String> {
        let answers = report["answers"].as_array().unwrap().iter();
        answers.map(|answer| answer["text"].as_str().unwrap().to_string()).collect()
    };
    let prompts = ["--prompt", "Ada lives in", "--prompt", " Bob lives in"];
    let whole = generate(&[&["--model", "run", "--seed", "3"][..], &prompts].concat());
    assert_eq!(texts(&whole), texts(&generate(&[&["--model", "run", "--seed", "3"][..], &prompts].concat())));
    assert_ne!(texts(&whole), texts(&generate(&[&["--model", "run", "--seed", "4"][..], &prompts].concat())));
    assert_eq!(texts(&whole), texts(&generate(&[&["--model", "out", "--seed", "3"][..], &prompts].concat())));
    for key in ["decode_tokens_per_s", "state_bytes", "tokens_read"] {
        assert!(whole[key].as_f64().unwrap() > 0.0, "{key}: {whole}");
    }

    // Two processes that hand the memory over say what one would have said.
    let first =
        generate(&["--model", "run", "--seed", "3", "--prompt", prompts[1], "--save-state", "memory"]);
    let second =
        generate(&["--model", "out", "--seed", "3", "--prompt", prompts[3], "--load-state", "memory"]);
    assert_eq!([texts(&first), texts(&second)].concat(), texts(&whole));

    // A prompt that was only read is gone on with by the memory alone.
    let greedy = ["generate", "--model", "run", "--greedy"];
    let kept = ["--prompt", prompts[1], "--max-tokens", "0", "--save-state", "read"];
    place.done(&[&greedy[..], &kept].concat());
    let limit = ["--max-tokens", "24"];
    let alone = place.json(&[&greedy[..], &["--load-state", "read"], &limit].concat());
    assert_eq!(texts(&alone), texts(&place.json(&[&greedy[..], &["--prompt", prompts[1]], &limit].concat())));

    let streamed = place.done(&[
        "generate",
        "--model",
        "run",
        "--seed",
        "3",
        "--max-tokens",
        "24",
        "--prompt",
        prompts[1],
    ]);
    assert_eq!(streamed, format!("{}{}\n", prompts[1], texts(&whole)[0]));
    let mut command =
        place.command(&["generate", "--model", "run", "--seed", "3", "--max-tokens", "24", "--interactive"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"Ada lives in\n\n Bob lives in\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}\n", texts(&whole).join("\n")));
}

/// Whoever reads the text may leave: there is no more to write then, and nothing is wrong. The memory is kept all the same.
fn a_reader_leaves(place: &Workplace) {
    let endless = ["generate", "--model", "run", "--greedy", "--prompt", "Ada", "--max-tokens", "1000000000"];
    let mut command = place.command(&[&endless[..], &["--save-state", "left"]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut some = [0; 8];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(0), ""));
    assert!(place.path().join("left").is_file());
}

/// A run and its export are one model, looked into.
fn inspect(place: &Workplace) {
    let look = |model: &str, out: &str| {
        place.json(&[
            "inspect",
            "--model",
            model,
            "--prompt",
            "Ada lives in Rome.",
            "--mark",
            "4,5",
            "--out",
            out,
        ])
    };
    let (run, export) = (look("run", "look/run"), look("out", "look/out"));
    assert_eq!(run["step"], 4);
    assert_eq!(run["comparison"], export["comparison"]);
    let marks: Vec<_> = run["tokens"].as_array().unwrap().iter().map(|token| &token["mark"]).collect();
    assert_eq!(marks.iter().filter(|mark| ***mark == true).count(), 2);
    assert_eq!((marks[4], marks[5], marks[6]), (&true.into(), &true.into(), &false.into()));
    let files = run["files"].as_array().unwrap();
    assert!(files.iter().all(|file| place.path().join(file.as_str().unwrap()).is_file()), "{files:?}");
    let values = |out: &str| std::fs::read(place.path().join(out).join("values.parquet")).unwrap();
    assert_eq!(values("look/run"), values("look/out"));
    let said =
        place.done(&["inspect", "--model", "run", "--prompt", "Ada", "--mark", "1", "--out", "look/run"]);
    assert!(
        said.contains("mean, token") && said.contains("marked (1)") && said.contains("heat.svg"),
        "{said}"
    );
}

fn mistakes(place: &Workplace) {
    std::fs::write(place.path().join("file"), "x").unwrap();
    for (args, expected) in [
        (vec!["generate", "--model", "run"], "nothing to continue"),
        (vec!["generate", "--model", "run", "--prompt", ""], "the prompt is empty"),
        (vec!["generate", "--model", "nowhere", "--prompt", "x"], "nowhere"),
        // The path is the first mistake to tell.
        (vec!["generate", "--model", "nowhere"], "nowhere: there is no such folder"),
        (vec!["generate", "--model", "file", "--top-p", "0"], "file: it is no folder"),
        (vec!["generate", "--model", "run", "--prompt", "x", "--top-p", "0"], "--top-p"),
        (vec!["generate", "--model", "run", "--prompt", "x", "--temperature", "-1"], "--temperature"),
        (vec!["generate", "--model", "half", "--prompt", "x", "--load-state", "memory"], "another model"),
        (vec!["generate", "--model", "run", "--prompt", "x", "--load-state", "file"], "file"),
        (vec!["inspect", "--model", "nowhere", "--out", "new"], "nowhere: there is no such folder"),
        (vec!["inspect", "--model", "run", "--out", "new"], "nothing to read"),
        (vec!["inspect", "--model", "run", "--prompt", "", "--out", "new"], "it is empty"),
        (
            vec!["inspect", "--model", "run", "--prompt", "x", "--task", "sort", "--out", "new"],
            "cannot be used with",
        ),
        (
            vec!["inspect", "--model", "run", "--prompt", "x", "--seed", "1", "--out", "new"],
            "cannot be used with",
        ),
        (
            vec!["inspect", "--model", "run", "--task", "sort", "--out", "new"],
            "not trained on the memory tasks",
        ),
        (vec!["inspect", "--model", "run", "--prompt", "x", "--mark", "1", "--out", "new"], "--mark 1"),
        (vec!["eval", "--model", "run", "--data", "demo", "--invalid-utf8", "skip"], "give fail or replace"),
        (vec!["eval", "--model", "run", "--data", "nothing.parquet"], "nothing.parquet"),
        (vec!["eval", "--model", "run", "--data", "demo", "--tokens", "0"], "--tokens"),
        (
            vec!["eval", "--model", "run", "--data", "demo", "--token-losses", "none/x"],
            "there is no folder none",
        ),
        (vec!["export", "--checkpoint", "run", "--out", "out"], "not empty"),
        (vec!["export", "--checkpoint", "demo", "--out", "new"], "not a complete checkpoint"),
        (vec!["export", "--checkpoint", "run", "--out", "file/out"], "file/out"),
    ] {
        let (code, message) = place.refused(&args);
        assert_eq!(code, 2, "{args:?}: {message}");
        assert!(message.contains(expected), "{args:?}: {message}");
    }
    assert!(!place.path().join("new").exists());
}
