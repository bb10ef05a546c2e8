//! Hugging Face's `tokenizer.json`: reads those of plain byte-level form into fast tables, and writes them.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

use super::bpe::Bpe;

/// The end-of-text token of the tokenizers that are made here.
pub(super) const END_OF_TEXT: &str = "<|endoftext|>";

/// The character that stands for `byte` in a vocabulary: itself if it is printable, else one from U+0100 on.
pub(super) fn char_of(byte: u8) -> char {
    if printable(byte) {
        return char::from(byte);
    }
    let hidden = (0..byte).filter(|&before| !printable(before)).count() as u32;
    char::from_u32(256 + hidden).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The bytes that the characters of a vocabulary entry stand for, or `None` if one stands for none.
pub(super) struct ByteChars(HashMap<char, u8>);

impl ByteChars {
    pub(super) fn new() -> Self {
        Self((0..=u8::MAX).map(|byte| (char_of(byte), byte)).collect())
    }

    pub(super) fn bytes(&self, entry: &str) -> Option<Box<[u8]>> {
        entry.chars().map(|character| self.0.get(&character).copied()).collect()
    }
}

/// The tables of a tokenizer that is byte-level BPE and nothing else, or `None` for any other. Its dropout is off.
pub(super) fn plain_bpe(root: &Value) -> Option<Bpe> {
    let model = &root["model"];
    let off =
        |value: &Value| matches!(value, Value::Null | Value::Bool(false)) || value == "" || value == 0.0;
    let split = &root["pre_tokenizer"];
    let plain = model["type"] == "BPE"
        && ["continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges"]
            .iter()
            .all(|&key| off(&model[key]))
        && root["normalizer"].is_null()
        && split["type"] == "ByteLevel"
        && split["add_prefix_space"] == false
        && split["use_regex"] != false
        && root["decoder"]["type"] == "ByteLevel"
        && added(root).all(|token| token["special"] == true);
    if !plain {
        return None;
    }
    let vocab = model["vocab"].as_object()?;
    let specials: Vec<&str> = added(root).filter_map(|token| token["content"].as_str()).collect();
    let mut pieces: Vec<Box<[u8]>> = vec![Box::default(); max_id(root)? as usize + 1];
    let chars = ByteChars::new();
    for (entry, id) in vocab {
        if !specials.contains(&entry.as_str()) {
            pieces[usize::try_from(id.as_u64()?).ok()?] = chars.bytes(entry)?;
        }
    }
    let id = |entry: &str| vocab.get(entry)?.as_u64().and_then(|id| u32::try_from(id).ok());
    let pair = |merge: &Value| match merge {
        Value::String(pair) => pair.split_once(' ').and_then(|(left, right)| id(left).zip(id(right))),
        Value::Array(pair) => id(pair.first()?.as_str()?).zip(id(pair.get(1)?.as_str()?)),
        _ => None,
    };
    let pairs = model["merges"].as_array()?.iter().map(pair).collect::<Option<Vec<_>>>()?;
    Bpe::new(pieces, &pairs).ok()
}

/// The largest id of vocabulary and added tokens.
pub(super) fn max_id(root: &Value) -> Option<u32> {
    let vocab = root["model"]["vocab"].as_object().into_iter().flat_map(Map::values);
    let ids = vocab.chain(added(root).map(|token| &token["id"]));
    ids.filter_map(Value::as_u64).max().and_then(|id| u32::try_from(id).ok())
}

fn added(root: &Value) -> impl Iterator<Item = &Value> {
    root["added_tokens"].as_array().into_iter().flatten()
}

/// A `tokenizer.json` that gives the same ids as `bpe`, with end-of-text as `eos_id`.
pub(super) fn write(bpe: &Bpe, eos_id: u32) -> String {
    let entry = |id: u32| bpe.piece(id).iter().map(|&byte| char_of(byte)).collect::<String>();
    let ids = bpe.pieces().iter().zip(0u32..).filter(|(piece, _)| !piece.is_empty());
    let mut vocab: Map<String, Value> = ids.map(|(_, id)| (entry(id), json!(id))).collect();
    vocab.insert(END_OF_TEXT.into(), json!(eos_id));
    let merges: Vec<Value> =
        bpe.pairs().into_iter().map(|(left, right)| json!([entry(left), entry(right)])).collect();
    let byte_level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true
    });
    let root = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [{
            "id": eos_id, "content": END_OF_TEXT, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true
        }],
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": null,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
            "vocab": vocab, "merges": merges
        }
    });
    format!("{root:#}\n")
}

/// A `tokenizer.json` of whole words between blanks, their places as ids.
pub(super) fn write_words(words: &[String]) -> String {
    let vocab: Map<String, Value> =
        words.iter().zip(0u32..).map(|(word, id)| (word.clone(), json!(id))).collect();
    let root = json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": null,
        "decoder": null,
        // No word is called that, so that a word that is not in the vocabulary is an error.
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": ""}
    });
    format!("{root:#}\n")
}
