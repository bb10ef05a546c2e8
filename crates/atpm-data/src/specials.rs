//! The special tokens around each document. Packing asks here, and adds them in one place; a tokenizer's own
//! template adds none.

#[cfg(test)]
mod tests;

use crate::{DataConfig, Error, Result, Tokenizer};

/// The ids that stand before and after each document with at least one token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Specials {
    /// The beginning-of-text id, with `data.bos`.
    pub bos: Option<u32>,
    /// The end-of-text id, with `data.eos`.
    pub eos: Option<u32>,
}

impl Specials {
    /// What `data.bos` and `data.eos` ask for, in ids of `tokenizer`.
    ///
    /// # Errors
    /// `data.bos` with a tokenizer that has no beginning-of-text token. (One without an end-of-text token is
    /// refused when it is opened.)
    pub fn of(data: &DataConfig, tokenizer: &Tokenizer) -> Result<Self> {
        if data.bos && tokenizer.bos_id().is_none() {
            return Err(Error::Tokenizer {
                name: tokenizer.name().into(),
                reason: "has no beginning-of-text token, which data.bos = true asks for; name it as `bos_token` in a \
                         tokenizer_config.json beside the tokenizer.json, or set data.bos = false"
                    .into(),
            });
        }
        Ok(Self {
            bos: tokenizer.bos_id().filter(|_| data.bos),
            eos: Some(tokenizer.eos_id()).filter(|_| data.eos),
        })
    }
}
