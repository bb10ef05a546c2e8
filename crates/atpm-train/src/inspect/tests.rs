//! Values, table, pictures and mistakes of `inspect`, on models small enough for a test.

use std::fs;
use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray};
use arrow::datatypes::{Float64Type, Int32Type};
use atpm_data::synthetic::WriteKind;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::*;
use crate::inference::tests::{checkpoint, config};
use crate::report::plot::Picture as _;
use crate::run::exit;
use crate::suite::config::SuiteConfig;
use crate::suite::protocol;
use crate::training::signals::StopFlag;

const SUITE: &str = r#"
out = "unset"
tasks = ["overwrite"]
models = ["atpm", "gdn", "lstm"]
match = "none"
[model]
d_model = 16
layers = 2
heads = 2
address = 8
key = 8
value = 8
rank = 4
mlp = 24
[train]
steps = 2
rows = 4
[schedule]
warmup = 1
[eval]
samples = 4
every = 2
curve_samples = 4
"#;

fn suite(out: &Path, set: &[&str]) -> protocol::Findings {
    let out = format!("out={}", out.display());
    let config = SuiteConfig::from_toml(SUITE, Path::new("suite.toml"), &[&[&*out], set].concat()).unwrap();
    protocol::run(&config, &StopFlag::default()).unwrap()
}

fn args(model: &Path, out: &Path) -> Args {
    Args {
        model: model.into(),
        prompt: None,
        task: None,
        split: "iid".into(),
        seed: 0,
        index: 0,
        mark: Vec::new(),
        out: out.into(),
        json: false,
    }
}

fn of_task(model: &Path, task: &str) -> Args {
    Args { task: Some(task.into()), ..args(model, Path::new("unwritten")) }
}

/// What the model at `path` does with the args' sequence.
fn look(args: &Args) -> (Opened, Subject, Vec<MemoryTrace>) {
    let opened = model::open(&args.model).unwrap();
    let subject = subject(args, &opened).unwrap();
    let traces = trace(&opened, &subject).unwrap();
    (opened, subject, traces)
}

#[test]
fn a_suite_keeps_what_its_trials_learned() {
    let folder = tempfile::tempdir().unwrap();
    let models = folder.path().join("models");
    let kept = |name: &str| models.join(name).join("checkpoints").is_dir();
    let trials = || -> Vec<(String, Vec<u8>)> {
        let mut files: Vec<_> = fs::read_dir(folder.path().join("trials"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.display().to_string(), fs::read(&path).unwrap()))
            .collect();
        files.sort();
        files
    };
    // Without the key nothing is kept; with it what is done stays as it is, and only what is trained is kept.
    let first = suite(folder.path(), &[]);
    let before = trials();
    assert!(!models.exists() && before.len() == 3);
    fs::remove_file(folder.path().join("trials/overwrite-gdn-0.json")).unwrap();
    let second = suite(folder.path(), &["keep=true"]);
    assert_eq!([kept("overwrite-atpm-0"), kept("overwrite-gdn-0")], [false, true]);
    assert!(trials().iter().zip(&before).filter(|(now, before)| now == before).count() >= 2);
    for (first, second) in first.outcomes.iter().zip(&second.outcomes) {
        assert_eq!(
            (&first.digest, &first.losses, first.scores),
            (&second.digest, &second.losses, second.scores)
        );
    }

    // The kept model is the trained one: it loses on validation samples what the trial's curve ends with.
    fs::remove_dir_all(folder.path().join("trials")).unwrap();
    let findings = suite(folder.path(), &["keep=true"]);
    for outcome in &findings.outcomes {
        let opened = model::open(&models.join(format!("overwrite-{}-0", outcome.model))).unwrap();
        let samples: Vec<_> =
            (0..4).map(|index| Task::Overwrite.sample(Split::Validation, 0, index)).collect();
        let loss = crate::suite::evaluation::cross_entropy(&opened.model, &samples).unwrap();
        assert_eq!(loss, outcome.curve[0].cross_entropy, "{}", outcome.model);
        let words = opened.tokenizer.encode("overwrite k1 v2 k1 v3 ? k1 =").unwrap();
        assert_eq!(words, [9, 33, 98, 33, 99, 1, 33, 2]);
    }

    // Weights of other settings are no weights of this trial, and give way whole.
    fs::remove_dir_all(folder.path().join("trials")).unwrap();
    let shorter = suite(folder.path(), &["keep=true", "train.steps=1"]);
    assert_ne!(shorter.outcomes[0].digest, findings.outcomes[0].digest);
    let checkpoints = fs::read_dir(models.join("overwrite-atpm-0/checkpoints")).unwrap();
    let names: Vec<_> = checkpoints.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["step-00000001"]);
    assert_eq!(fs::read_dir(&models).unwrap().count(), 3, "nothing is left beside them");
}

#[test]
fn revisions_are_marked_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    suite(folder.path(), &["keep=true", "models=['atpm']"]);
    let model = folder.path().join("models/overwrite-atpm-0");
    for task in ["overwrite", "rebind", "gated_write"] {
        let (_, subject, traces) = look(&of_task(&model, task));
        let sample = named("task", task, &Task::ALL, Task::name).unwrap().sample(Split::Iid, 0, 0);
        let writes = sample.writes();
        let revisions = || writes.iter().filter(|write| write.kind == WriteKind::Revision);
        assert!(revisions().count() > 0, "{task}");
        assert_eq!(subject.marks, revisions().flat_map(|write| write.words.clone()).collect::<Vec<_>>());
        assert_eq!((traces.len(), traces[0].heads(), traces[0].tokens()), (2, 2, sample.ids.len()));
        for (place, word) in subject.places.iter().zip([0, 1]) {
            let group = place.groups.iter().find(|group| group.name == "revision").unwrap();
            assert_eq!(group.tokens, revisions().map(|write| write.words.start + word).collect::<Vec<_>>());
            assert_eq!(place.groups.iter().map(|group| group.tokens.len()).sum::<usize>(), writes.len());
            // The means, added up once more.
            let means = Means::new(place, &traces);
            let index = place.groups.iter().position(|group| group.name == "revision").unwrap();
            let (mut sum, at) = (0.0, means.heads.iter().position(|&head| head == (1, 1)).unwrap());
            for &token in &group.tokens {
                sum += traces[1].at(Quantity::Residual, token, 1) / group.tokens.len() as f64;
            }
            assert!((means.of(Quantity::Residual)[at][index] - sum).abs() < 1e-12);
        }
    }
    // The user's own marks come instead.
    let marked = Args { mark: vec![3, 1, 3], ..of_task(&model, "overwrite") };
    let (_, subject, _) = look(&marked);
    assert_eq!((subject.marks, subject.places[0].groups[1].tokens.as_slice()), (vec![1, 3], &[1, 3][..]));
}

// A picture says whose marks it shows.
#[test]
fn pictures_tell_where_marks_come_from() {
    let folder = tempfile::tempdir().unwrap();
    suite(folder.path(), &["keep=true", "models=['atpm']"]);
    let model = folder.path().join("models/overwrite-atpm-0");
    for (mark, expected) in
        [(vec![], "marked: the words of writes that revise a fact"), (vec![1, 3], "marked: tokens of --mark")]
    {
        let (opened, subject, traces) = look(&Args { mark, ..of_task(&model, "overwrite") });
        let pictures =
            Pictures { config: opened.model.config(), subject: &subject, traces: &traces, means: &[] };
        assert_eq!(pictures.heat().note, expected);
    }
}

// α is 0 at the first token because nothing stands before it: that is no value, in no picture and in no mean.
#[test]
fn means_of_alpha_leave_the_first_token_out() {
    let folder = tempfile::tempdir().unwrap();
    let step = checkpoint(&folder.path().join("run"), &config(true), 1);
    let looked = |mark: &[usize]| {
        let out = Path::new("unwritten");
        let (opened, subject, traces) =
            look(&Args { prompt: Some("Ada lives".into()), mark: mark.into(), ..args(&step, out) });
        let means: Vec<_> = subject.places.iter().map(|place| Means::new(place, &traces)).collect();
        (describe(&opened, &subject, &traces, &means), means, traces)
    };
    let (_, means, traces) = looked(&[0, 1, 2]);
    let marked = |quantity| means[0].of(quantity)[3][1];
    let at = |quantity, token| traces[1].at(quantity, token, 1);
    let alpha = f64::midpoint(at(Quantity::Alpha, 1), at(Quantity::Alpha, 2));
    assert!(alpha > 0.0 && (marked(Quantity::Alpha) - alpha).abs() < 1e-12);
    let rho = (0..3).map(|token| at(Quantity::Rho, token)).sum::<f64>() / 3.0;
    assert!((marked(Quantity::Rho) - rho).abs() < 1e-12);

    let (said, means, _) = looked(&[0]);
    assert!(means[0].of(Quantity::Alpha)[3][1].is_nan() && said.contains('–') && !said.contains("NaN"));
}

#[test]
fn an_earlier_inspection_gives_way_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (step, out) = (checkpoint(&folder.path().join("run"), &config(true), 1), folder.path().join("out"));
    let prompt = |mark: Vec<usize>| Args { prompt: Some("Ada".into()), mark, ..args(&step, &out) };
    run(&prompt(vec![1])).unwrap();
    assert!(out.join("contrast.svg").is_file());
    // Of a deeper model; and what is the user's own.
    fs::write(out.join("layer-12.png"), "old").unwrap();
    let own = ["layer-x.svg", "layer-.svg", "heat.txt", "my-heat.svg"];
    for name in own {
        fs::write(out.join(name), "mine").unwrap();
    }
    run(&prompt(Vec::new())).unwrap();
    let mut names: Vec<String> = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let pictures = ["heat", "layer-0", "layer-1", "portrait"];
    let mut expected: Vec<String> =
        pictures.iter().flat_map(|name| [format!("{name}.png"), format!("{name}.svg")]).collect();
    expected.extend(own.map(String::from));
    expected.push("values.parquet".into());
    expected.sort();
    assert_eq!(names, expected);
}

// Read by another program's reader, every row is the trace's.
#[test]
fn the_table_holds_every_value() {
    let folder = tempfile::tempdir().unwrap();
    suite(folder.path(), &["keep=true", "models=['atpm']"]);
    let args = Args {
        out: folder.path().join("deep/out"),
        ..of_task(&folder.path().join("models/overwrite-atpm-0"), "gated_write")
    };
    run(&args).unwrap();
    let (_, subject, traces) = look(&args);
    let file = fs::File::open(args.out.join("values.parquet")).unwrap();
    let batches: Vec<_> = ParquetRecordBatchReaderBuilder::try_new(file)
        .unwrap()
        .build()
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let [batch] = batches.as_slice() else { panic!("one batch") };
    let tokens = subject.ids.len();
    assert_eq!((batch.num_rows(), batch.num_columns()), (tokens * 2 * 2, 14));
    let integer = |name: &str, row: usize| -> usize {
        let column = batch.column_by_name(name).unwrap().as_primitive::<Int32Type>();
        usize::try_from(column.value(row)).unwrap()
    };
    let text = |name: &str, row: usize| {
        let column = batch.column_by_name(name).unwrap().as_string::<i32>();
        (!column.is_null(row)).then(|| column.value(row).to_owned())
    };
    for row in 0..batch.num_rows() {
        let (token, layer, head) = (row / 4, row / 2 % 2, row % 2);
        assert_eq!(
            [integer("token", row), integer("layer", row), integer("head", row)],
            [token, layer, head]
        );
        assert_eq!(integer("id", row), subject.ids[token] as usize);
        assert_eq!(text("word", row).as_ref(), Some(&subject.words[token]));
        let write = subject.writes[token].map(|kind| match kind {
            WriteKind::First => "first".to_owned(),
            WriteKind::Revision => "revision".into(),
            WriteKind::Ignored => "ignored".into(),
        });
        assert_eq!(text("write", row), write);
        let mark = batch.column_by_name("mark").unwrap().as_boolean().value(row);
        assert_eq!(mark, write.as_deref() == Some("revision"));
        for quantity in Quantity::ALL {
            let column = batch.column_by_name(quantity.name()).unwrap().as_primitive::<Float64Type>();
            assert_eq!(column.value(row), traces[layer].at(quantity, token, head));
        }
    }
    let mut names: Vec<String> = fs::read_dir(&args.out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    let pictures = ["contrast", "heat", "layer-0", "layer-1", "portrait"];
    let mut expected: Vec<_> =
        pictures.iter().flat_map(|name| [format!("{name}.png"), format!("{name}.svg")]).collect();
    expected.push("values.parquet".into());
    assert_eq!(names, expected);
}

/// Values of an attribute in the elements that hold `needle`.
fn numbers(svg: &str, needle: &str, attribute: &str) -> Vec<f64> {
    let key = format!(" {attribute}=\"");
    let lines = svg.lines().filter(|line| line.contains(needle));
    lines.filter_map(|line| line.split(&key).nth(1)?.split('"').next()?.parse().ok()).collect()
}

#[test]
fn pictures_show_marks_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let step = checkpoint(&folder.path().join("run"), &config(true), 1);
    let text = "Ada lives in Rome.";
    let looked = |mark: &[usize]| {
        let prompt =
            Args { prompt: Some(text.into()), mark: mark.into(), ..args(&step, Path::new("unwritten")) };
        look(&prompt)
    };
    let (opened, subject, traces) = looked(&[4, 5, 10]);
    let means: Vec<_> = subject.places.iter().map(|place| Means::new(place, &traces)).collect();
    let config = opened.model.config();
    let pictures = Pictures { config, subject: &subject, traces: &traces, means: &means };
    assert_eq!(subject.words.concat(), text);

    // A band for each run of marked tokens, in each of six panels, as wide as its tokens.
    let lines = pictures.lines(1).draw();
    let (lefts, widths) = (numbers(&lines, "#fdebdc", "x"), numbers(&lines, "#fdebdc", "width"));
    assert_eq!((lefts.len(), lefts[0], widths[0], widths[1]), (12, 112.0 + 4.0 * 24.0, 48.0, 24.0));
    assert_eq!(lefts[1], 112.0 + 10.0 * 24.0);
    let words = |svg: &str, color: &str| svg.matches(&format!("fill=\"{color}\" stroke=\"{color}\"")).count();
    assert_eq!(words(&lines, "#b42318"), 3, "three words stand out");
    // A line a head and panel, all of them finite.
    assert_eq!(lines.matches("stroke-width=\"1.6\"").count(), 12);
    assert!(!lines.contains("NaN") && !lines.contains("inf"));

    // A cell for each token, layer, head and quantity, grey for α at the first token; a scale of 16 a panel.
    let heat = pictures.heat();
    let (svg, tokens) = (heat.draw(), text.len());
    assert_eq!(svg.matches("<rect ").count(), 1 + 6 * (tokens * 2 * 2 + 16));
    assert_eq!(svg.matches("#d0d7de").count(), 2 * 2);
    assert_eq!(svg.matches("stroke=\"#b42318\" stroke-width=\"1.4\"").count(), 12);

    // A point a token and head in each square, marked ones ringed.
    let portrait = pictures.portrait();
    let svg = portrait.draw();
    assert_eq!(svg.matches("r=\"3.6\"").count(), 2 * 2 * tokens);
    assert_eq!(svg.matches("r=\"6.2\"").count(), 2 * 2 * 3);
    for corner in ["PSM / Gated DeltaNet", "stable revision", "directed", "RCQP"] {
        assert_eq!(svg.matches(&format!(">{corner}<")).count(), 2, "{corner}");
    }
    // λ goes to the right and ρ upwards, so that (1, 0), stable revision, is at the lower right.
    let corner = |name: &str| {
        (numbers(&svg, &format!(">{name}<"), "x")[0], numbers(&svg, &format!(">{name}<"), "y")[0])
    };
    assert!(corner("stable revision").0 > corner("directed").0);
    assert!(corner("stable revision").1 > corner("directed").1);
    let spot = portrait.squares[1].spots[2 * 7 + 1];
    assert_eq!(spot.at, (traces[1].at(Quantity::Lambda, 7, 1), traces[1].at(Quantity::Rho, 7, 1)));
    assert_eq!((spot.series, spot.marked), (1, false));

    // The PNG has twice the size of the SVG.
    let (svg, png) = (folder.path().join("a.svg"), folder.path().join("a.png"));
    heat.write(&svg, &png).unwrap();
    let bytes = fs::read(&png).unwrap();
    let size = |at: usize| f64::from(u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap()));
    let svg = fs::read_to_string(&svg).unwrap();
    assert_eq!(size(16), 2.0 * numbers(&svg, "<svg", "width")[0]);
    assert!((size(20) - 2.0 * numbers(&svg, "<svg", "height")[0]).abs() <= 2.0);

    // Nothing marked, nothing compared, nothing ringed.
    let (opened, subject, traces) = looked(&[]);
    let plain = Pictures { config: opened.model.config(), subject: &subject, traces: &traces, means: &[] };
    assert!(subject.places.is_empty() && !plain.heat().draw().contains("#b42318"));
}

#[test]
fn pinned_controllers_are_told() {
    let folder = tempfile::tempdir().unwrap();
    suite(folder.path(), &["keep=true", "models=['gdn']"]);
    let (opened, subject, traces) =
        look(&of_task(&folder.path().join("models/overwrite-gdn-0"), "overwrite"));
    let said = describe(&opened, &subject, &traces, &[]);
    for part in ["ρ is held at 0", "λ is held at 0", "β_V follows β_K"] {
        assert!(said.contains(part), "{said}");
    }
    let corner = (0..subject.ids.len()).all(|token| {
        traces[0].at(Quantity::Rho, token, 0) == 0.0 && traces[0].at(Quantity::Lambda, token, 1) == 0.0
    });
    assert!(corner);
}

#[test]
fn mistakes_are_told_and_write_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let text = checkpoint(&folder.path().join("run"), &config(true), 1);
    suite(folder.path(), &["keep=true", "models=['atpm', 'lstm']"]);
    let kept = |name: &str| folder.path().join("models").join(name);
    let (atpm, lstm) = (kept("overwrite-atpm-0"), kept("overwrite-lstm-0"));
    fs::write(folder.path().join("file"), "x").unwrap();
    let out = folder.path().join("out");
    let prompt = |model: &PathBuf, text: &str| Args { prompt: Some(text.into()), ..args(model, &out) };
    let task = |model: &PathBuf, task: &str| Args { out: out.clone(), ..of_task(model, task) };
    for (args, expected) in [
        (args(&folder.path().join("nowhere"), &out), "there is no such folder"),
        (args(&text, &out), "nothing to read"),
        (prompt(&text, ""), "--prompt: it is empty"),
        (prompt(&text, &"x".repeat(1025)), "the sequence has 1025 tokens, and a picture holds 1024"),
        (Args { mark: vec![0, 3], ..prompt(&text, "Ada") }, "--mark 3: the sequence has 3 tokens"),
        (Args { mark: vec![99], ..task(&atpm, "overwrite") }, "--mark 99"),
        (task(&text, "overwrite"), "not trained on the memory tasks"),
        (task(&atpm, "overwrit"), "did you mean `overwrite`?"),
        (Args { split: "idd".into(), ..task(&atpm, "overwrite") }, "--split idd"),
        (task(&lstm, "overwrite"), "its model.kind is \"lstm\""),
        (prompt(&atpm, "overwrite k1 v99"), "a word that is none of its own"),
        (Args { out: folder.path().join("file/out"), ..task(&atpm, "overwrite") }, "--out"),
    ] {
        let error = run(&args).unwrap_err();
        assert_eq!(exit::code(&error), 2, "{error:#}");
        assert!(format!("{error:#}").contains(expected), "{error:#} / {expected}");
        assert!(!out.exists(), "{expected}");
    }
}
