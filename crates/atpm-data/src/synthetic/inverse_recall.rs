//! Value → key: pairs are told, the keys of values are asked for.
//!
//! Line: `inverse_recall`, for each pair `k v`, then four questions `? v =`. Keys differ and so do values; every pair
//! is as likely to be asked for, and none twice.
//!
//! ```text
//! atpm-train suite show --task inverse_recall --split train --seed 13 --count 1
//! inverse_recall k28 v60 k19 v35 k58 v42 k14 v28 k49 v14 ? v35 = [k19] ? v42 = [k58] ? v28 = [k14] ? v60 = [k28]
//! ```
//!
//! Size: pairs. The loss counts at each `=`, for one key. A memory that can be searched by what it holds solves it, or one
//! that stores every pair both ways.

use super::draw::{Draw, Sizes};
use super::sample::{QUESTIONS, Question};
use super::vocabulary::{N_KEYS, N_VALUES, key, value};
use super::{Definition, Sample, Task};

pub(super) const DEFINITION: Definition =
    Definition { name: "inverse_recall", unit: "pairs", sizes: Sizes { least: 4, most: 16 }, write };

fn write(draw: &mut Draw, size: usize) -> Sample {
    let keys = draw.distinct(size, N_KEYS);
    let values = draw.distinct(size, N_VALUES);
    let mut line = Vec::new();
    for (&k, &v) in keys.iter().zip(&values) {
        draw.distract(&mut line);
        line.extend([key(k), value(v)]);
    }
    draw.distract(&mut line);
    let question = |index: usize| Question { words: vec![value(values[index])], answer: key(keys[index]) };
    Sample::questions(Task::InverseRecall, line, draw.distinct(QUESTIONS, size).into_iter().map(question))
}
