//! Reading and writing text with one memory of fixed size: what was read before, prompts and answers alike, is
//! remembered in the model's state and nowhere else.

use std::path::Path;
use std::time::{Duration, Instant};

use atpm_core::Segments;
use atpm_model::DecodeState;
use candle_core::{Device, Tensor};
use serde::Serialize;

use super::model::Opened;
use super::sampler::{Sampler, Sampling};
use super::state_file::{self, Kept};
use crate::run::exit::user;

/// Tokens of a prompt that go through the model at once.
const CHUNK: usize = 256;

/// A model in use.
pub struct Session<'a> {
    opened: &'a Opened,
    state: DecodeState,
    sampler: Sampler,
    /// The last token given: the model has not read it yet.
    pending: Option<u32>,
    read: u64,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The model ended the text.
    EndOfText,
    /// The limit on tokens was reached.
    MaxTokens,
}

/// What an answer took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens given.
    pub tokens: usize,
    /// Why it ended.
    pub ending: Ending,
    /// Time to read the prompt.
    pub prompt_time: Duration,
    /// Single-token steps of the model after that, and their time with the picking of tokens.
    pub steps: usize,
    /// See `steps`.
    pub steps_time: Duration,
}

impl<'a> Session<'a> {
    /// A session that has read nothing yet.
    ///
    /// # Errors
    /// A model without a decode path.
    pub fn new(opened: &'a Opened, sampling: Sampling) -> anyhow::Result<Self> {
        let tokenizer = &opened.tokenizer;
        // A tokenizer may leave gaps between its ids; a gap is not to be picked.
        let allowed = (0..=tokenizer.max_id()).map(|id| tokenizer.decode(&[id]).is_ok()).collect();
        Ok(Self {
            opened,
            state: opened.model.decode_state(1)?,
            sampler: Sampler::new(sampling, allowed),
            pending: None,
            read: 0,
        })
    }

    /// Tokens in memory so far.
    pub fn tokens_read(&self) -> u64 {
        self.read
    }

    /// Bytes of memory; they do not grow.
    pub fn state_bytes(&self) -> usize {
        self.state.bytes()
    }

    /// Reads the prompt and gives at most `max_tokens` tokens, as text in whole characters, to `sink`. With none to give
    /// the prompt's last token stays unread, so that the text can be gone on with from there.
    ///
    /// # Errors
    /// A prompt without tokens when there is nothing to go on from or the text has ended, logits that are not finite, or whatever
    /// `sink` refuses.
    pub fn answer(
        &mut self,
        prompt: &str,
        max_tokens: usize,
        mut sink: impl FnMut(&str) -> anyhow::Result<()>,
    ) -> anyhow::Result<Answer> {
        let opened = self.opened;
        let tokenizer = &opened.tokenizer;
        let prompt = tokenizer.encode(prompt)?;
        // A memory begins as the documents in training did.
        let bos = tokenizer.bos_id().filter(|_| opened.bos && self.read == 0 && self.pending.is_none());
        let mut ids: Vec<u32> =
            bos.into_iter().chain(self.pending.take()).chain(prompt.iter().copied()).collect();
        if ids.is_empty() {
            return Err(user(if self.read == 0 {
                "the prompt is empty, and there is no text to go on from"
            } else {
                "the text that was read has ended: give --prompt TEXT to go on"
            }));
        }
        if max_tokens == 0 {
            self.pending = ids.pop();
        }
        let began = Instant::now();
        let mut logits = self.read(&ids)?;
        let mut answer = Answer {
            prompt_tokens: prompt.len(),
            tokens: 0,
            ending: Ending::MaxTokens,
            prompt_time: began.elapsed(),
            steps: 0,
            steps_time: Duration::ZERO,
        };
        let mut text = tokenizer.stream();
        while answer.tokens < max_tokens {
            let began = Instant::now();
            if let Some(token) = self.pending.take() {
                logits = self.read(&[token])?;
                answer.steps += 1;
            }
            let token = self.sampler.pick(&logits)?;
            answer.steps_time += began.elapsed();
            if token == tokenizer.eos_id() {
                answer.ending = Ending::EndOfText;
                break;
            }
            self.pending = Some(token);
            answer.tokens += 1;
            sink(&text.push(token)?)?;
        }
        sink(&text.finish()?)?;
        Ok(answer)
    }

    /// Moves the memory past `ids`; the logits after the last, none if there is none.
    fn read(&mut self, ids: &[u32]) -> anyhow::Result<Vec<f32>> {
        let model = &self.opened.model;
        let logits = if let [id] = ids {
            Some(model.step(&[*id], &mut self.state)?)
        } else {
            let mut last = None;
            for chunk in ids.chunks(CHUNK) {
                let input = Tensor::from_slice(chunk, (1, chunk.len()), &Device::Cpu)?;
                last = Some(model.prefill(&input, &Segments::continuous(1, chunk.len()), &mut self.state)?);
            }
            last
        };
        self.read += ids.len() as u64;
        logits.map_or(Ok(Vec::new()), |logits| Ok(atpm_core::read_f32(&logits)?))
    }

    /// Writes the memory to a file, whole or not at all.
    ///
    /// # Errors
    /// Whatever the file system refuses.
    pub fn save(&self, path: &Path) -> anyhow::Result<()> {
        let kept = Kept {
            model: self.opened.fingerprint()?,
            pending: self.pending,
            draws: self.sampler.draws(),
            tokens_read: self.read,
        };
        Ok(state_file::write(path, self.state.tensors(), &kept)?)
    }

    /// Replaces the memory by one that [`Self::save`] wrote.
    ///
    /// # Errors
    /// A file that cannot be read, or the memory of another model.
    pub fn load(&mut self, path: &Path) -> anyhow::Result<()> {
        let (tensors, kept) = state_file::read(path)?;
        if kept.model != self.opened.fingerprint()? {
            return Err(user(format!(
                "{} is the memory of another model than {}",
                path.display(),
                self.opened.path.display()
            )));
        }
        self.state = self.opened.model.decode_state_from(1, tensors)?;
        self.pending = kept.pending;
        self.sampler.set_draws(kept.draws);
        self.read = kept.tokens_read;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
