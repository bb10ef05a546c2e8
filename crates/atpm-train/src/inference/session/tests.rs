//! Tests of sessions: the same seed gives the same text, and a saved memory goes on as if nothing had happened.

use std::fs;
use std::path::Path;

use atpm_model::{ModelConfig, ModelKind};

use super::super::model::{self, Opened};
use super::super::tests::{checkpoint, config};
use super::*;
use crate::run::exit;

fn opened(run_dir: &Path, seed: u64) -> Opened {
    model::open(&checkpoint(run_dir, &config(true), seed)).unwrap()
}

fn sampling(seed: u64) -> Sampling {
    Sampling { temperature: 1.0, top_p: 0.95, seed }
}

fn text(session: &mut Session<'_>, prompt: &str, max_tokens: usize) -> String {
    let mut text = String::new();
    session
        .answer(prompt, max_tokens, |piece| {
            text.push_str(piece);
            Ok(())
        })
        .unwrap();
    text
}

/// Every bit of the session's memory.
fn memory(session: &Session<'_>) -> Vec<u32> {
    let tensors = session.state.tensors().values();
    tensors.flat_map(|tensor| atpm_core::read_f32(tensor).unwrap()).map(f32::to_bits).collect()
}

#[test]
fn the_same_seed_gives_the_same_text() {
    let run = tempfile::tempdir().unwrap();
    let opened = opened(run.path(), 1);
    let write = |seed| text(&mut Session::new(&opened, sampling(seed)).unwrap(), "Ada lives in", 60);
    let first = write(4);
    assert_eq!(write(4), first);
    assert_ne!(write(5), first);
}

#[test]
fn a_saved_memory_goes_on_as_one_session() {
    for kind in [ModelKind::Atpm, ModelKind::Transformer, ModelKind::Lstm, ModelKind::Ntm] {
        saved_memory(&ModelConfig { kind, ..config(true) });
    }
}

fn saved_memory(config: &ModelConfig) {
    let run = tempfile::tempdir().unwrap();
    let opened = model::open(&checkpoint(run.path(), config, 1)).unwrap();
    let file = run.path().join("memory");
    // The limit and an ended text leave the session in different places; no tokens at all is a third one.
    for max_tokens in [30, 1, 0] {
        let mut whole = Session::new(&opened, sampling(4)).unwrap();
        text(&mut whole, "Ada lives in", max_tokens);
        let expected = text(&mut whole, " Bob lives in", 40);

        let mut first = Session::new(&opened, sampling(4)).unwrap();
        text(&mut first, "Ada lives in", max_tokens);
        first.save(&file).unwrap();
        let mut second = Session::new(&opened, sampling(4)).unwrap();
        second.load(&file).unwrap();
        assert_eq!(text(&mut second, " Bob lives in", 40), expected);
        assert_eq!(memory(&second), memory(&whole));
        assert_eq!(second.tokens_read(), whole.tokens_read());
    }
}

#[test]
fn a_memory_alone_goes_on_where_it_stopped() {
    let run = tempfile::tempdir().unwrap();
    let opened = opened(run.path(), 1);
    let greedy = Sampling { temperature: 0.0, top_p: 1.0, seed: 0 };
    let mut whole = Session::new(&opened, greedy).unwrap();
    let expected = text(&mut whole, "Ada", 12);
    let mut parts = Session::new(&opened, greedy).unwrap();
    let first = text(&mut parts, "Ada", 5);
    assert_eq!(first + &text(&mut parts, "", 7), expected);
}

#[test]
fn memories_of_other_models_and_other_files_are_refused() {
    let run = tempfile::tempdir().unwrap();
    let (one, other) = (opened(&run.path().join("1"), 1), opened(&run.path().join("2"), 2));
    let file = run.path().join("memory");
    let mut session = Session::new(&one, sampling(0)).unwrap();
    text(&mut session, "Ada", 3);
    session.save(&file).unwrap();
    let mut foreign = Session::new(&other, sampling(0)).unwrap();
    let checkpoint = one.path.join("model.safetensors");
    fs::write(run.path().join("cut"), &fs::read(&file).unwrap()[..40]).unwrap();
    for (path, expected) in [
        (file, "memory of another model"),
        (checkpoint, "it is no saved memory"),
        (run.path().join("cut"), "cannot be right"),
        (run.path().join("nowhere"), "cannot read"),
    ] {
        let error = foreign.load(&path).unwrap_err();
        assert_eq!(exit::code(&error), 2, "{error:#}");
        assert!(format!("{error:#}").contains(expected), "{error:#}");
    }
    let error = session.save(&run.path().join("no/folder/memory")).unwrap_err();
    assert!(error.to_string().contains("no/folder"), "{error}");
}

// Prompts of any length go through in chunks of one size; what is remembered does not grow.
#[test]
fn long_prompts_leave_the_memory_of_single_steps() {
    let run = tempfile::tempdir().unwrap();
    let opened = opened(run.path(), 1);
    for length in [1, CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK + 7] {
        let prompt: Vec<u32> = (0..length as u32).map(|at| 97 + at * 7 % 26).collect();
        let mut chunks = Session::new(&opened, sampling(0)).unwrap();
        let bytes = chunks.state_bytes();
        let logits = chunks.read(&prompt).unwrap();
        assert_eq!(chunks.state_bytes(), bytes);
        assert_eq!(chunks.tokens_read(), length as u64);

        let mut steps = Session::new(&opened, sampling(0)).unwrap();
        let mut expected = Vec::new();
        for id in prompt {
            expected = steps.read(&[id]).unwrap();
        }
        for (found, expected) in logits.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-4, "{length} tokens: {found} for {expected}");
        }
    }
}

// D23: ids that only pad the vocabulary never come, however flat the distribution is.
#[test]
fn padded_ids_never_come() {
    let run = tempfile::tempdir().unwrap();
    let opened = opened(run.path(), 1);
    let flat = Sampling { temperature: 1e6, top_p: 1.0, seed: 1 };
    let mut session = Session::new(&opened, flat).unwrap();
    let logits = session.read(&[97]).unwrap();
    assert_eq!(logits.len(), 320);
    for _ in 0..5000 {
        assert!(session.sampler.pick(&logits).unwrap() <= 256);
    }
}

#[test]
fn an_ended_text_says_so_and_keeps_no_end() {
    let run = tempfile::tempdir().unwrap();
    let opened = opened(run.path(), 1);
    // A flat distribution over 257 ids comes to end-of-text soon.
    let flat = Sampling { temperature: 1e6, top_p: 1.0, seed: 1 };
    let mut session = Session::new(&opened, flat).unwrap();
    let answer = session.answer("Ada", 5000, |_| Ok(())).unwrap();
    assert_eq!(answer.ending, Ending::EndOfText);
    assert!(answer.tokens < 5000);
    assert_eq!(session.tokens_read(), 3 + answer.tokens as u64);
    assert_eq!(session.pending, None);
}

#[test]
fn nothing_to_continue_is_the_users_mistake() {
    let run = tempfile::tempdir().unwrap();
    let opened = opened(run.path(), 1);
    let error = Session::new(&opened, sampling(0)).unwrap().answer("", 5, |_| Ok(())).unwrap_err();
    assert_eq!(exit::code(&error), 2);
}

#[test]
fn text_comes_in_whole_characters() {
    let run = tempfile::tempdir().unwrap();
    let opened = opened(run.path(), 1);
    let flat = Sampling { temperature: 1e6, top_p: 1.0, seed: 2 };
    let mut session = Session::new(&opened, flat).unwrap();
    let mut pieces = Vec::new();
    session
        .answer("é", 200, |piece| {
            pieces.push(piece.to_string());
            Ok(())
        })
        .unwrap();
    assert!(pieces.len() > 1, "the text streams");
    assert!(pieces.iter().any(String::is_empty), "bytes inside a character wait for the rest");
}
