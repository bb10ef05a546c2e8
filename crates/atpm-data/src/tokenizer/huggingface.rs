//! Tokenizers that only Hugging Face's library can run.

use std::io::ErrorKind;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use tokenizers::models::wordlevel::Error as WordLevelError;
use tokenizers::normalizer::Range;
use tokenizers::{
    AddedToken, DecoderWrapper, Model, ModelWrapper, NormalizedString, OffsetType, PreTokenizer,
    Tokenizer as Library,
};

use super::Special;
use super::json::ByteChars;

/// Names of end-of-text tokens in use, the most telling first. The last is DeepSeek's, with a full-width bar.
const END_NAMES: [&str; 7] =
    ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]", "<｜end▁of▁sentence｜>"];

/// Names of beginning-of-text tokens in use.
const BEGIN_NAMES: [&str; 7] =
    ["<|begin_of_text|>", "<|startoftext|>", "<s>", "<bos>", "<|bos|>", "[BOS]", "<｜begin▁of▁sentence｜>"];

/// A tokenizer of any form.
#[derive(Debug)]
pub(super) struct HuggingFace {
    library: Library,
    /// For each id, whether text may not give it: special tokens, but for the one that stands for unknown text.
    forbidden: Vec<bool>,
    /// How the model's vocabulary spells those of them that it has; a text that holds one needs care.
    spellings: Vec<String>,
}

impl HuggingFace {
    /// Reads a `tokenizer.json`; its dropout, truncation, padding and special tokens are turned off.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let mut library =
            Library::from_bytes(text).map_err(|error| format!("is not a tokenizer.json: {error}"))?;
        library.with_truncation(None).map_err(|error| error.to_string())?;
        library.with_padding(None);
        library.set_encode_special_tokens(true);
        // Dropout draws other ids at every call, so that no run could be resumed exactly.
        if let ModelWrapper::BPE(model) = library.get_model()
            && model.dropout.is_some()
        {
            let mut model = model.clone();
            model.dropout = None;
            library.with_model(model);
        }
        let unknown = unknown_id(&library, text);
        let mut forbidden = vec![false; max_id(&library) as usize + 1];
        for (id, token) in library.get_added_tokens_decoder() {
            forbidden[id as usize] = token.special && Some(id) != unknown;
        }
        let mut tokenizer = Self { library, forbidden, spellings: Vec::new() };
        tokenizer.spellings = tokenizer.spelled();
        Ok(tokenizer)
    }

    /// Makes `token` a special one, whatever the file calls it: text does not give it and it gives no text.
    pub(super) fn set_special(&mut self, token: &Special) -> Result<(), String> {
        let known = self.library.get_added_tokens_decoder().get(&token.id).cloned();
        let added = known.unwrap_or_else(|| AddedToken::from(token.name.as_str(), true)).special(true);
        self.library.add_special_tokens([added]).map_err(|error| error.to_string())?;
        self.forbidden[token.id as usize] = true;
        self.spellings = self.spelled();
        Ok(())
    }

    fn spelled(&self) -> Vec<String> {
        let ids = (0..).zip(&self.forbidden).filter(|&(_, &forbidden)| forbidden);
        let spelling = |(id, _)| self.library.get_model().id_to_token(id);
        ids.filter_map(spelling).filter(|spelling| !spelling.is_empty()).collect()
    }

    /// The end-of-text token and, if there is one, the beginning-of-text token: those that the `tokenizer_config.json`
    /// at `config` names, or else those with a name in use.
    pub(super) fn specials(&self, config: &Path) -> Result<(Special, Option<Special>), String> {
        let named = read_names(config)?;
        let eos = self.named(&named, "eos_token", config)?.or_else(|| self.in_use(&END_NAMES));
        let eos = eos.ok_or_else(|| {
            format!(
                "has no end-of-text token (looked for {} among its special tokens); name it as `eos_token` in a \
                 tokenizer_config.json beside it",
                END_NAMES.join(", ")
            )
        })?;
        let bos = self.named(&named, "bos_token", config)?.or_else(|| self.in_use(&BEGIN_NAMES));
        Ok((eos, bos))
    }

    /// The token that the names of `config` give for `key`, if they give one.
    fn named(&self, names: &Value, key: &str, config: &Path) -> Result<Option<Special>, String> {
        // A token is a string, or an object with a `content`.
        let token = match &names[key] {
            Value::Null => return Ok(None),
            Value::Object(fields) => fields.get("content").and_then(Value::as_str),
            token => token.as_str(),
        };
        let config = config.display();
        let name = token
            .ok_or_else(|| format!("{config}: {key} is no token; give its name as a string, or remove it"))?;
        let special = self.special(name).ok_or_else(|| {
            format!("has no token {name:?}, which {config} calls {key}; correct the name, or remove it")
        })?;
        Ok(Some(special))
    }

    /// The first of `names` that is a special token: `<s>` may also be a piece of ordinary text.
    fn in_use(&self, names: &[&str]) -> Option<Special> {
        let added = self.library.get_added_tokens_decoder();
        let is_special = |token: &Special| added.get(&token.id).is_some_and(|token| token.special);
        names.iter().filter_map(|name| self.special(name)).find(is_special)
    }

    fn special(&self, name: &str) -> Option<Special> {
        Some(Special { id: self.library.token_to_id(name)?, name: name.into() })
    }

    /// The largest id, added tokens included.
    pub(super) fn max_id(&self) -> u32 {
        self.forbidden.len() as u32 - 1
    }

    /// Ids of `text`, nothing added and none of a special token.
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let encoding = self.library.encode_fast(text, false).map_err(|error| reason(&*error))?;
        let ids = encoding.get_ids().to_vec();
        if self.first_forbidden(&ids).is_none() {
            return Ok(ids);
        }
        let ids = self.encode_apart(text).map_err(|error| reason(&*error))?;
        match self.first_forbidden(&ids) {
            None => Ok(ids),
            Some(id) => Err(format!(
                "it has only the special token {:?} (id {id}) for a part of the text; take that out, or use another \
                 tokenizer",
                self.library.id_to_token(id).unwrap_or_default()
            )),
        }
    }

    fn first_forbidden(&self, ids: &[u32]) -> Option<u32> {
        ids.iter().copied().find(|&id| self.forbidden.get(id as usize).is_some_and(|&forbidden| forbidden))
    }

    /// Ids of `text`, encoded as the library does but cut inside of every spelling of a special token, which the model
    /// itself (Unigram, WordLevel) would find in its vocabulary.
    fn encode_apart(&self, text: &str) -> tokenizers::Result<Vec<u32>> {
        let (library, model) = (&self.library, self.library.get_model());
        let added = library.get_added_vocabulary();
        let mut pieces = added.extract_and_normalize(library.get_normalizer(), text);
        if let Some(split) = library.get_pre_tokenizer() {
            split.pre_tokenize(&mut pieces)?;
        }
        pieces.split(|_, piece| Ok(self.cut(&piece)))?;
        pieces.tokenize(|piece| model.tokenize(piece.get()))?;
        Ok(pieces.into_encoding(None, 0, OffsetType::None)?.get_ids().to_vec())
    }

    /// The parts of `piece`, none of which holds a whole spelling of more than one character.
    fn cut(&self, piece: &NormalizedString) -> Vec<NormalizedString> {
        let text = piece.get();
        let mut cuts = vec![0, text.len()];
        for spelling in &self.spellings {
            let first = spelling.chars().next().map_or(1, char::len_utf8);
            let mut from = 0;
            while let Some(at) = text[from..].find(spelling.as_str()) {
                from += at + first;
                cuts.push(from);
            }
        }
        cuts.sort_unstable();
        cuts.dedup();
        cuts.windows(2).filter_map(|part| piece.slice(Range::Normalized(part[0]..part[1]))).collect()
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
        let continuation = self.continuation();
        let bytes = |id: u32| match (added.get(&id), self.library.id_to_token(id)) {
            (Some(token), _) if token.special => 0,
            (Some(token), _) => token.content.len(),
            (None, None) => 0,
            (None, Some(entry)) => chars
                .as_ref()
                .and_then(|chars| chars.bytes(&entry))
                .map_or_else(|| plain_length(&entry, continuation), |bytes| bytes.len()),
        };
        (0..=max_id).map(|id| bytes(id) as u32).collect()
    }

    /// What an entry begins with that goes on with a word, where the tokenizer has such a mark (`##` of BERT): elsewhere
    /// the same characters are text.
    fn continuation(&self) -> &str {
        match (self.library.get_model(), self.library.get_decoder()) {
            (ModelWrapper::WordPiece(model), _) => &model.continuing_subword_prefix,
            (_, Some(DecoderWrapper::WordPiece(decoder))) => &decoder.prefix,
            _ => "",
        }
    }
}

/// The names in the `tokenizer_config.json` at `config`; none where there is no such file.
fn read_names(config: &Path) -> Result<Value, String> {
    match std::fs::read_to_string(config) {
        Ok(text) => serde_json::from_str(&text)
            .map_err(|error| format!("{}: it is not valid JSON: {error}", config.display())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Value::Null),
        Err(error) => Err(format!(
            "{}, which names its special tokens, cannot be read ({error}); make it readable, or remove it",
            config.display()
        )),
    }
}

/// The id that a model gives to text which it does not know.
fn unknown_id(library: &Library, text: &str) -> Option<u32> {
    #[derive(Deserialize)]
    struct File {
        model: Unigram,
    }
    #[derive(Deserialize)]
    struct Unigram {
        unk_id: Option<u32>,
    }
    let name = match library.get_model() {
        ModelWrapper::BPE(model) => model.unk_token.as_deref()?,
        ModelWrapper::WordPiece(model) => &model.unk_token,
        ModelWrapper::WordLevel(model) => &model.unk_token,
        // The library keeps this one to itself.
        ModelWrapper::Unigram(_) => return serde_json::from_str::<File>(text).ok()?.model.unk_id,
    };
    library.get_model().token_to_id(name)
}

fn max_id(library: &Library) -> u32 {
    library.get_vocab(true).into_values().max().unwrap_or(0)
}

fn reason(error: &(dyn std::error::Error + Send + Sync + 'static)) -> String {
    match error.downcast_ref() {
        Some(WordLevelError::MissingUnkToken) => "the text has a word that is none of its own".into(),
        _ => error.to_string(),
    }
}

/// Bytes of an entry of a vocabulary that is not byte-level: `▁` is a blank, `continuation` goes on with a word, `<0x0A>`
/// is a byte.
fn plain_length(entry: &str, continuation: &str) -> usize {
    if entry.len() == 6 && entry.starts_with("<0x") && entry.ends_with('>') {
        return 1;
    }
    entry.strip_prefix(continuation).unwrap_or(entry).replace('▁', " ").len()
}
