//! Key → value: pairs are told, keys are asked for.
//!
//! Line: `kv_recall`, for each pair `k v`, then four questions `? k =`. Keys differ, values may repeat; every pair is
//! as likely to be asked for, and none twice.
//!
//! ```text
//! atpm-train suite show --task kv_recall --split train --seed 11 --count 1
//! kv_recall k32 v25 k47 v37 n4 k19 v59 k36 v35 k4 v17 ? k32 = [v25] ? k4 = [v17] ? k19 = [v59] ? k36 = [v35]
//! ```
//!
//! Size: pairs. The loss counts at each `=`, for one value. A memory that keeps every pair solves it.

use super::draw::{Draw, Sizes};
use super::sample::{QUESTIONS, Question};
use super::vocabulary::{N_KEYS, N_VALUES, key, value};
use super::{Definition, Sample, Task};

pub(super) const DEFINITION: Definition =
    Definition { name: "kv_recall", unit: "pairs", sizes: Sizes { least: 4, most: 16 }, write };

fn write(draw: &mut Draw, size: usize) -> Sample {
    let keys = draw.distinct(size, N_KEYS);
    let values: Vec<u32> = keys.iter().map(|_| value(draw.below(N_VALUES))).collect();
    let mut line = Vec::new();
    for (&k, &v) in keys.iter().zip(&values) {
        draw.distract(&mut line);
        line.extend([key(k), v]);
    }
    draw.distract(&mut line);
    let question = |index: usize| Question { words: vec![key(keys[index])], answer: values[index] };
    Sample::questions(Task::KvRecall, line, draw.distinct(QUESTIONS, size).into_iter().map(question))
}
