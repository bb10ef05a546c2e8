//! Whole runs on emulated kernels, beside the same runs on the CPU. `make test-launches` builds and runs it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod lab;

use std::path::Path;
use std::process::{Command, Output};

use atpm_data::demo::DemoOptions;
use atpm_train::report::jsonl::METRICS;
use atpm_train::run::exit;
use atpm_train::run::folder::Resume;
use atpm_train::run::logging::Console;
use atpm_train::training::signals::StopFlag;
use atpm_train::training::train;
use serde_json::Value;

use lab::{Lab, checkpoint_files, go};

const STEPS: u64 = 4;

const CONFIG: &str = r#"
[model]
d_model = 16
layers = 2
heads = 2
address = 16
key = 8
value = 8
rank = 4
mlp = 32
[data]
train = "unset"
val = "unset"
tokenizer = "bytes"
lanes = 2
[train]
steps = 4
rows = 1
tokens = 48
accumulate = 2
[optimizer]
lr = 1e-2
[schedule]
warmup = 1
[eval]
every = 4
batches = 1
rows = 2
[report]
telemetry_every = 2
"#;

impl Lab {
    fn new() -> Self {
        Self::with(CONFIG, &DemoOptions { train_bytes: 20_000, val_bytes: 4_000, ..DemoOptions::default() })
    }

    fn program(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_atpm-train"))
            .args(args)
            .current_dir(self.path(""))
            .env_remove("RUST_LOG")
            .output()
            .unwrap()
    }

    /// What the program prints as JSON.
    fn report(&self, args: &[&str]) -> Value {
        let output = self.program(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}\n{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// Step records as they were written.
fn records(run_dir: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run_dir.join(METRICS)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(record: &Value, pointer: &str) -> f64 {
    record.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} of {record}"))
}

#[test]
fn a_run_is_that_of_the_cpu() {
    let lab = Lab::new();
    let [want, got] = ["cpu", "cuda"].map(|device| {
        go(&lab.run(device, &[&format!("device={device}")]), &Resume::Never);
        records(&lab.path(device))
    });
    assert_eq!(got.len() as u64, STEPS);
    for (got, want) in got.iter().zip(&want) {
        let mut pointers = vec!["/loss", "/grad_norm_preclip"];
        if got["step"] == 2 {
            pointers.extend(["/layers/1/half_life", "/layers/1/rho", "/layers/1/state_norm"]);
        }
        if got["step"] == STEPS {
            pointers.extend(["/eval/loss", "/layers/0/address_norm"]);
        }
        for pointer in pointers {
            let (got, want) = (number(got, pointer), number(want, pointer));
            assert!((got / want - 1.0).abs() < 1e-4, "{pointer}: {got}, expected {want}");
        }
    }
    assert!(number(&got[3], "/loss") < number(&got[0], "/loss"));
}

#[test]
fn two_runs_and_an_interrupted_one_have_the_same_bits() {
    let lab = Lab::new();
    // In bf16, products read copies that are not in a checkpoint.
    for dtype in ["f32", "bf16"] {
        let dtype_key = format!("train.dtype={dtype}");
        let run = |name: &str| {
            lab.run(&format!("{name}-{dtype}"), &["device=cuda:0", "eval.every=0", "seed=3", &dtype_key])
        };
        let files = |name: &str| checkpoint_files(&lab.path(&format!("{name}-{dtype}")), STEPS);
        go(&run("first"), &Resume::Never);
        go(&run("second").with(&["train.stop_after=2"]).unwrap(), &Resume::Never);
        let resumed = go(&run("second"), &Resume::Auto);
        assert_eq!((resumed.resumed_from, resumed.step), (Some(2), STEPS));
        assert_eq!(files("second"), files("first"));
        // What another device computes has other last bits: the comparison sees a difference where there is one.
        go(&run("cpu").with(&["device=cpu"]).unwrap(), &Resume::Never);
        assert_ne!(files("cpu"), files("first"));
    }
}

#[test]
fn a_run_goes_on_on_another_device() {
    let lab = Lab::new();
    let run = |device: &str| lab.run("x", &[&format!("device={device}"), "eval.every=0"]);
    go(&run("cuda").with(&["train.stop_after=3"]).unwrap(), &Resume::Never);
    let outcome = go(&run("cpu"), &Resume::Auto);
    assert_eq!((outcome.resumed_from, outcome.step), (Some(3), STEPS));
}

#[test]
fn the_program_evaluates_generates_and_exports() {
    let lab = Lab::new();
    go(&lab.run("x", &["device=cuda", "eval.every=0"]), &Resume::Never);
    let evaluate = |device: &str| {
        let args =
            ["eval", "--model", "x", "--data", "val_*.parquet", "--tokens", "40", "--rows", "2", "--json"];
        lab.report(&[&args[..], &["--batches", "1", "--device", device]].concat())
    };
    let [want, got] = ["cpu", "cuda"].map(|device| evaluate(device)["loss"].as_f64().unwrap());
    assert!((got / want - 1.0).abs() < 1e-4, "{got}, expected {want}");
    let generate = |device: &str, state: &str| {
        let args =
            ["generate", "--model", "x", "--prompt", "Ada lives", "--greedy", "--max-tokens", "6", "--json"];
        lab.report(&[&args[..], &["--device", device, "--save-state", state]].concat())["answers"].take()
    };
    assert_eq!(generate("cuda", "a.state"), generate("cpu", "b.state"));
    // A memory is of the model, not of the device.
    let go_on = |device: &str| {
        let args = ["generate", "--model", "x", "--load-state", "b.state", "--greedy", "--max-tokens", "2"];
        lab.report(&[&args[..], &["--json", "--device", device]].concat())["answers"].take()
    };
    assert_eq!(go_on("cuda"), go_on("cpu"));
    assert_eq!(lab.report(&["export", "--checkpoint", "x", "--out", "export", "--json"])["step"], STEPS);
}

#[test]
fn a_killed_run_of_the_program_resumes_bit_for_bit() {
    let lab = Lab::new();
    let settings = lab.path("x.toml");
    let run = lab.run("unused", &["device=cuda", "eval.every=0", "model.layers=1"]);
    std::fs::write(&settings, run.to_toml().unwrap()).unwrap();
    let settings = settings.display().to_string();
    let report =
        lab.report(&["verify-resume", "--config", &settings, "--steps", "1", "--more", "1", "--json"]);
    assert_eq!((&report["identical"], &report["records"]), (&true.into(), &2.into()));
}

#[test]
fn what_the_kernels_cannot_do_is_refused_before_the_first_step() {
    let lab = Lab::new();
    let table: &[(&str, &str)] = &[
        ("model.address=24", "model.address: on CUDA it must be a multiple of 16, at most 256, got 24"),
        ("model.key=512", "model.key: on CUDA it must be a multiple of 8, at most 256, got 512"),
        ("model.vocab=100", "largest id is 256"),
        ("train.rows=100000000", "and the GPU has"),
    ];
    for (setting, expected) in table {
        let run = lab.run("x", &["device=cuda", setting]);
        let error = train(&run, &Resume::Never, &StopFlag::default(), &Console::default()).unwrap_err();
        assert!(error.to_string().contains(expected), "{setting}: {error:#}");
        assert_eq!(exit::code(&error), 2, "{setting}");
    }
    assert!(!lab.path("x").exists());
    // A device that is not there is a failure of the machine, not a mistake in the settings.
    let run = lab.run("x", &["device=cuda:1"]);
    let error = train(&run, &Resume::Never, &StopFlag::default(), &Console::default()).unwrap_err();
    assert!(error.to_string().contains("opening device 1"), "{error:#}");
    assert_eq!(exit::code(&error), 1);
}

#[test]
fn doctor_checks_the_emulated_kernels() {
    let lab = Lab::new();
    let report = lab.report(&["doctor", "--device", "cuda", "--json"]);
    assert_eq!((&report["right"], &report["emulated"]), (&true.into(), &true.into()));
    assert_eq!((&report["kernels"], &report["compared_with"]), (&"emulated".into(), &"cpu".into()));
    for op in report["ops"].as_array().unwrap() {
        assert!(op["right"] == true && op["value_error"].is_number(), "{op}");
    }
    // The kernels ran: sums in another order have other last bits, and in bf16 the last bits are others for sure.
    let error = |op: &str, dtype: &str, of: &str| {
        let mut ops = report["ops"].as_array().unwrap().iter();
        ops.find(|row| row["op"] == op && row["dtype"] == dtype).map(|row| row[of].as_f64())
    };
    for op in
        ["embedding", "rms_norm", "linear", "short_conv", "mixer", "gated_norm", "swiglu", "cross_entropy"]
    {
        let [wide, rounded] = ["f32", "bf16"].map(|dtype| error(op, dtype, "value_error").flatten().unwrap());
        assert!(rounded > 1e-4 && rounded > wide, "{op}: {rounded} in bf16, {wide} in f32");
    }
    assert!(error("mixer", "bf16", "gate_error").flatten().unwrap() > 1e-4);
    assert_eq!(
        (error("gates", "bf16", "value_error"), error("gates", "f32", "gate_error")),
        (None, Some(None))
    );
    let output = lab.program(&["doctor", "--device", "cuda:7"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("opening device 7"));
}

// What the times of emulated kernels are worth is nothing; that every op runs, and what its floors are made of, is checked.
#[test]
fn every_op_is_timed_beside_its_floors() {
    let sizes =
        "--d 16 --layers 1 --heads 2 --S 16 --K 8 --V 8 --R 2 --mlp 32 --vocab 40 --batch 1 --seq 20 --json";
    let lab = Lab::new();
    let bench = |command: &str, more: &str| {
        let line = format!("bench {command} --device cuda {sizes} {more}");
        lab.report(&line.split(' ').collect::<Vec<_>>())
    };
    let mut products = Vec::new();
    for (dtype, bytes) in [("f32", 4.0), ("bf16", 2.0)] {
        let report = bench("ops", &format!("--repeats 1 --dtype {dtype}"));
        assert_eq!((&report["device"], &report["dtype"]), (&"cuda".into(), &dtype.into()));
        let row = |op: &str, pass: &str| {
            let mut rows = report["ops"].as_array().unwrap().iter();
            let found = rows.find(|row| row["op"] == op && row["pass"] == pass);
            found.unwrap_or_else(|| panic!("no {pass} of {op} in {report}"))
        };
        let moved =
            |row: &Value| number(row, "/memory_floor_seconds") * number(&report, "/peaks/memory/mixed") * 1e9;
        let flop =
            |row: &Value, peak: &str| number(row, "/product_floor_seconds") * number(&report, peak) * 1e9;
        // Read and written once; two gradients and the input come in backward, and one goes out.
        assert!((moved(row("rms_norm", "forward")) - 2.0 * bytes * 320.0).abs() < 1e-3, "{report}");
        assert!((moved(row("rms_norm", "both")) - 6.0 * bytes * 320.0).abs() < 1e-3, "{report}");
        // Controls are f32 with both: 20 tokens with 5 for each of 2 heads.
        assert!((moved(row("gates", "forward")) - 2.0 * 4.0 * 200.0).abs() < 1e-3, "{report}");
        assert!((flop(row("linear controls", "forward"), "/peaks/f32_gflop_per_s") - 6400.0).abs() < 1e-3);
        products.push(flop(row("mixer", "both"), "/peaks/gflop_per_s"));
        for op in
            ["embedding", "linear mlp.up", "short_conv", "gated_norm", "swiglu", "cross_entropy", "adamw"]
        {
            let row = row(op, "both");
            assert!(number(row, "/seconds") > 0.0 && number(row, "/times_floor") > 0.0, "{row}");
            assert!(row["reference_seconds"].is_null(), "{row}");
        }
    }
    // The same mixer, held to the peak of its own dtype.
    assert!(products[0] > 0.0 && (products[1] / products[0] - 1.0).abs() < 1e-9, "{products:?}");
    let step = bench("step", "--steps 1 --dtype bf16");
    let ops: Vec<_> = step["table"]["ops"].as_array().unwrap().iter().map(|row| row["op"].clone()).collect();
    assert!(ops.contains(&"mixer".into()) && ops.contains(&"adamw".into()), "{ops:?}");
}
