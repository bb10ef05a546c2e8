//! The last write wins: half as many keys as writes, so that some are written again.
//!
//! Line: `overwrite`, for each write `k v`, then up to four questions `? k =`. A write never repeats the value that its
//! key has; only keys that were written at least twice are asked for, none twice.
//!
//! ```text
//! atpm-train suite show --task overwrite --split train --seed 0 --count 1
//! overwrite k16 v49 k4 v33 k4 v12 k16 v18 ? k16 = [v18] ? k4 = [v12]
//! ```
//!
//! Size: writes. The loss counts at each `=`, for one value. A memory that replaces what stood at a key solves it.

use super::draw::{Draw, Sizes};
use super::sample::{QUESTIONS, Question};
use super::vocabulary::{N_KEYS, N_VALUES, SKIP, UNKNOWN, WRITE, key, value};
use super::{Definition, Sample, Task};

pub(super) const DEFINITION: Definition =
    Definition { name: "overwrite", unit: "writes", sizes: Sizes { least: 4, most: 16 }, write };

fn write(draw: &mut Draw, size: usize) -> Sample {
    rewritten(draw, Task::Overwrite, size)
}

/// Writes to half as many keys, then questions for those that were written at least twice. In [`Task::GatedWrite`] each
/// write has its mark, and a coin decides about all but the first write to a key.
pub(super) fn rewritten(draw: &mut Draw, task: Task, size: usize) -> Sample {
    let gated = task == Task::GatedWrite;
    let keys = draw.distinct(size / 2, N_KEYS);
    let mut held = [None; N_KEYS];
    // More writes than keys: at least one key is among them.
    let mut rewritten = Vec::new();
    let mut line = Vec::new();
    for _ in 0..size {
        let k = draw.pick(&keys);
        let v = another_value(draw, held[k]);
        let first = held[k].is_none();
        if !first && !rewritten.contains(&k) {
            rewritten.push(k);
        }
        let counts = !gated || first || draw.below(2) == 0;
        if counts {
            held[k] = Some(v);
        }
        draw.distract(&mut line);
        if gated {
            line.push(if counts { WRITE } else { SKIP });
        }
        line.extend([key(k), value(v)]);
    }
    draw.distract(&mut line);
    let question = |index: usize| {
        let k = rewritten[index];
        Question { words: vec![key(k)], answer: held[k].map_or(UNKNOWN, value) }
    };
    Sample::questions(task, line, draw.distinct(QUESTIONS, rewritten.len()).into_iter().map(question))
}

/// A value other than `than`.
fn another_value(draw: &mut Draw, than: Option<usize>) -> usize {
    match than {
        None => draw.below(N_VALUES),
        Some(old) => (old + 1 + draw.below(N_VALUES - 1)) % N_VALUES,
    }
}
