//! Settings, right and wrong, as tables.

use super::*;
use crate::run::exit;

const MINIMAL: &str = "[data]\ntrain = \"shards\"\n";

fn load(text: &str, overrides: &[&str]) -> anyhow::Result<Run> {
    load::from_text(text, "my.toml", Some("my"), overrides)
}

/// The message of a refusal, which must be the user's mistake.
#[track_caller]
fn refusal(text: &str, overrides: &[&str]) -> String {
    let error = load(text, overrides).expect_err(text);
    assert_eq!(exit::code(&error), 2, "{error:#}");
    format!("{error:#}")
}

// O3: what is misspelt or misplaced is refused with section, key and the nearest key that exists.
#[test]
fn wrong_keys_are_refused_in_words() {
    let table: &[(&str, &[&str])] = &[
        ("sed = 1", &["my.toml", "`sed` at the top level", "`seed`"]),
        ("[train]\nstep = 5", &["my.toml", "`step` in [train]", "`steps`"]),
        ("[model]\nd-model = 64", &["`d-model` in [model]", "did you mean `d_model`"]),
        ("[optimizer]\nweight-decay = 0.1", &["`weight-decay` in [optimizer]", "`weight_decay`"]),
        ("[train]\nlr = 1e-3", &["`lr` in [train]", "belongs in [optimizer]"]),
        ("lr = 1e-3", &["`lr` at the top level", "belongs in [optimizer]"]),
        ("[train]\nseed = 1", &["`seed` in [train]", "top level"]),
        ("[trian]\nsteps = 5", &["[trian]", "did you mean [train]"]),
        ("[quux]\nsteps = 5", &["[quux]", "the sections are model, data"]),
        ("[schedule]\nqqqqqqqq = 5", &["`qqqqqqqq` in [schedule]", "its keys are kind, warmup"]),
        ("[model.mixer]\nheads = 5", &["`mixer` in [model]"]),
        ("[seed]\nheads = 5", &["`seed`", "expected whole number, got a section"]),
        ("train = 5", &["`train` is a section"]),
        ("[train]\nsteps = 5\nsteps = 6", &["my.toml, line 3, in [train]", "duplicate key", "steps = 6"]),
        ("[train\nsteps = 5", &["my.toml, line 1"]),
    ];
    for (text, expected) in table {
        let message = refusal(text, &[]);
        for part in *expected {
            assert!(message.contains(part), "{text}\n{message}\nlacks {part}");
        }
        assert!(!message.contains('\n'), "one line: {message}");
    }
}

#[test]
fn wrong_values_are_refused_in_words() {
    let table = [
        ("[train]\nsteps = \"many\"", "`steps` in [train]: expected whole number ≥ 1, got \"many\""),
        ("[train]\nsteps = 0", "expected whole number ≥ 1, got 0"),
        ("[train]\nsteps = -5", "expected whole number ≥ 1, got -5"),
        ("[train]\nsteps = 1.5", "got 1.5"),
        ("[optimizer]\nlr = nan", "`lr` in [optimizer]: expected number > 0, got nan"),
        ("[optimizer]\nlr = 0", "expected number > 0"),
        ("[optimizer]\nlr = inf", "expected number > 0"),
        ("[optimizer]\nbeta1 = 1.0", "expected number in [0, 1)"),
        ("[optimizer]\nclip = -1.0", "expected number ≥ 0"),
        ("[model]\ntied = 1", "expected true or false"),
        ("[schedule]\nkind = \"cosin\"", "expected \"cosine\" or \"wsd\""),
        ("[data]\ntrain = [1]", "expected string or list of strings"),
        ("[train]\nsteps = 10\nstop_after = 11", "train.stop_after = 11 lies beyond train.steps = 10"),
        ("[schedule]\nkind = \"wsd\"\ndecay_steps = 950", "longer than train.steps"),
        ("[schedule]\ndecay_steps = 9", "schedule.decay_steps counts only with"),
        ("[eval]\nevery = 9", "data.val names no shards"),
        ("[data]\ntokenizer = \"bpe:many\"\ntrain = \"x\"", "after `bpe:` stands the number of ids"),
        ("[data]\ntokenizer = \"bpe:256\"\ntrain = \"x\"", "at least 257"),
        (
            "[data]\nbos = true\ntrain = \"x\"",
            "data.bos = true needs a tokenizer with a beginning-of-text token",
        ),
        ("[data]\nbos = 1\ntrain = \"x\"", "`bos` in [data]: expected true or false"),
        ("[model]\nshort_conv = 1", "short_conv"),
        ("[model]\nrho = 1.5", "`rho` in [model]: expected number in [0, 1]"),
    ];
    for (text, expected) in table {
        let text = if text.starts_with("[data]") { text.into() } else { format!("{text}\n{MINIMAL}") };
        let message = refusal(&text, &[]);
        assert!(message.contains(expected), "{text}\n{message}\nlacks {expected}");
    }
    assert!(refusal("", &[]).contains("`data.train` is missing"), "a key without a default");
}

#[test]
fn overrides_are_checked_like_the_file() {
    let table = [
        ("train.setps=5", "--set train.setps=5: unknown key `setps` in [train]; did you mean `steps`?"),
        ("trian.steps=5", "unknown section [trian]; did you mean [train]?"),
        ("steps=5", "`steps` belongs in [train]"),
        ("train.steps", "section.key=value"),
        ("train.steps=many", "expected whole number ≥ 1, got \"many\""),
        ("optimizer.lr=nan", "expected number > 0"),
        ("train.steps=5\nlanes=3", "expected whole number"),
    ];
    for (setting, expected) in table {
        let message = refusal(MINIMAL, &[setting]);
        assert!(message.contains(expected), "{setting}\n{message}\nlacks {expected}");
    }
}

#[test]
fn overrides_are_toml_or_plain_text() {
    let run = load(
        MINIMAL,
        &[
            "train.steps=7",
            "optimizer.lr=1",
            "data.train=['a', 'b']",
            "data.val=shards/*.parquet",
            "run_dir=2024",
            "model.rho=0",
            "schedule.kind=wsd",
            "train.steps=8",
        ],
    )
    .unwrap();
    assert_eq!((run.train().steps, run.optimizer().lr), (8, 1.0), "the last one wins");
    assert_eq!(run.data().train, ["a", "b"]);
    assert_eq!(run.data().val, ["shards/*.parquet"]);
    assert_eq!(run.run_dir(), Path::new("2024"));
    assert_eq!(run.model().rho, Some(0.0));
    assert_eq!(run.schedule().kind, ScheduleKind::Wsd);
}

#[test]
fn settings_read_back_to_the_same_run() {
    let overrides = ["optimizer.lr=0.00031234567890123", "model.lambda=0.1", "train.stop_after=3"];
    let run = load(MINIMAL, &overrides).unwrap();
    assert_eq!(Run::from_toml(&run.to_toml().unwrap(), "config.toml").unwrap(), run);
    assert_eq!(run.with(&["seed=5"]).unwrap().with(&["seed=0"]).unwrap(), run);
    assert_eq!(run.run_dir(), Path::new("runs/my"), "named after the config file");
}

#[test]
fn defaults_are_those_of_the_crates() {
    let run = load(MINIMAL, &[]).unwrap();
    assert_eq!(*run.model(), ModelConfig::default());
    assert_eq!(*run.data(), DataConfig { train: vec!["shards".into()], ..DataConfig::default() });
}

#[test]
fn every_field_has_a_key_and_every_key_a_field() {
    // Keys without a default are absent from a resolved run unless they are given; no kind of model has all of them.
    let of_atpm: &[_] = &[
        "train.stop_after=1",
        "model.rho=0",
        "model.lambda=0",
        "model.half_life=9",
        "model.embedding_std=9",
    ];
    let of_ntm = &["model.kind=ntm", "model.hidden=9", "model.slots=9", "model.slot_width=9"];
    let mut fields = std::collections::BTreeSet::new();
    for given in [of_atpm, of_ntm] {
        let text = load(MINIMAL, given).unwrap().to_toml().unwrap();
        fields.extend(changes::flatten(&text.parse().unwrap()).into_keys());
    }
    let keys = keys::KEYS.iter().map(keys::Key::path).collect();
    assert_eq!(fields, keys);
}

#[test]
fn the_documentation_lists_every_key() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let page = std::fs::read_to_string(path).unwrap();
    for section in keys::SECTIONS {
        let table = keys::table(section);
        assert!(page.contains(&table), "docs/configuration.md lacks this table, or has an old one:\n{table}");
    }
}

#[test]
fn every_config_of_the_repository_is_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../configs");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let config = Some(path.clone());
            let run = super::load(&crate::run::cli::ConfigArgs { config, set: Vec::new() });
            run.unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
            names.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
        }
    }
    names.sort();
    assert_eq!(names, ["200m", "debug", "demo", "tiny"]);
}

#[test]
fn changes_are_listed_and_told_apart() {
    let old = load(MINIMAL, &[]).unwrap();
    let new = old.with(&["optimizer.lr=0.5", "model.rho=0", "model.heads=2"]).unwrap();
    let changes: Vec<_> = changes::between(&old, &new).unwrap();
    let lines: Vec<_> = changes.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["model.heads: 8 → 2", "model.rho: not set → 0.0", "optimizer.lr: 0.001 → 0.5"]);
    assert_eq!(
        changes.iter().map(changes::Change::changes_the_model).collect::<Vec<_>>(),
        [true, true, false]
    );
    assert!(changes::between(&old, &old).unwrap().is_empty());
}

// D23: the tokenizer's largest id against the model's vocabulary, both numbers in the message.
#[test]
fn the_vocabulary_holds_every_id() {
    let run = load(MINIMAL, &[]).unwrap();
    assert_eq!(run.with_vocab_for(257).unwrap().model().vocab, 320, "rounded up to a multiple of 64");
    let padded = run.with(&["model.vocab=300"]).unwrap().with_vocab_for(257).unwrap();
    assert_eq!(padded.model().vocab, 300, "a larger vocabulary is allowed");
    let error = run.with(&["model.vocab=256"]).unwrap().with_vocab_for(257).unwrap_err();
    assert_eq!(exit::code(&error), 2);
    let message = error.to_string();
    assert!(message.contains("model.vocab = 256") && message.contains("largest id is 256"), "{message}");
}
