//! Decoding one token at a time, for generation.

use super::Tokenizer;
use crate::Result;

/// Ids that may wait for the end of a character: one takes four bytes at most, and a byte one id.
const LONGEST: usize = 4;

/// Turns ids into text as they come; a character is given when its last byte is there.
#[derive(Debug)]
pub struct StreamDecoder<'a> {
    tokenizer: &'a Tokenizer,
    /// Ids whose text was given, kept because the text of an id can depend on what stands before it; then ids that wait.
    ids: Vec<u32>,
    /// How many of them were given.
    given: usize,
}

impl<'a> StreamDecoder<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer) -> Self {
        Self { tokenizer, ids: Vec::new(), given: 0 }
    }

    /// The text that `id` completes; often one word, empty inside a character.
    ///
    /// # Errors
    /// When the id is unknown.
    pub fn push(&mut self, id: u32) -> Result<String> {
        self.ids.push(id);
        let text = self.waiting();
        match text {
            Ok(text) if text.ends_with(char::REPLACEMENT_CHARACTER) && self.ids.len() - self.given < LONGEST => {
                Ok(String::new())
            }
            Ok(text) => {
                self.ids.drain(..self.given);
                self.given = self.ids.len();
                Ok(text)
            }
            Err(error) => {
                self.ids.pop();
                Err(error)
            }
        }
    }

    /// What is left at the end, an unfinished character as U+FFFD.
    ///
    /// # Errors
    /// When a pending id is unknown.
    pub fn finish(self) -> Result<String> {
        if self.given == self.ids.len() { Ok(String::new()) } else { self.waiting() }
    }

    /// The text of the ids that wait, as it stands after those that were given.
    fn waiting(&self) -> Result<String> {
        let before = self.tokenizer.decode(&self.ids[..self.given])?;
        let mut all = self.tokenizer.decode(&self.ids)?;
        Ok(all.split_off(all.floor_char_boundary(before.len())))
    }
}
