//! Where a sample's line writes into a memory: a value to a key, or a key's value to another key.

use std::collections::BTreeSet;
use std::ops::Range;

use super::Sample;
use super::vocabulary::{self, MOVE, QUERY, SKIP};

/// What a write does to what is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    /// A key gets its first value.
    First,
    /// A fact is revised: a key that was written before gets another value, or its value moves away to another key.
    Revision,
    /// It is marked to be ignored.
    Ignored,
}

/// One write of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// What it does.
    pub kind: WriteKind,
    /// Its two words, as positions in the sample's ids: a key and its value, or the keys that a value moves from and to.
    pub words: Range<usize>,
}

impl Sample {
    /// The writes of the line, in their order: each key with a value directly behind it, and each move (`> k k'`). None in
    /// tasks whose lines have neither.
    pub fn writes(&self) -> Vec<Write> {
        let prompt = self.prompt();
        let mut written = BTreeSet::new();
        let mut writes = Vec::new();
        for (at, pair) in prompt.windows(2).enumerate() {
            let mark = at.checked_sub(1).map(|before| prompt[before]);
            if pair[0] == QUERY {
                break;
            }
            let moves = mark == Some(MOVE) && vocabulary::is_key(pair[1]);
            if !vocabulary::is_key(pair[0]) || !(moves || vocabulary::is_value(pair[1])) {
                continue;
            }
            let kind = if mark == Some(SKIP) {
                WriteKind::Ignored
            } else if !written.insert(pair[0]) || moves {
                WriteKind::Revision
            } else {
                WriteKind::First
            };
            writes.push(Write { kind, words: at..at + 2 });
        }
        writes
    }
}
