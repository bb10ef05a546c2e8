//! Decoding one token at a time, for generation.

use super::{Engine, Tokenizer};
use crate::Result;

/// Ids that may wait for the end of a character where the bytes of an id are not known: a character takes four bytes at most.
const LONGEST: usize = 4;

/// Turns ids into text as they come; a character is given when its last byte is there.
#[derive(Debug)]
pub struct StreamDecoder<'a> {
    tokenizer: &'a Tokenizer,
    /// Bytes of an unfinished character, where the bytes of an id are known.
    bytes: Vec<u8>,
    /// Where they are not: ids whose text was given, because the text of an id can depend on what stands before it; then ids that wait.
    ids: Vec<u32>,
    /// How many of them were given.
    given: usize,
}

impl<'a> StreamDecoder<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, bytes: Vec::new(), ids: Vec::new(), given: 0 }
    }

    /// The text that `id` completes; often one word, empty inside a character.
    ///
    /// # Errors
    /// When the id is unknown.
    pub fn push(&mut self, id: u32) -> Result<String> {
        self.tokenizer.check(id)?;
        if let Engine::Bpe(bpe) = &self.tokenizer.engine {
            self.bytes.extend_from_slice(bpe.piece(id));
            return Ok(take_complete(&mut self.bytes));
        }
        self.ids.push(id);
        let text = self.waiting()?;
        if text.ends_with(char::REPLACEMENT_CHARACTER) && self.ids.len() - self.given < LONGEST {
            return Ok(String::new());
        }
        self.ids.drain(..self.given);
        self.given = self.ids.len();
        Ok(text)
    }

    /// What is left at the end, an unfinished character as U+FFFD.
    ///
    /// # Errors
    /// When the tokenizer cannot decode what is left.
    pub fn finish(self) -> Result<String> {
        if self.given < self.ids.len() {
            self.waiting()
        } else {
            Ok(String::from_utf8_lossy(&self.bytes).into_owned())
        }
    }

    /// The text of the ids that wait, as it stands after those that were given.
    fn waiting(&self) -> Result<String> {
        let before = self.tokenizer.decode(&self.ids[..self.given])?;
        let mut all = self.tokenizer.decode(&self.ids)?;
        Ok(all.split_off(all.floor_char_boundary(before.len())))
    }
}

/// Takes the text off the front of `bytes`, all but a last character that more bytes could complete.
fn take_complete(bytes: &mut Vec<u8>) -> String {
    let last = bytes.utf8_chunks().last();
    let open = last.map_or(&[][..], |chunk| chunk.invalid());
    let unfinished = std::str::from_utf8(open).is_err_and(|error| error.error_len().is_none());
    let rest = bytes.split_off(bytes.len() - if unfinished { open.len() } else { 0 });
    let text = String::from_utf8_lossy(bytes).into_owned();
    *bytes = rest;
    text
}
