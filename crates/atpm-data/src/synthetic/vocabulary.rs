//! The one vocabulary of all tasks: marks, then a marker for each task, then noise, keys and values.
//!
//! | ids | name | what it is |
//! |---|---|---|
//! | 0 | `pad` | fills a row up behind its sample |
//! | 1 | `?` | a query follows |
//! | 2 | `=` | the answer follows |
//! | 3 | `unknown` | the answer where a key has no value |
//! | 4 | `>` | a move (rebind, relocate), or one hop (pointer_chase) |
//! | 5, 6 | `+`, `-` | the write that follows counts, or must be ignored (gated_write) |
//! | 7 … 17 | task names | the first token of every sample |
//! | 18 … 31 | `n0` … `n13` | noise: means nothing anywhere |
//! | 32 … 95 | `k0` … `k63` | keys |
//! | 96 … 159 | `v0` … `v63` | values |

use super::Task;
use crate::{Result, Tokenizer};

/// Ids in all; a model of the suite needs at least as many.
pub const SIZE: usize = 160;
/// Fills a row up behind its sample.
pub const PAD: u32 = 0;
/// A query follows.
pub const QUERY: u32 = 1;
/// The answer follows.
pub const ANSWER: u32 = 2;
/// The answer where a key has no value.
pub const UNKNOWN: u32 = 3;
/// A move, or one hop.
pub const MOVE: u32 = 4;
/// The write that follows counts.
pub const WRITE: u32 = 5;
/// The write that follows must be ignored.
pub const SKIP: u32 = 6;
/// Noise tokens.
pub const N_NOISE: usize = 14;
/// Keys.
pub const N_KEYS: usize = 64;
/// Values.
pub const N_VALUES: usize = 64;

const MARKERS: u32 = 7;
const NOISE: u32 = 18;
const KEYS: u32 = NOISE + N_NOISE as u32;
const VALUES: u32 = KEYS + N_KEYS as u32;

/// The token that a task's samples begin with.
pub(super) fn marker(task: Task) -> u32 {
    // The same language.
    let task = if task == Task::Relocate { Task::Rebind } else { task };
    MARKERS + task as u32
}

/// Noise token `index`, below [`N_NOISE`].
pub fn noise(index: usize) -> u32 {
    NOISE + index as u32
}

/// Key `index`, below [`N_KEYS`].
pub fn key(index: usize) -> u32 {
    KEYS + index as u32
}

/// Value `index`, below [`N_VALUES`].
pub fn value(index: usize) -> u32 {
    VALUES + index as u32
}

/// Whether an id is a key.
pub fn is_key(id: u32) -> bool {
    (KEYS..VALUES).contains(&id)
}

/// Whether an id is a value.
pub fn is_value(id: u32) -> bool {
    (VALUES..SIZE as u32).contains(&id)
}

/// The tokenizer of samples in words ([`super::Sample::text`] without its brackets); [`PAD`] ends a text.
///
/// # Errors
/// None that is expected: the words are fixed.
pub fn tokenizer() -> Result<Tokenizer> {
    let words: Vec<String> = (0..SIZE as u32).map(name).collect();
    Tokenizer::of_words("the memory tasks' words", &words, PAD)
}

/// What an id is called in text; an id past the vocabulary is `#id`.
pub fn name(id: u32) -> String {
    match id {
        PAD => "pad".into(),
        QUERY => "?".into(),
        ANSWER => "=".into(),
        UNKNOWN => "unknown".into(),
        MOVE => ">".into(),
        WRITE => "+".into(),
        SKIP => "-".into(),
        MARKERS..NOISE => Task::ALL[(id - MARKERS) as usize].name().into(),
        NOISE..KEYS => format!("n{}", id - NOISE),
        KEYS..VALUES => format!("k{}", id - KEYS),
        _ if (id as usize) < SIZE => format!("v{}", id - VALUES),
        _ => format!("#{id}"),
    }
}
