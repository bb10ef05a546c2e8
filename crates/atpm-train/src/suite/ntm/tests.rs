//! Settings, training, resuming, measuring and looking, on machines small enough for a test.

use std::path::Path;

use atpm_data::synthetic::Split;
use atpm_data::synthetic::vector::{VectorStream, VectorTask};
use atpm_model::Layer;
use atpm_model::ntm::{Executor, Ntm};

use super::pictures;
use super::settings::Settings;
use super::trainer::Trainer;
use super::{eval, inspect, model, train};
use crate::checkpoint;
use crate::run::exit;
use crate::run::folder::Resume;
use crate::training::signals::StopFlag;

fn load(task: Option<&str>, set: &[&str]) -> anyhow::Result<Settings> {
    let set: Vec<String> = set.iter().map(|&setting| setting.to_owned()).collect();
    Settings::load(task, None, &set)
}

/// Six steps of a small machine.
fn small(run_dir: &Path, set: &[&str]) -> Settings {
    let mut settings = load(Some("copy"), set).unwrap();
    settings.run_dir = run_dir.to_owned();
    (settings.model.hidden, settings.model.slots, settings.model.width) = (24, 16, 12);
    (settings.train.steps, settings.train.least, settings.train.most) = (6, 1, 3);
    (settings.eval.every, settings.eval.batches) = (3, 1);
    settings
}

#[test]
fn settings_are_layered_and_mistakes_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ntm.toml");
    std::fs::write(
        &file,
        "task = \"repeat_copy\"\n[train]\nsteps = 7\nlr = 1\n[model]\ncontroller = \"feed_forward\"\n",
    )
    .unwrap();
    let settings =
        Settings::load(None, Some(&file), &["train.steps=9".into(), "run_dir=/tmp/x".into()]).unwrap();
    assert_eq!((settings.task, settings.train.steps, settings.train.lr), (VectorTask::RepeatCopy, 9, 1.0));
    assert_eq!(settings.run_dir, Path::new("/tmp/x"));
    assert_eq!(Settings::from_toml(&settings.to_toml().unwrap()).unwrap(), settings);

    // A task brings its own defaults, whoever names it; the override is above the file.
    for (flag, file) in [(None, None), (Some("priority_sort"), None), (None, Some(file.as_path()))] {
        let settings = Settings::load(flag, file, &["task=priority_sort".into()]).unwrap();
        assert_eq!((settings.task, settings.model.read_heads), (VectorTask::PrioritySort, 4), "{flag:?}");
    }
    std::fs::write(&file, "task = 5\n").unwrap();
    let error = Settings::load(None, Some(&file), &[]).unwrap_err();
    assert!(error.to_string().contains("ntm.toml: `task`: expected one of copy"), "{error:#}");

    for (task, set, expected) in [
        (None, vec![], "no task given; give --task NAME, the tasks are copy"),
        (None, vec!["task=5"], "--set task=5: `task`: expected one of copy"),
        (None, vec!["task=copi"], "did you mean `copy`?"),
        (Some("copy"), vec!["task=repeat_copy"], "--task copy and --set task=repeat_copy name two tasks"),
        (Some("copy"), vec!["train.most=16385"], "copy has sizes from 1 to 16384"),
        (Some("priority_sort"), vec!["train.least=70000", "train.most=70000"], "sizes from 1 to 16384"),
        (Some("copy"), vec!["model.slots=10000000000"], "slots: must be 3 to 65536"),
        (Some("copy"), vec!["train..steps=1"], "a key is empty"),
        (Some("priority-sort"), vec![], "did you mean `priority_sort`?"),
        (Some("copy"), vec!["train.step=1"], "unknown key `train.step`; did you mean `steps`?"),
        (Some("copy"), vec!["train.steps=many"], "`train.steps`: expected an integer"),
        (Some("copy"), vec!["train"], "write it as section.key=value"),
        (Some("copy"), vec!["train.least=9", "train.most=3"], "train.least = 9 and train.most = 3"),
        (Some("associative_recall"), vec!["train.least=1"], "associative_recall has sizes from 2 to"),
        (Some("copy"), vec!["train.lr=0"], "train.lr must be above 0"),
        (Some("copy"), vec!["train.rows=0"], "train.rows must be at least 1"),
        (Some("copy"), vec!["model.slots=2"], "slots"),
        (Some("copy"), vec!["model.inputs=3"], "the task's, 9 and 8"),
        (Some("copy"), vec!["model.controller=gru"], "gru"),
    ] {
        let error = load(task, &set).unwrap_err();
        assert_eq!(exit::code(&error), 2, "{error:#}");
        assert!(error.to_string().contains(expected), "{error:#}, expected {expected}");
    }
}

#[test]
fn curriculum_and_annealing_grow_and_end() {
    let settings = load(
        Some("copy"),
        &[
            "train.curriculum=100",
            "train.beta_steps=10",
            "train.beta_start=0.5",
            "train.least=5",
            "train.most=15",
        ],
    )
    .unwrap();
    assert_eq!([1, 51, 100, 101].map(|step| settings.sizes_at(step).1), [5, 10, 14, 15]);
    assert_eq!([1, 6, 11, 500].map(|step| settings.beta_scale_at(step)), [0.5, 0.75, 1.0, 1.0]);
    let plain = load(Some("copy"), &[]).unwrap();
    assert_eq!((plain.sizes_at(1), plain.beta_scale_at(1)), ((5, 20), 1.0));
}

#[test]
fn a_resumed_run_is_the_uninterrupted_one() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    let stop = StopFlag::default();
    let all = train::train(&small(&whole, &[]), &Resume::Never, &stop).unwrap();
    let settings = small(&parts, &[]);
    let mut first = Trainer::new(&settings).unwrap();
    std::fs::create_dir_all(&parts).unwrap();
    for _ in 0..4 {
        first.train_step().unwrap();
    }
    first.save(&parts).unwrap();
    let error = train::train(&settings, &Resume::Never, &stop).unwrap_err();
    assert!(exit::code(&error) == 2 && error.to_string().contains("--resume"), "{error:#}");
    // Other data than the checkpoint's is another run.
    for (set, expected) in [
        ("train.rows=8", "train.rows: 16 → 8"),
        ("train.curriculum=3", "train.curriculum: 0 → 3"),
        ("seed=1", "seed: 0 → 1"),
        ("model.suppression=0.5", "model.suppression: 0.0 → 0.5"),
    ] {
        let error = train::train(&small(&parts, &[set]), &Resume::Auto, &stop).unwrap_err();
        assert_eq!(exit::code(&error), 2, "{error:#}");
        assert!(error.to_string().contains(expected), "{error:#}, expected {expected}");
    }
    let other =
        Settings { train: super::settings::Train { most: 4, ..settings.train.clone() }, ..settings.clone() };
    let error = train::train(&other, &Resume::Auto, &stop).unwrap_err();
    assert!(error.to_string().contains("train.most: 3 → 4"), "{error:#}");
    let rest = train::train(&settings, &Resume::Auto, &stop).unwrap();
    assert_eq!((rest.test, rest.steps), (all.test, 6));
    let bits = |run: &Path| std::fs::read(run.join("checkpoints/step-00000006/model.safetensors")).unwrap();
    assert_eq!(bits(&whole), bits(&parts), "the same parameters to the bit");
    assert!(whole.join(train::RESULTS).is_file());
    let lines = std::fs::read_to_string(whole.join("metrics.jsonl")).unwrap();
    assert_eq!(lines.lines().count(), 6);
}

#[test]
fn a_run_that_is_done_keeps_its_results() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let (settings, stop) = (small(&run, &[]), StopFlag::default());
    let done = train::train(&settings, &Resume::Never, &stop).unwrap();
    assert_eq!(done.validation.len(), 2);
    let files = || {
        let checkpoint = "checkpoints/step-00000006/manifest.json";
        [train::RESULTS, "config.toml", "metrics.jsonl", checkpoint].map(|name| {
            let path = run.join(name);
            (std::fs::metadata(&path).unwrap().modified().unwrap(), std::fs::read(&path).unwrap())
        })
    };
    let before = files();
    assert_eq!(train::train(&settings, &Resume::Auto, &stop).unwrap(), done);
    assert_eq!(files(), before);
    // Settings that may change do not undo it; results that are lost are made again.
    assert_eq!(train::train(&small(&run, &["train.lr=0.5"]), &Resume::Auto, &stop).unwrap(), done);
    std::fs::remove_file(run.join(train::RESULTS)).unwrap();
    let again = train::train(&settings, &Resume::Auto, &stop).unwrap();
    assert_eq!((again.test, again.steps), (done.test, 6));
    let names = |folder: &Path| -> Vec<_> {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    let partial = names(&run).into_iter().find(|name| name.to_string_lossy().contains("partial"));
    assert_eq!(partial, None, "nothing stays beside what was written");

    // More steps than there were are trained.
    let longer = small(&run, &[]);
    let longer = Settings { train: super::settings::Train { steps: 7, ..longer.train }, ..longer };
    assert_eq!(train::train(&longer, &Resume::Auto, &stop).unwrap().steps, 7);
}

#[test]
fn a_picture_is_named_by_either_of_its_files() {
    for (out, svg, png) in [
        ("a/x.svg", "a/x.svg", "a/x.png"),
        ("a/x.png", "a/x.svg", "a/x.png"),
        ("x.PNG", "x.svg", "x.png"),
        ("x", "x", "x.png"),
    ] {
        assert_eq!(pictures(Path::new(out)), [Path::new(svg), Path::new(png)], "{out}");
    }
}

#[test]
fn a_signal_saves_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let stop = StopFlag::default();
    stop.raise(15);
    let error = train::train(&small(folder.path(), &[]), &Resume::Never, &stop).unwrap_err();
    assert_eq!(exit::code(&error), 143);
    assert!(checkpoint::find_latest(folder.path()).unwrap().path.is_some());
}

// The one test that asks for learning: a copy of three to five vectors, to nearly every bit, and by the diagonal.
#[test]
fn a_small_machine_learns_to_copy_and_its_heads_show_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let mut settings = load(Some("copy"), &["seed=1", "train.lr=1e-2", "train.final_ratio=0.05"]).unwrap();
    settings.run_dir.clone_from(&run);
    (settings.model.hidden, settings.model.slots, settings.model.width) = (64, 16, 16);
    (settings.train.steps, settings.train.least, settings.train.most) = (1000, 3, 5);
    (settings.eval.every, settings.eval.batches) = (0, 4);
    let results = train::train(&settings, &Resume::Never, &StopFlag::default()).unwrap();
    assert!(results.test.bit_accuracy >= 0.98, "{:?}", results.test);

    let out = Some(folder.path().join("curve.svg"));
    let args = eval::Args { model: run.clone(), sizes: vec![30, 4], batches: 2, seed: 0, out, json: false };
    let curve = eval::measure(&args).unwrap();
    assert_eq!(curve.points.iter().map(|point| point.size).collect::<Vec<_>>(), [4, 30]);
    let accuracy = |at: usize| curve.points[at].accuracy.bit_accuracy;
    assert!(accuracy(0) >= 0.98 && accuracy(1) < 0.8, "thirty vectors do not fit into 16 slots: {curve:?}");
    let large =
        eval::Args { model: run.clone(), sizes: vec![20_000], batches: 1, seed: 0, out: None, json: false };
    let error = eval::measure(&large).unwrap_err();
    assert!(error.to_string().contains("--sizes 20000: copy has sizes from 1 to 16384"), "{error:#}");
    eval::run(&args).unwrap();
    assert!(folder.path().join("curve.png").is_file());

    let (machine, settings) = model::open(&run).unwrap();
    let stream = VectorStream { task: settings.task, split: Split::Iid, seed: 0, rows: 1 };
    let mut machine = Executor::new(machine).unwrap();
    let seen = inspect::watch(&mut machine, settings.task, &stream.batch(0, (5, 5))).unwrap();
    assert_eq!((seen.read.len(), seen.read[0].len(), seen.read[0][0].len()), (1, 11, 16));
    assert_eq!(seen.retraced, Some(1.0), "the read head goes where the write head went");
    let look = |size, out: &str| {
        let out = folder.path().join(out);
        inspect::run(&inspect::Args { model: run.clone(), size: Some(size), index: 0, out, json: false })
    };
    look(5, "weights.png").unwrap();
    assert!(std::fs::read(folder.path().join("weights.png")).unwrap().starts_with(b"\x89PNG"));
    assert!(std::fs::read_to_string(folder.path().join("weights.svg")).unwrap().starts_with("<svg"));
    let error = look(0, "none.svg").unwrap_err();
    assert!(error.to_string().contains("--size 0: copy has sizes from 1 to 16384"), "{error:#}");
}

// A machine that cannot have learned must not look as if it had.
#[test]
fn an_untrained_machine_scores_as_chance() {
    let settings = load(Some("copy"), &[]).unwrap();
    let machine = Ntm::new(&settings.model, 3).unwrap();
    let stream = VectorStream { task: settings.task, split: Split::Iid, seed: 0, rows: 16 };
    let score = super::trainer::evaluate(&machine, &stream, (20, 20), 1).unwrap();
    assert!((0.4..0.6).contains(&score.bit_accuracy()), "{score:?}");
    assert_eq!((score.right_sequences, score.bits), (0, 16 * 20 * 8));
    assert_eq!(machine.parameters().len(), 6);
}

#[test]
fn paths_without_a_machine_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().join("missing"), folder.path().to_owned()] {
        let error = model::open(&path).err().unwrap();
        assert_eq!(exit::code(&error), 2, "{error:#}");
    }
}

#[test]
fn the_documentation_lists_every_key_with_its_default() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ntm.md");
    let page = std::fs::read_to_string(path).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let table: toml::Table = load(Some("copy"), &[]).unwrap().to_toml().unwrap().parse().unwrap();
    for (name, value) in table {
        let keys = match value {
            toml::Value::Table(section) => {
                section.into_iter().map(|(key, value)| (format!("{name}.{key}"), value)).collect()
            }
            value => vec![(name, value)],
        };
        for (key, value) in keys {
            let row =
                rows.iter().find(|row| row.contains(&format!("`{key}`")) && row.matches('|').count() == 4);
            let row = row.unwrap_or_else(|| panic!("docs/ntm.md lacks `{key}`"));
            // Sizes and folder depend on the task.
            let own = ["task", "run_dir", "train.least", "train.most"].contains(&key.as_str());
            let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            assert!(
                own || row.contains(&format!("`{shown}`")),
                "docs/ntm.md has another default of `{key}`: {row}"
            );
        }
    }
}
