//! What `data.tokenizer` names.

use std::path::Path;

use super::Run;
use crate::run::exit::user;

/// Ids that a byte-level BPE has at least: the bytes and end-of-text.
const LEAST_BPE: usize = 257;

/// What `data.tokenizer` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenizerSpec<'a> {
    /// `gpt2` or `bytes`.
    BuiltIn(&'a str),
    /// `bpe:N`: a BPE of at most N ids, trained on the training shards when the run begins.
    Bpe(usize),
    /// A tokenizer.json, or a folder that holds one.
    File(&'a Path),
}

impl Run {
    /// What `data.tokenizer` names.
    ///
    /// # Errors
    /// None in a validated run.
    pub fn tokenizer(&self) -> anyhow::Result<TokenizerSpec<'_>> {
        parse(&self.data().tokenizer).map_err(user)
    }
}

/// Reads the key's value; the error is what is wrong with it.
pub(super) fn parse(text: &str) -> Result<TokenizerSpec<'_>, String> {
    if let "gpt2" | "bytes" = text {
        return Ok(TokenizerSpec::BuiltIn(text));
    }
    let Some(size) = text.strip_prefix("bpe:") else { return Ok(TokenizerSpec::File(Path::new(text))) };
    match size.parse() {
        Ok(size) if size >= LEAST_BPE => Ok(TokenizerSpec::Bpe(size)),
        _ => Err(format!(
            "data.tokenizer = \"{text}\": after `bpe:` stands the number of ids, at least {LEAST_BPE} (the bytes \
             and end-of-text)"
        )),
    }
}
