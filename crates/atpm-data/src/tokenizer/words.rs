//! GPT-2's split of text into words, written by hand.
//!
//! The pattern is `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`, its alternatives tried in this order.

use std::sync::LazyLock;

use regex_syntax::hir::{Class as HirClass, Hir, HirKind};

/// What the pattern tells characters apart by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Number,
    Space,
    Other,
}

/// The class of every character.
static CLASSES: LazyLock<Vec<Class>> = LazyLock::new(|| {
    let mut classes = vec![Class::Other; char::MAX as usize + 1];
    for (pattern, class) in [(r"\p{L}", Class::Letter), (r"\p{N}", Class::Number), (r"\s", Class::Space)] {
        let parsed = regex_syntax::parse(pattern);
        let Ok(HirKind::Class(HirClass::Unicode(set))) = parsed.as_ref().map(Hir::kind) else {
            continue;
        };
        for range in set.ranges() {
            classes[range.start() as usize..=range.end() as usize].fill(class);
        }
    }
    classes
});

/// The words of a text; put together they are the text.
pub(super) struct Words<'a> {
    rest: &'a str,
    classes: &'static [Class],
}

/// Splits `text`.
pub(super) fn words(text: &str) -> Words<'_> {
    Words { rest: text, classes: &CLASSES }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let first = self.rest.chars().next()?;
        let length = self.contraction().unwrap_or_else(|| self.run(first));
        let (word, rest) = self.rest.split_at(length);
        self.rest = rest;
        Some(word)
    }
}

impl Words<'_> {
    /// Bytes of the contraction at the front, if there is one.
    fn contraction(&self) -> Option<usize> {
        match self.rest.as_bytes() {
            [b'\'', b's' | b't' | b'm' | b'd', ..] => Some(2),
            [b'\'', b'r' | b'v', b'e', ..] | [b'\'', b'l', b'l', ..] => Some(3),
            _ => None,
        }
    }

    /// Bytes of the run of one class at the front, with the blank before it.
    fn run(&self, first: char) -> usize {
        let blank = usize::from(first == ' ');
        let class = self.rest[blank..].chars().next().map_or(Class::Space, |next| self.class(next));
        if class == Class::Space || (blank == 0 && self.class(first) == Class::Space) {
            return self.spaces();
        }
        let run = &self.rest[blank..];
        blank + run.find(|next| self.class(next) != class).unwrap_or(run.len())
    }

    /// Bytes of the white space at the front, without its last character if a word follows and others come before it.
    fn spaces(&self) -> usize {
        let Some(end) = self.rest.find(|next| self.class(next) != Class::Space) else {
            return self.rest.len();
        };
        let last = self.rest[..end].chars().next_back().map_or(0, char::len_utf8);
        if last == end { end } else { end - last }
    }

    fn class(&self, character: char) -> Class {
        self.classes[character as usize]
    }
}
