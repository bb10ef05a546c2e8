//! One sample: what is read, what is asked, and where the model is on its own.

use super::Task;
use super::vocabulary::{self, ANSWER, QUERY, marker};
use crate::IGNORE;

/// One line of a task.
///
/// Teacher-forced, a model reads all of `ids` and is held to `targets`. Autoregressively it reads [`Self::prompt()`]
/// and from then on what it gave itself: the input behind the prompt is its own output at the position before, and
/// nothing of `ids` past the prompt may be shown to it. The answers that count are the same in both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The task; in a sample of the mixture, the one it was drawn from.
    pub task: Task,
    /// Input ids.
    pub ids: Vec<u32>,
    /// For each input, the id to give there, or [`IGNORE`]; as many as `ids`.
    pub targets: Vec<u32>,
    /// How many of `ids` are given; the others are the answer fed back.
    pub prompt: usize,
}

/// Questions behind a line, where it holds enough to ask for.
///
/// More than one, because a step learns from answers and not from samples; few, because all of them must be right.
pub(super) const QUESTIONS: usize = 4;

/// One question and its answer.
pub(super) struct Question {
    /// What stands between `?` and `=`.
    pub(super) words: Vec<u32>,
    /// The id to give at `=`.
    pub(super) answer: u32,
}

impl Sample {
    /// A line whose answer is generated behind it, token by token. The answer has at least one.
    pub(super) fn generated(task: Task, line: &[u32], answer: &[u32]) -> Self {
        let mut ids = vec![marker(task)];
        ids.extend(line);
        let prompt = ids.len();
        let mut targets = vec![IGNORE; prompt - 1];
        targets.extend(answer);
        // The last token of the answer is never read.
        ids.extend(&answer[..answer.len() - 1]);
        Self { task, ids, targets, prompt }
    }

    /// A line that asks inside itself: `targets` are the answers at the places of `line`, and none is fed back.
    pub(super) fn inside(task: Task, line: &[u32], targets: &[u32]) -> Self {
        let with_first = |first: u32, rest: &[u32]| [&[first], rest].concat();
        let ids = with_first(marker(task), line);
        Self { task, prompt: ids.len(), ids, targets: with_first(IGNORE, targets) }
    }

    /// What is told, and behind it the questions one after the other: for each `?`, its words, and `=`, where its
    /// answer of one token is due. No answer is fed back, so that none helps with the next.
    pub(super) fn questions(
        task: Task,
        mut line: Vec<u32>,
        questions: impl IntoIterator<Item = Question>,
    ) -> Self {
        let mut targets = vec![IGNORE; line.len()];
        for Question { words, answer } in questions {
            line.push(QUERY);
            line.extend(words);
            line.push(ANSWER);
            targets.resize(line.len() - 1, IGNORE);
            targets.push(answer);
        }
        Self::inside(task, &line, &targets)
    }

    /// What an autoregressive evaluation may show to the model.
    pub fn prompt(&self) -> &[u32] {
        &self.ids[..self.prompt]
    }

    /// The positions that count and the id to give at each, ascending.
    pub fn answer(&self) -> impl Iterator<Item = (usize, u32)> {
        self.targets.iter().copied().enumerate().filter(|&(_, target)| target != IGNORE)
    }

    /// The sample in words, each answer in brackets behind the token at which it is to be given.
    pub fn text(&self) -> String {
        let mut words = Vec::new();
        for (position, (&id, &target)) in self.ids.iter().zip(&self.targets).enumerate() {
            if position < self.prompt {
                words.push(vocabulary::name(id));
            }
            if target != IGNORE {
                words.push(format!("[{}]", vocabulary::name(target)));
            }
        }
        words.join(" ")
    }
}
