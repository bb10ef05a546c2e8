//! A value moves to another key, and the old key becomes unknown.
//!
//! Line: `rebind`, for each binding `k v`, then a quarter as many moves `> k k'` (the value of `k` is from now on that of
//! `k'`, which had none), then four questions `? k =`. A value may move several times, and a key that lost its value
//! may get another. Asked for is one time in four a key that lost its value (the answer is `unknown`), one time in four
//! one that got its value by a move, and else any key with a value; none twice.
//!
//! ```text
//! atpm-train suite show --task rebind --split train --seed 21 --count 1
//! rebind k15 v46 k41 v17 k32 v40 k6 v49 > k6 k34 ? k41 = [v17] ? k34 = [v49] ? k15 = [v46] ? k6 = [unknown]
//! ```
//!
//! Size: bindings. The loss counts at each `=`, for one value or `unknown`. A memory that writes what it read at one
//! address to another one, and clears the first, solves it.

use super::draw::{Draw, Sizes};
use super::sample::{QUESTIONS, Question};
use super::vocabulary::{MOVE, N_KEYS, N_VALUES, UNKNOWN, key, value};
use super::{Definition, Sample, Task};

pub(super) const DEFINITION: Definition =
    Definition { name: "rebind", unit: "bindings", sizes: Sizes { least: 4, most: 16 }, write };

fn write(draw: &mut Draw, size: usize) -> Sample {
    let Told { line, held, left, reached, bound } = Told::new(draw, size, size.div_ceil(4));
    let questions = ask(draw, &held, [left, reached, bound.clone(), bound]);
    Sample::questions(Task::Rebind, line, questions)
}

/// Bindings and moves, and where they led.
pub(super) struct Told {
    pub(super) line: Vec<u32>,
    /// For each key, its value or `unknown`.
    pub(super) held: [u32; N_KEYS],
    /// Keys that lost their value and have none.
    pub(super) left: Vec<usize>,
    /// Keys that got their value by a move.
    pub(super) reached: Vec<usize>,
    /// All keys that have a value.
    pub(super) bound: Vec<usize>,
}

impl Told {
    /// So many bindings, then so many moves.
    pub(super) fn new(draw: &mut Draw, bindings: usize, moves: usize) -> Self {
        let keys = draw.distinct(N_KEYS, N_KEYS);
        let (mut bound, mut free) = (keys[..bindings].to_vec(), keys[bindings..].to_vec());
        let mut held = [UNKNOWN; N_KEYS];
        let mut line = Vec::new();
        for &k in &bound {
            held[k] = value(draw.below(N_VALUES));
            draw.distract(&mut line);
            line.extend([key(k), held[k]]);
        }
        let (mut left, mut reached) = (Vec::new(), Vec::new());
        for _ in 0..moves {
            let (from, to) = (draw.below(bound.len()), draw.below(free.len()));
            std::mem::swap(&mut bound[from], &mut free[to]);
            let (old, new) = (free[to], bound[from]);
            held.swap(old, new);
            left.push(old);
            reached.push(new);
            draw.distract(&mut line);
            line.extend([MOVE, key(old), key(new)]);
        }
        draw.distract(&mut line);
        left.retain(|&k| held[k] == UNKNOWN);
        reached.retain(|&k| held[k] != UNKNOWN);
        Self { line, held, left, reached, bound }
    }
}

/// Questions for what keys hold, each from one of these lists, drawn anew; no key is asked for twice. The lists have at least
/// [`QUESTIONS`] keys together.
pub(super) fn ask(draw: &mut Draw, held: &[u32; N_KEYS], mut open: [Vec<usize>; 4]) -> Vec<Question> {
    let mut questions = Vec::new();
    while questions.len() < QUESTIONS {
        let among = &open[draw.below(open.len())];
        if among.is_empty() {
            continue;
        }
        let k = draw.pick(among);
        for keys in &mut open {
            keys.retain(|&other| other != k);
        }
        questions.push(Question { words: vec![key(k)], answer: held[k] });
    }
    questions
}
