//! The suite's own checks, planted faults among them.

use std::path::Path;

use atpm_data::IGNORE;
use atpm_data::synthetic::{Sample, Score, Split, Task};
use atpm_model::{Decoder, ModelConfig, ModelKind};
use candle_core::Device;

use super::config::SuiteConfig;
use super::curves;
use super::evaluation::{Decoding, Reader, answers, cross_entropy, evaluate};
use super::models::{Entry, NAMED, entries};
use super::protocol::{self, Findings};
use super::table::Table;
use super::trial::{Outcome, Trial};
use crate::run::exit;
use crate::training::inputs::Inputs;
use crate::training::signals::StopFlag;

const CONFIG: &str = r#"
out = "unset"
tasks = ["kv_recall", "copy"]
models = ["atpm", "gdn", "transformer", "lstm", "wide", "turing"]
jobs = 2
[model]
d_model = 16
layers = 1
heads = 1
address = 8
key = 8
value = 8
rank = 4
mlp = 24
[variants.wide]
mlp = 60
short_conv = 0
[variants.turing]
kind = "ntm"
layers = 1
slots = 8
slot_width = 3
[train]
steps = 2
rows = 4
[schedule]
warmup = 1
[sweep]
lrs = [1e-3, 1e-2]
tasks = ["kv_recall"]
steps = 1
[eval]
samples = 6
every = 1
curve_samples = 4
"#;

pub(super) fn config(overrides: &[&str]) -> anyhow::Result<SuiteConfig> {
    SuiteConfig::from_toml(CONFIG, Path::new("suite.toml"), overrides)
}

fn samples(task: Task, split: Split) -> Vec<Sample> {
    (0..40).map(|index| task.sample(split, 7, index)).collect()
}

fn model() -> Decoder {
    Decoder::new(&entries(&config(&[]).unwrap()).unwrap()[0].model, 3, &Device::Cpu).unwrap()
}

#[test]
fn variants_change_models_that_have_a_name_already() {
    let entry = |overrides: &[&str]| entries(&config(overrides).unwrap()).unwrap()[3].model.clone();
    let (plain, changed) = (entry(&[]), entry(&["variants.lstm.embedding_std=0.5"]));
    assert_eq!(plain.kind, ModelKind::Lstm);
    assert_eq!(changed, ModelConfig { embedding_std: Some(0.5), ..plain });
}

// The reference may be of any kind: what its kind has and another lacks is no part of the other.
#[test]
fn models_are_what_they_are_called_whatever_the_reference_is() {
    let of = |overrides: &[&str]| -> Vec<ModelConfig> {
        let entries = entries(&config(&[overrides, &["match=none"]].concat()).unwrap()).unwrap();
        entries.into_iter().map(|entry| entry.model).collect()
    };
    let all = "models=['atpm', 'gdn', 'psm', 'transformer', 'lstm', 'turing']";
    let kinds = [0, 0, 0, 1, 2, 3].map(|kind| ModelKind::ALL[kind]);
    for reference in [
        &["model.kind=lstm"][..],
        &["model.kind=ntm", "model.hidden=7", "model.slots=9", "model.slot_width=3"],
        &["model.kind=transformer"],
        &["model.rho=0.25", "model.lambda=1", "model.tie_beta=true"],
    ] {
        let models = of(&[reference, &[all]].concat());
        assert_eq!(models.iter().map(|model| model.kind).collect::<Vec<_>>(), kinds, "{reference:?}");
        assert_eq!((models[1].rho, models[2].tie_beta), (Some(0.0), false), "{reference:?}");
    }
    let pinned = of(&["model.rho=0.25", "models=['atpm', 'wide', 'lstm']"]);
    assert_eq!([&pinned[0], &pinned[1], &pinned[2]].map(|model| model.rho), [Some(0.25), Some(0.25), None]);
    // What a model says of itself is its own affair.
    let own = ["models=['bad']", "variants.bad.kind=lstm", "variants.bad.rho=0.5"];
    let error = entries(&config(&own).unwrap()).unwrap_err();
    assert!(exit::code(&error) == 2 && format!("{error:#}").contains("model.rho"), "{error:#}");
}

/// What is right of what `reader` answers on its own.
fn answer(reader: &mut impl Reader, samples: &[Sample]) -> anyhow::Result<Score> {
    let mut score = Score::default();
    for (sample, given) in samples.iter().zip(answers(reader, samples)?) {
        score.add(&sample.targets, &given);
    }
    Ok(score)
}

/// Copies perfectly as long as it is shown the true list, but begins with a mistake.
struct Stumbling<'a> {
    samples: &'a [Sample],
    rows: Vec<Vec<u32>>,
    /// Everything that it was ever shown.
    shown: Vec<u32>,
}

impl<'a> Stumbling<'a> {
    fn new(samples: &'a [Sample]) -> Self {
        Self { samples, rows: Vec::new(), shown: Vec::new() }
    }

    fn next(&self, seen: &[u32]) -> u32 {
        let sample = self.samples.iter().find(|sample| seen.starts_with(sample.prompt())).unwrap();
        let position = seen.len() - 1;
        if position < sample.prompt || !sample.ids.starts_with(seen) {
            return 0;
        }
        sample.targets[position]
    }
}

impl Reader for Stumbling<'_> {
    fn begin(&mut self, rows: usize) -> anyhow::Result<()> {
        self.rows = vec![Vec::new(); rows];
        Ok(())
    }

    fn read(&mut self, ids: &[u32]) -> anyhow::Result<Vec<u32>> {
        self.shown.extend(ids);
        let tokens = ids.len() / self.rows.len();
        let mut said = Vec::new();
        for (row, ids) in ids.chunks(tokens).enumerate() {
            for &id in ids {
                self.rows[row].push(id);
                let whole = self.rows[row].len() >= self.samples.iter().map(|s| s.prompt).min().unwrap();
                let known = |seen: &[u32]| self.samples.iter().any(|s| seen.starts_with(s.prompt()));
                let seen = &self.rows[row];
                said.push(if whole && known(seen) { self.next(seen) } else { 0 });
            }
        }
        Ok(said)
    }
}

// A planted fault: fed with the right answers instead of its own, this model would get every token but the first.
#[test]
fn a_model_that_stumbles_is_on_its_own() {
    let samples = samples(Task::Copy, Split::Iid);
    let mut reader = Stumbling::new(&samples);
    let score = answer(&mut reader, &samples).unwrap();
    assert_eq!((score.samples, score.exact, score.right), (40, 0, 0));

    let mut forced = Score::default();
    for sample in &samples {
        reader.begin(1).unwrap();
        forced.add(&sample.targets, &reader.read(&sample.ids).unwrap());
    }
    assert_eq!(forced.right, forced.tokens - 40, "teacher forcing would have hidden it");
    assert_eq!(score.tokens, forced.tokens);
}

// Nothing of a sample past its prompt reaches the model.
#[test]
fn answers_are_never_shown() {
    for task in [Task::Copy, Task::Sort, Task::KvRecall, Task::Mqar] {
        let honest = samples(task, Split::Ood);
        let spoilt: Vec<Sample> = honest
            .iter()
            .map(|sample| {
                let mut spoilt = sample.clone();
                spoilt.ids[sample.prompt..].fill(IGNORE);
                spoilt
            })
            .collect();
        let mut reader = Stumbling::new(&honest);
        answer(&mut reader, &spoilt).unwrap();
        assert!(!reader.shown.contains(&IGNORE), "{}", task.name());
        let model = model();
        let mut reader = Decoding::new(&model).unwrap();
        assert_eq!(answer(&mut reader, &spoilt).unwrap(), answer(&mut reader, &honest).unwrap());
    }
}

// What the decoder says alone with its own answers is what it says in a batch.
#[test]
fn company_does_not_matter() {
    let model = model();
    let samples = samples(Task::SelectiveCopy, Split::Iid);
    let mut reader = Decoding::new(&model).unwrap();
    let together = answer(&mut reader, &samples).unwrap();
    let mut alone = Score::default();
    for sample in &samples {
        let score = answer(&mut reader, std::slice::from_ref(sample)).unwrap();
        alone.samples += score.samples;
        alone.exact += score.exact;
        alone.tokens += score.tokens;
        alone.right += score.right;
    }
    assert_eq!(together, alone);
}

// A planted fault: a mean over all positions counts the padding of shorter rows.
#[test]
fn padding_counts_for_nothing() {
    let model = model();
    let samples = samples(Task::Copy, Split::Iid);
    let lengths: Vec<usize> = samples.iter().map(|sample| sample.ids.len()).collect();
    assert!(lengths.iter().min() < lengths.iter().max(), "rows of different lengths");
    let together = cross_entropy(&model, &samples).unwrap();
    let (mut sum, mut tokens) = (0.0, 0.0);
    for sample in &samples {
        let counted = sample.answer().count() as f64;
        sum += counted * cross_entropy(&model, std::slice::from_ref(sample)).unwrap();
        tokens += counted;
    }
    assert!((together - sum / tokens).abs() < 1e-5, "{together} {}", sum / tokens);

    let batch = atpm_data::synthetic::batch(&samples);
    let inputs = Inputs::of(&batch).unwrap();
    let losses = model.evaluate(&inputs.ids, &inputs.targets, &inputs.segments).unwrap();
    let losses = atpm_core::read_f32(&losses).unwrap();
    let faulty = losses.iter().map(|&loss| f64::from(loss)).sum::<f64>() / losses.len() as f64;
    assert!((faulty - together).abs() > 0.5, "the fault would show: {faulty} {together}");
}

#[test]
fn the_mixture_is_the_mean_over_its_tasks() {
    let model = model();
    let score = evaluate(&model, Task::MixedAll, Split::Iid, 7, 60).unwrap();
    let mut by_task = Vec::new();
    for task in Task::MixedAll.parts() {
        let all = (0..60).map(|index| Task::MixedAll.sample(Split::Iid, 7, index));
        let own: Vec<Sample> = all.filter(|sample| sample.task == task).collect();
        by_task.extend((!own.is_empty()).then(|| cross_entropy(&model, &own).unwrap()));
    }
    let mean = by_task.iter().sum::<f64>() / by_task.len() as f64;
    assert!(by_task.len() > 5 && (score.cross_entropy - mean).abs() < 1e-9);
}

#[test]
fn models_are_matched_and_named() {
    let entries = entries(&config(&[]).unwrap()).unwrap();
    let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["atpm", "gdn", "transformer", "lstm", "wide", "turing"]);
    for entry in &entries {
        let ratio = entry.parameters as f64 / entries[0].parameters as f64;
        assert!((0.98..=1.02).contains(&ratio), "{}: {ratio}", entry.name);
    }
    assert_eq!((entries[1].model.rho, entries[1].model.tie_beta), (Some(0.0), true));
    assert_eq!(entries[4].model.short_conv, 0);
    let unmatched = super::models::entries(&config(&["match=none"]).unwrap()).unwrap();
    assert_eq!(unmatched[4].model, ModelConfig { vocab: 160, mlp: 60, ..unmatched[4].model.clone() });
    assert!(unmatched[4].parameters > unmatched[0].parameters);
}

// A trial that is there is found by this digest: settings that were possible before a key came must keep theirs.
#[test]
fn finished_trials_keep_their_digests() {
    let config = config(&[]).unwrap();
    let digest =
        |entry: &Entry| Trial::new(&config, entry, Task::Copy, 0, 2, Some(0.01)).unwrap().digest().unwrap();
    let digests: Vec<_> =
        entries(&config).unwrap().iter().take(5).map(|entry| digest(entry)[..16].to_owned()).collect();
    assert_eq!(
        digests,
        ["011e236c06dd259e", "65f28707c8612a86", "f215df3bc736433a", "1e90e09eab9b3dd0", "3c5739578cd4d13b"]
    );
}

// At the size of the comparison, memory of 128 × 32 and all.
#[test]
fn every_named_model_is_matched() {
    let paper = include_str!("../../../../configs/suite/paper.toml");
    let names = NAMED.map(|(name, _)| format!("'{name}'")).join(", ");
    for (by, amount) in [
        ("params", (|entry| entry.parameters as f64) as fn(&Entry) -> f64),
        ("flops", |entry| entry.training_flop_per_token),
    ] {
        let overrides = [format!("models=[{names}]"), format!("match={by}")];
        let config = SuiteConfig::from_toml(paper, Path::new("paper.toml"), &overrides).unwrap();
        let entries = entries(&config).unwrap();
        for entry in &entries {
            let ratio = amount(entry) / amount(&entries[0]);
            assert!((0.98..=1.02).contains(&ratio), "{}: {ratio} of the {by}", entry.name);
        }
        let machine = entries.last().unwrap().model.ntm();
        assert_eq!((machine.slots, machine.width, machine.read_heads), (128, 32, 1));
    }
}

#[test]
fn mistakes_are_named() {
    for (overrides, expected) in [
        (&["tasks=[]"][..], "`tasks` is empty"),
        (&["seeds=[1, 1]"], "`seeds` names something twice"),
        (&["train.steps=0"], "train.steps = 0"),
        (&["match_tokens=0"], "match_tokens = 0"),
        (&["match=flop"], "`flops`"),
        (&["train.stepz=5"], "stepz"),
        (&["tasks=['kv_recal']"], "kv_recal"),
        (&["seeds=[1000]"], "sweep.seed = 1000"),
        (&["nonsense"], "section.key=value"),
        (&["out.x=1"], "`out` is no section"),
        (&["=1"], "a key is empty"),
        (&["variants.a/b.mlp=3"], "[variants.\"a/b\"]: a model's name is part of its files' names"),
    ] {
        let error = config(overrides).unwrap_err();
        assert_eq!(exit::code(&error), 2, "{error:#}");
        assert!(format!("{error:#}").contains(expected), "{overrides:?}: {error:#}");
    }
    for (overrides, expected) in [
        (&["models=['atmp']"][..], "did you mean `atpm`?"),
        (&["variants.wide.mpl=3"], "`mlp`"),
        (&["model.d_model=0"], "d_model"),
        (&["variants.wide.layers=9"], "cannot be matched"),
    ] {
        let error = entries(&config(overrides).unwrap()).unwrap_err();
        assert_eq!(exit::code(&error), 2, "{error:#}");
        assert!(format!("{error:#}").contains(expected), "{overrides:?}: {error:#}");
    }
}

#[test]
fn an_interrupted_suite_goes_on_and_results_are_not_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let out = format!("out={}", folder.path().display());
    let settings = config(&[&out]).unwrap();
    let stop = StopFlag::default();
    stop.raise(2);
    let error = protocol::run(&settings, &stop).unwrap_err();
    assert_eq!(exit::code(&error), 130, "{error:#}");

    let go = |overrides: &[&str]| {
        let all = [&[out.as_str()], overrides].concat();
        protocol::run(&config(&all).unwrap(), &StopFlag::default())
    };
    let first = go(&["jobs=1"]).unwrap();
    let trials = folder.path().join("trials");
    let files = || {
        let mut files: Vec<_> = std::fs::read_dir(&trials)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (std::fs::metadata(&path).unwrap().modified().unwrap(), path))
            .collect();
        files.sort();
        files
    };
    let before = files();
    // Two rates a model in the sweep, then two tasks.
    assert_eq!((before.len(), first.outcomes.len()), (6 * 2 + 6 * 2, 12));

    // Two results lost: they alone are made again, and come out the same, whatever runs beside them.
    for lost in ["copy-lstm-0.json", "copy-turing-0.json"] {
        std::fs::remove_file(trials.join(lost)).unwrap();
    }
    let second = go(&["jobs=2"]).unwrap();
    let same = |a: &Findings, b: &Findings| {
        a.outcomes
            .iter()
            .zip(&b.outcomes)
            .all(|(a, b)| (a.task, &a.model, &a.losses, a.scores) == (b.task, &b.model, &b.losses, b.scores))
    };
    assert!(same(&first, &second));
    assert_eq!(files().iter().filter(|file| !before.contains(file)).count(), 2);

    let error = go(&["optimizer.weight_decay=0.5"]).unwrap_err();
    assert_eq!(exit::code(&error), 2, "{error:#}");
    assert!(format!("{error:#}").contains("other settings"), "{error:#}");

    let model = &first.models[0];
    let best = model.sweep.iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    assert_eq!((model.sweep.len(), model.lr), (2, best.0));
    let table = Table::of(first);
    let markdown = table.markdown();
    assert_eq!(table.rows.len(), 2 * 6 * 3);
    for line in
        ["| task | atpm | gdn | transformer | lstm | wide | turing |", "Exact match, %, Stress", "| mean |"]
    {
        assert!(markdown.contains(line), "{markdown}");
    }
    assert!(markdown.contains("| model | parameters | MFLOP a token |"), "{markdown}");
    let json = serde_json::to_value(&table).unwrap();
    assert!(json["rows"][0]["exact_match"]["mean"].is_f64() && json["models"][4]["name"] == "wide");
}

/// One model on one task, in a folder of its own.
fn alone(out: &Path, overrides: &[&str]) -> anyhow::Result<Findings> {
    let out = format!("out={}", out.display());
    let own = ["models=['atpm']", "tasks=['kv_recall']", "eval.every=4", &out];
    protocol::run(&config(&[&own, overrides].concat())?, &StopFlag::default())
}

// A decay of some steps needs as many: no model's rate may be looked up in a run of one.
#[test]
fn a_schedule_with_a_decay_passes_the_sweep() {
    let folder = tempfile::tempdir().unwrap();
    let out = |name: &str| folder.path().join(name);
    let wsd = ["schedule.kind=wsd", "schedule.decay_steps=1", "sweep.steps=2", "optimizer.lr=5e-3"];
    let swept = alone(&out("swept"), &wsd).unwrap();
    assert_eq!((swept.models[0].sweep.len(), swept.outcomes.len()), (2, 1));
    for (rates, expected) in [("sweep.lrs=[]", 5e-3), ("sweep.lrs=[2e-3]", 2e-3)] {
        let unswept = alone(&out(rates), &[&wsd[..], &[rates]].concat()).unwrap();
        assert_eq!((unswept.models[0].lr, unswept.models[0].sweep.len()), (expected, 0));
    }
    // A rate that is chosen already is taken, whatever there is to choose from.
    let chosen = alone(&out("chosen"), &[&wsd[..], &["sweep.chosen.atpm=3e-3"]].concat()).unwrap();
    assert_eq!((chosen.models[0].lr, chosen.models[0].sweep.len(), chosen.outcomes[0].lr), (3e-3, 0, 3e-3));
    for (wrong, told) in [("sweep.chosen.atmp=3e-3", "did you mean `atpm`"), ("sweep.chosen.atpm=-1.0", "lr")]
    {
        let error = alone(&out("wrong"), &[&wsd[..], &[wrong]].concat()).unwrap_err();
        assert!(exit::code(&error) == 2 && format!("{error:#}").contains(told), "{error:#}");
    }
    // What no trial can have is told before the sweep is run.
    let long = ["schedule.kind=wsd", "schedule.decay_steps=2", "sweep.steps=3"];
    let error = alone(&out("long"), &long).unwrap_err();
    assert!(exit::code(&error) == 2 && format!("{error:#}").contains("train.steps = 2"), "{error:#}");
    assert_eq!(std::fs::read_dir(out("long/trials")).unwrap().count(), 0);
}

#[test]
fn a_rate_that_diverges_has_lost() {
    let folder = tempfile::tempdir().unwrap();
    let go = || alone(&folder.path().join("one"), &["sweep.lrs=[1e-3, 1e38]", "sweep.steps=12"]);
    let first = go().unwrap();
    let model = &first.models[0];
    assert!(model.lr == 1e-3 && model.sweep[0].1.is_finite() && model.sweep[1].1.is_nan(), "{model:?}");
    let name = format!("sweep-kv_recall-atpm-lr{}-1000.json", 1e38);
    let file = folder.path().join("one/trials").join(name);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("\"cross_entropy\":null"), "{text}");
    let outcome: Outcome = serde_json::from_str(&text).unwrap();
    assert!(outcome.losses.len() < 12, "it ended when it had diverged: {outcome:?}");

    // It is read back as what it is, and not run again.
    let second = go().unwrap();
    assert!(second.models[0].sweep[1].1.is_nan());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    let table = Table::of(second).markdown();
    assert!(table.contains(": diverged |"), "{table}");

    let out = folder.path().join("none");
    let error = alone(&out, &["sweep.lrs=[1e37, 1e38]", "sweep.steps=12"]).unwrap_err();
    assert_eq!(exit::code(&error), 2);
    assert!(error.to_string().contains("`atpm` diverged at every learning rate"), "{error:#}");
    assert_eq!(std::fs::read_dir(out.join("trials")).unwrap().count(), 2);
}

#[test]
fn a_trial_that_diverges_is_a_result_and_ends_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let both = ["sweep.lrs=[1e38]", "tasks=['kv_recall', 'sort']", "train.steps=12", "jobs=1"];
    let go = || alone(folder.path(), &both).unwrap();
    let first = go();
    assert_eq!(first.outcomes.len(), 2);
    for outcome in &first.outcomes {
        assert!(outcome.diverged().is_some() && outcome.losses.len() < 12, "{outcome:?}");
        assert!(outcome.scores.is_some(), "{outcome:?}");
    }
    let pictures = folder.path().join("curves");
    std::fs::create_dir_all(&pictures).unwrap();
    curves::draw(&first, &pictures).unwrap();
    let drawn = |name: &str| pictures.join(name).exists();
    assert!(drawn("kv_recall.png") && drawn("sort.svg") && drawn("all.svg") && drawn("all.png"));
    let table = Table::of(go());
    assert_eq!(table.diverged.len(), 2);
    let line = format!("- atpm on sort, seed 0, at step {}\n", table.diverged[1].step);
    assert!(table.markdown().ends_with(&line), "{}", table.markdown());
    let healthy = Table::of(alone(&folder.path().join("healthy"), &["sweep.lrs=[1e-3]"]).unwrap());
    assert!(healthy.diverged.is_empty() && !healthy.markdown().contains("Diverged"));
}

// Trials on disk stay what they are: a file that is read and written again is the same to the byte.
#[test]
fn outcomes_read_back_whether_or_not_they_are_finite() {
    let score =
        |loss: &str| format!("{{\"exact_match\":0.5,\"token_accuracy\":0.75,\"cross_entropy\":{loss}}}");
    let text = |loss: &str| {
        format!(
            "{{\"digest\":\"d\",\"task\":\"copy\",\"model\":\"atpm\",\"seed\":0,\"lr\":0.004,\"parameters\":192716,\
             \"losses\":[5.25,null],\"curve\":[{{\"step\":1,\"cross_entropy\":4.218119737309722}},\
             {{\"step\":2,\"cross_entropy\":{loss}}}],\"scores\":{{\"iid\":{},\"ood\":{},\"stress\":{}}},\
             \"seconds\":1.5,\"settings\":\"seed = 0\"}}",
            score("0.1"),
            score(loss),
            score("2.0")
        )
    };
    for loss in ["0.30000000000000004", "null"] {
        let outcome: Outcome = serde_json::from_str(&text(loss)).unwrap();
        assert_eq!(outcome.curve[1].cross_entropy.is_nan(), loss == "null");
        assert_eq!(outcome.scores.unwrap().ood.cross_entropy.is_nan(), loss == "null");
        assert_eq!(serde_json::to_string(&outcome).unwrap(), text(loss));

        // A picture of it has a gap.
        let folder = tempfile::tempdir().unwrap();
        let model = protocol::Model {
            name: "atpm".into(),
            parameters: 1,
            training_flop_per_token: 1.0,
            lr: 1e-3,
            sweep: Vec::new(),
        };
        curves::draw(&Findings { models: vec![model], outcomes: vec![outcome] }, folder.path()).unwrap();
        let svg = std::fs::read_to_string(folder.path().join("copy.svg")).unwrap();
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
    let without = text("null").replace("\"step\":2,\"cross_entropy\":null", "\"step\":2");
    assert!(serde_json::from_str::<Outcome>(&without).is_err(), "null is not the same as nothing");
}

#[test]
fn models_beyond_what_a_picture_holds_are_named() {
    let findings = |models: usize| {
        let model = |at: usize| protocol::Model {
            name: format!("m{at}"),
            parameters: 1,
            training_flop_per_token: 1.0,
            lr: 1e-3,
            sweep: Vec::new(),
        };
        Findings { models: (0..models).map(model).collect(), outcomes: Vec::new() }
    };
    assert_eq!(curves::left_out(&findings(8)), None);
    let told = curves::left_out(&findings(10)).unwrap();
    assert!(told.contains("hold 8 models") && told.ends_with("left out: m8, m9"), "{told}");
}

#[test]
fn the_documentation_names_every_key() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/suite.md")).unwrap();
    let toml = toml::Table::try_from(config(&[]).unwrap()).unwrap();
    for (key, value) in &toml {
        assert!(page.contains(&format!("`{key}`")) || page.contains(&format!("`{key}.")), "{key}");
        if let (toml::Value::Table(section), true) =
            (value, ["train", "sweep", "eval"].contains(&key.as_str()))
        {
            for name in section.keys() {
                assert!(page.contains(&format!("`{key}.{name}`")), "{key}.{name}");
            }
        }
    }
}
