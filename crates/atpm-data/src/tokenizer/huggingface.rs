//! Tokenizers that only Hugging Face's library can run.

use std::path::Path;

use serde_json::Value;
use tokenizers::models::wordlevel::Error as WordLevelError;
use tokenizers::{DecoderWrapper, Tokenizer as Library};

use super::Special;
use super::json::ByteChars;

/// Names of end-of-text tokens in use, the most telling first.
const END_NAMES: [&str; 7] =
    ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]", "<|end▁of▁sentence|>"];

/// Names of beginning-of-text tokens in use.
const BEGIN_NAMES: [&str; 7] =
    ["<|begin_of_text|>", "<|startoftext|>", "<s>", "<bos>", "<|bos|>", "[BOS]", "<|begin▁of▁sentence|>"];

/// A tokenizer of any form.
#[derive(Debug)]
pub(super) struct HuggingFace {
    library: Library,
}

impl HuggingFace {
    /// Reads a `tokenizer.json`; its truncation, padding and special tokens are turned off.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let mut library =
            Library::from_bytes(text).map_err(|error| format!("is not a tokenizer.json: {error}"))?;
        library.with_truncation(None).map_err(|error| error.to_string())?;
        library.with_padding(None);
        library.set_encode_special_tokens(true);
        Ok(Self { library })
    }

    /// The end-of-text token and, if there is one, the beginning-of-text token: those that the `tokenizer_config.json`
    /// at `config` names, or else those with a name in use.
    pub(super) fn specials(&self, config: &Path) -> Result<(Special, Option<Special>), String> {
        let named: Value = match std::fs::read_to_string(config) {
            Ok(text) => {
                serde_json::from_str(&text).map_err(|error| format!("{}: {error}", config.display()))?
            }
            Err(_) => Value::Null,
        };
        let eos = match token_name(&named["eos_token"]) {
            Some(name) => self.special(name),
            None => END_NAMES.iter().find_map(|name| self.special(name)),
        };
        let eos = eos.ok_or_else(|| match token_name(&named["eos_token"]) {
            Some(name) => format!("has no token {name:?}, which {} calls eos_token", config.display()),
            None => format!(
                "has no end-of-text token (looked for {}); name it as `eos_token` in a tokenizer_config.json beside it",
                END_NAMES.join(", ")
            ),
        })?;
        // A name in use counts only where it is a special token: `<s>` may be a piece of ordinary text.
        let added = self.library.get_added_tokens_decoder();
        let is_special = |token: &Special| added.get(&token.id).is_some_and(|token| token.special);
        let bos = match token_name(&named["bos_token"]) {
            Some(name) => self.special(name),
            None => BEGIN_NAMES.iter().filter_map(|name| self.special(name)).find(is_special),
        };
        Ok((eos, bos))
    }

    fn special(&self, name: &str) -> Option<Special> {
        Some(Special { id: self.library.token_to_id(name)?, name: name.into() })
    }

    /// The largest id, added tokens included.
    pub(super) fn max_id(&self) -> u32 {
        self.library.get_vocab(true).into_values().max().unwrap_or(0)
    }

    /// Ids of `text`, nothing added.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let encoding = self.library.encode_fast(text, false).map_err(|error| match error.downcast_ref() {
            Some(WordLevelError::MissingUnkToken) => "the text has a word that is none of its own".into(),
            _ => error.to_string(),
        })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The text of `ids`.
    pub(super) fn decode(&self, ids: &[u32]) -> Result<String, String> {
        self.library.decode(ids, true).map_err(|error| error.to_string())
    }

    /// Bytes of text of each id up to `max_id`.
    pub(super) fn token_bytes(&self, max_id: u32) -> Vec<u32> {
        let added = self.library.get_added_tokens_decoder();
        let chars =
            matches!(self.library.get_decoder(), Some(DecoderWrapper::ByteLevel(_))).then(ByteChars::new);
        let bytes = |id: u32| match (added.get(&id), self.library.id_to_token(id)) {
            (Some(token), _) if token.special => 0,
            (Some(token), _) => token.content.len(),
            (None, None) => 0,
            (None, Some(entry)) => chars
                .as_ref()
                .and_then(|chars| chars.bytes(&entry))
                .map_or_else(|| plain_length(&entry), |bytes| bytes.len()),
        };
        (0..=max_id).map(|id| bytes(id) as u32).collect()
    }
}

/// Bytes of an entry of a vocabulary that is not byte-level: `▁` is a blank, `##` goes on with a word, `<0x0A>` is a byte.
fn plain_length(entry: &str) -> usize {
    if entry.len() == 6 && entry.starts_with("<0x") && entry.ends_with('>') {
        return 1;
    }
    entry.strip_prefix("##").unwrap_or(entry).replace('▁', " ").len()
}

/// A token of a `tokenizer_config.json`: a string, or an object with a `content`.
fn token_name(token: &Value) -> Option<&str> {
    token.as_str().or_else(|| token["content"].as_str())
}
