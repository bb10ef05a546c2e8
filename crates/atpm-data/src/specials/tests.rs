//! Special tokens per document, whatever tokenizer and settings say.

use std::sync::Arc;

use super::*;
use crate::testing::{Template, bytes, config, folder, shard, templated};
use crate::{Batch, BatchSource, EvalSource, IGNORE, TextConfig, TextPosition, TextSource, inspect};

const BOS: u32 = 257;
const EOS: u32 = 256;
/// Text that spells special tokens is text, and empty rows get none.
const TEXTS: [Option<&str>; 7] =
    [Some("ab"), None, Some("c <s> <|endoftext|>"), Some(""), Some("d"), Some("e f g h i j k"), Some("l")];

/// Ids of every document of some rows of a lane, by the rows' own document starts.
fn documents(batches: &[Batch]) -> Vec<Vec<u32>> {
    let mut documents: Vec<Vec<u32>> = Vec::new();
    for batch in batches {
        for at in 0..batch.ids.len() {
            let (row, place) = (at / batch.tokens, at % batch.tokens);
            if batch.starts[row].contains(&place) {
                documents.push(Vec::new());
            }
            documents.last_mut().unwrap().push(batch.ids[at]);
        }
    }
    documents
}

/// What a document is packed as.
fn framed(text: &str, bos: bool, eos: bool) -> Vec<u32> {
    let ids = text.bytes().map(u32::from);
    bos.then_some(BOS).into_iter().chain(ids).chain(eos.then_some(EOS)).collect()
}

/// D13: in all 12 combinations (and both ways to run a tokenizer) each document has exactly the special tokens that the
/// settings say; a document's last token predicts nothing, and nothing predicts its first.
#[test]
fn documents_have_the_special_tokens_that_the_settings_say() {
    let shards = folder();
    shard(shards.path(), "a.parquet", &TEXTS, 10);
    let tokenizers = folder();
    for template in [Template::Nothing, Template::Bos, Template::BosAndEos] {
        for lower in [false, true] {
            let path = templated(tokenizers.path(), template, lower);
            let tokenizer = Arc::new(Tokenizer::open(&path.display().to_string()).unwrap());
            for (bos, eos) in [(false, false), (false, true), (true, false), (true, true)] {
                check(shards.path(), &tokenizer, bos, eos);
            }
        }
    }
}

fn check(shards: &std::path::Path, tokenizer: &Arc<Tokenizer>, bos: bool, eos: bool) {
    let mut config = config(shards, 1, 1, 5);
    (config.data.bos, config.data.eos) = (bos, eos);
    let expected: Vec<_> =
        TEXTS.iter().flatten().filter(|text| !text.is_empty()).map(|text| framed(text, bos, eos)).collect();
    let tokens: usize = expected.iter().map(Vec::len).sum();

    let mut source = EvalSource::open(&config, Arc::clone(tokenizer)).unwrap();
    let batches: Vec<_> = std::iter::from_fn(|| source.next_batch().unwrap()).collect();
    assert_eq!(source.counters().tokens, tokens as u64);
    let mut packed = documents(&batches);
    // What fills up the last row is a document of its own.
    packed.truncate(expected.len());
    assert_eq!(packed, expected, "bos {bos}, eos {eos}");
    let targets: Vec<u32> = batches.iter().flat_map(|batch| batch.targets.clone()).collect();
    let wanted: Vec<u32> = expected
        .iter()
        .flat_map(|document| document[1..].iter().copied().chain(std::iter::once(IGNORE)))
        .collect();
    assert_eq!(targets[..tokens], wanted, "bos {bos}, eos {eos}");
    let bytes: u64 = batches.iter().map(|batch| batch.target_bytes).sum();
    let text: usize = TEXTS.iter().flatten().map(|text| text.len()).sum();
    let unpredicted = if bos { 0 } else { expected.len() };
    assert_eq!(
        bytes as usize,
        text - unpredicted,
        "the first byte of a document has no prediction without BOS"
    );

    let mut source = TextSource::open(&config, Arc::clone(tokenizer), None).unwrap();
    let batches: Vec<_> = (0..tokens.div_ceil(5)).map(|_| source.next_batch().unwrap()).collect();
    let mut packed = documents(&batches);
    packed.truncate(expected.len());
    packed.sort();
    let mut expected = expected;
    expected.sort();
    assert_eq!(packed, expected, "training, bos {bos}, eos {eos}");
}

/// D13, D25: the switches are part of a position; a change is refused by name. A position from before they existed is
/// one of their defaults.
#[test]
fn a_resume_with_other_switches_is_refused() {
    let dir = folder();
    shard(dir.path(), "a.parquet", &TEXTS, 10);
    let path = templated(dir.path(), Template::Nothing, false);
    let tokenizer = Arc::new(Tokenizer::open(&path.display().to_string()).unwrap());
    let config = config(dir.path(), 1, 1, 5);
    let mut source = TextSource::open(&config, Arc::clone(&tokenizer), None).unwrap();
    source.next_batch().unwrap();
    let position = source.position();
    let resume = |config: &TextConfig, position: &TextPosition| {
        TextSource::open(config, Arc::clone(&tokenizer), Some(position)).map(drop)
    };
    resume(&config, &position).unwrap();
    let mut with_bos = config.clone();
    with_bos.data.bos = true;
    let error = resume(&with_bos, &position).unwrap_err().to_string();
    assert!(error.contains("data.bos was false and is true (id 257)"), "{error}");
    let mut without_eos = config.clone();
    without_eos.data.eos = false;
    let error = resume(&without_eos, &position).unwrap_err().to_string();
    assert!(error.contains("data.eos was true and is false"), "{error}");

    let mut stored = serde_json::to_value(&position).unwrap();
    let dataset = stored["dataset"].as_object_mut().unwrap();
    assert!(dataset.remove("bos_id").is_some() && dataset.remove("ends_with_eos").is_some());
    let old: TextPosition = serde_json::from_value(stored).unwrap();
    assert_eq!(old, position);
}

/// D13: a switch that asks for a token which the tokenizer lacks is one clear error, before any shard is read.
#[test]
fn a_token_that_the_tokenizer_lacks_is_named() {
    let dir = folder();
    let mut config = config(dir.path(), 1, 1, 5);
    config.data.bos = true;
    for error in [
        TextSource::open(&config, bytes(), None).map(drop).unwrap_err(),
        EvalSource::open(&config, bytes()).map(drop).unwrap_err(),
    ] {
        let message = error.to_string();
        for part in ["tokenizer bytes", "no beginning-of-text token", "data.bos", "bos_token"] {
            assert!(message.contains(part), "{part} is not in: {message}");
        }
    }
}

/// A document that the tokenizer cannot encode is named by its place.
#[test]
fn a_document_that_the_tokenizer_refuses_is_named() {
    let dir = folder();
    shard(dir.path(), "a.parquet", &[Some("one"), Some("one"), Some("one two")], 2);
    let words = ["end", "one"].map(String::from);
    let tokenizer = Arc::new(Tokenizer::of_words("words", &words, 0).unwrap());
    let mut source = EvalSource::open(&config(dir.path(), 1, 4, 2), Arc::clone(&tokenizer)).unwrap();
    let error = source.next_batch().unwrap_err().to_string();
    assert!(error.contains("a.parquet: row 0 of row group 1: tokenizer words: "), "{error}");
    let report = inspect(&[dir.path().display().to_string()], "text", &tokenizer).unwrap();
    assert!(report.problems[0].contains("a.parquet: row 0 of row group 1: tokenizer words"), "{report:?}");
}
