//! Tests of opening and exporting, and the small checkpoint that the tests of this room share.

use std::fs;
use std::path::{Path, PathBuf};

use atpm_core::Segments;
use atpm_data::Tokenizer;
use atpm_model::{Decoder, ModelConfig, ModelKind};
use candle_core::{Device, Tensor};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::export::{self, Args};
use super::model::{self, Opened};
use crate::checkpoint::{Contents, TrainState, save};
use crate::run::exit;

/// A small model for the `bytes` tokenizer, its vocabulary padded.
pub(crate) fn config(tied: bool) -> ModelConfig {
    ModelConfig {
        vocab: 320,
        d_model: 16,
        layers: 2,
        heads: 2,
        address: 4,
        key: 4,
        value: 4,
        rank: 2,
        mlp: 32,
        tied,
        ..ModelConfig::default()
    }
}

/// A checkpoint of step 3 with a freshly initialised model; its folder.
pub(crate) fn checkpoint(run_dir: &Path, config: &ModelConfig, seed: u64) -> PathBuf {
    let model = Decoder::new(config, seed, &Device::Cpu).unwrap();
    let parameters = model.parameters();
    let zeros: Vec<Tensor> = parameters.iter().map(|p| p.value.zeros_like().unwrap()).collect();
    let state = TrainState {
        step: 3,
        updates: 3,
        tokens_seen: 0,
        target_tokens: 0,
        skipped_steps: 0,
        data: Value::Null,
        config: String::new(),
        tokenizer: "bytes".into(),
        tokenizer_fingerprint: Tokenizer::open("bytes").unwrap().fingerprint().into(),
        model: serde_json::to_value(config).unwrap(),
    };
    let contents = Contents { state: &state, parameters: &parameters, m: &zeros, v: &zeros, files: &[] };
    save(run_dir, &contents).unwrap()
}

fn export(checkpoint: &Path, out: &Path, dtype: export::Dtype) -> anyhow::Result<()> {
    export::run(&Args { checkpoint: checkpoint.into(), out: out.into(), dtype, json: false })
}

/// Bits of the logits after some text.
fn logits(opened: &Opened) -> Vec<u32> {
    let ids: Vec<u32> = (0..50).map(|at| (at * 37 + 11) % 257).collect();
    let input = Tensor::from_vec(ids, (1, 50), &Device::Cpu).unwrap();
    let logits = opened.model.logits(&input, &Segments::continuous(1, 50), None).unwrap();
    atpm_core::read_f32(&logits).unwrap().iter().map(|logit| logit.to_bits()).collect()
}

#[test]
fn a_baseline_has_no_export() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    checkpoint(&run, &ModelConfig { kind: ModelKind::Lstm, ..config(true) }, 1);
    let out = folder.path().join("out");
    let error = export(&run, &out, export::Dtype::F32).unwrap_err();
    assert_eq!(exit::code(&error), 2);
    assert!(error.to_string().contains("model.kind is \"lstm\""), "{error}");
    assert!(!out.exists());
}

// S11: tied and untied exports reopen to the same logits; names are as documented, the tie flag is set.
#[test]
fn exports_reopen_with_equal_logits() {
    for tied in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let step = checkpoint(&run, &config(tied), 1);
        let out = folder.path().join("out");
        export(&run, &out, export::Dtype::F32).unwrap();

        let (original, reopened) = (model::open(&step).unwrap(), model::open(&out).unwrap());
        assert_eq!(logits(&original), logits(&reopened), "tied {tied}");
        assert_eq!((original.step, reopened.step), (Some(3), None));
        // Whoever reads a model needs no room for gradients.
        for parameter in original.model.parameters().iter().chain(&reopened.model.parameters()) {
            assert_eq!(parameter.gradient.elem_count(), 0, "{}", parameter.name);
        }
        assert_eq!(original.fingerprint().unwrap(), reopened.fingerprint().unwrap());

        let bytes = fs::read(out.join("model.safetensors")).unwrap();
        let read = SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(read.tensor("head.weight").is_ok(), !tied);
        for name in
            ["embedding.weight", "norm.weight", "blocks.1.mixer.transport.c", "blocks.0.mlp.up.weight"]
        {
            assert_eq!(read.tensor(name).unwrap().dtype(), Dtype::F32, "{name}");
        }
        assert_eq!(read.len(), original.model.parameters().len());
        let json: Value = serde_json::from_slice(&fs::read(out.join("config.json")).unwrap()).unwrap();
        assert_eq!(json["tie_word_embeddings"], tied);
        assert_eq!((&json["vocab_size"], &json["tokenizer_vocab_size"]), (&320.into(), &257.into()));
        for file in ["generation_config.json", "tokenizer.json", "tokenizer_config.json"] {
            assert!(out.join(file).is_file(), "{file}");
        }
    }
}

#[test]
fn bf16_exports_hold_the_rounded_values() {
    let folder = tempfile::tempdir().unwrap();
    let step = checkpoint(folder.path(), &config(true), 1);
    let out = folder.path().join("out");
    export(&step, &out, export::Dtype::Bf16).unwrap();
    let (original, reopened) = (model::open(&step).unwrap(), model::open(&out).unwrap());
    for (full, rounded) in original.model.parameters().iter().zip(reopened.model.parameters()) {
        let full = atpm_core::read_f32(&full.value).unwrap();
        let expected: Vec<f32> = full.iter().map(|value| half::bf16::from_f32(*value).to_f32()).collect();
        assert_eq!(atpm_core::read_f32(&rounded.value).unwrap(), expected, "{}", rounded.name);
    }
    let json: Value = serde_json::from_slice(&fs::read(out.join("config.json")).unwrap()).unwrap();
    assert_eq!(json["torch_dtype"], "bfloat16");
}

#[test]
fn exports_never_overwrite_and_never_stay_half_written() {
    let folder = tempfile::tempdir().unwrap();
    let step = checkpoint(&folder.path().join("run"), &config(true), 1);
    let out = folder.path().join("out");
    fs::create_dir(&out).unwrap();
    export(&step, &out, export::Dtype::F32).expect("an empty folder may be used");
    let error = export(&step, &out, export::Dtype::F32).unwrap_err();
    assert_eq!(exit::code(&error), 2);
    assert!(error.to_string().contains("not empty"), "{error}");
    // S15: below a file, no folder can be made.
    fs::write(folder.path().join("file"), "x").unwrap();
    let error = export(&step, &folder.path().join("file/out"), export::Dtype::F32).unwrap_err();
    assert_eq!(exit::code(&error), 2);
    assert!(error.to_string().contains("file/out"), "{error}");
    let mut names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["file", "out", "run"]);
}

/// An export changed by `damage` must be refused with `expected`, as the user's mistake.
fn check_refused(damage: impl Fn(&Path), expected: &str) {
    let folder = tempfile::tempdir().unwrap();
    let step = checkpoint(&folder.path().join("run"), &config(true), 1);
    let out = folder.path().join("out");
    export(&step, &out, export::Dtype::F32).unwrap();
    damage(&out);
    let error = model::open(&out).unwrap_err();
    assert_eq!(exit::code(&error), 2, "{error:#}");
    assert!(format!("{error:#}").contains(expected), "{error:#} / {expected}");
}

fn edit(file: &'static str, from: &'static str, to: &'static str) -> impl Fn(&Path) {
    move |out| {
        let text = fs::read_to_string(out.join(file)).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(out.join(file), text.replacen(from, to, 1)).unwrap();
    }
}

// S11: tensors that are unknown or missing, and configurations that fit something else, are errors.
#[test]
fn exports_that_do_not_fit_are_refused() {
    check_refused(
        edit("config.json", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false"),
        "`head.weight` is missing",
    );
    check_refused(
        edit("config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"),
        "`blocks.1.mixer.a_log` is unknown to the model",
    );
    check_refused(
        edit("config.json", "\"hidden_size\": 16", "\"hidden_size\": 32"),
        "`embedding.weight` has shape [320, 16], the model needs [320, 32]",
    );
    check_refused(edit("config.json", "\"model_type\": \"atpm\"", "\"model_type\": \"gpt2\""), "only `atpm`");
    check_refused(edit("config.json", "\"rms_norm_eps\"", "\"eps\""), "rms_norm_eps");
    check_refused(edit("config.json", "\"eos_token_id\": 256", "\"eos_token_id\": 7"), "ends a text");
    check_refused(|out| fs::remove_file(out.join("model.safetensors")).unwrap(), "model.safetensors");
    check_refused(|out| fs::remove_file(out.join("tokenizer.json")).unwrap(), "tokenizer");
}

#[test]
fn paths_that_hold_no_model_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "x").unwrap();
    fs::create_dir_all(folder.path().join("run/checkpoints/step-00000001")).unwrap();
    for (path, expected) in [
        ("nowhere", "there is no such folder"),
        ("file", "it is no folder"),
        ("", "manifest.json is missing"),
        ("run", "no complete checkpoint"),
        ("run/checkpoints/step-00000001", "manifest.json is missing"),
    ] {
        let error = model::open(&folder.path().join(path)).unwrap_err();
        assert_eq!(exit::code(&error), 2);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

// D23: a tokenizer with more ids than the model has rows is refused, with both numbers.
#[test]
fn tokenizers_that_are_too_large_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let step = checkpoint(folder.path(), &ModelConfig { vocab: 256, ..config(true) }, 1);
    let error = model::open(&step).unwrap_err();
    assert_eq!(exit::code(&error), 2);
    assert!(error.to_string().contains("257 ids, the model's vocabulary 256"), "{error}");
}
