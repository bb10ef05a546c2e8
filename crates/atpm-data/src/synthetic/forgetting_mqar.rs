//! Multi-query associative recall with updates, as Zoology defines it: half of the keys get another value.
//!
//! Line of size `n`: as that of [`super::mqar`], but between the `n` pairs and the queries stand `n/2` pairs (rounded
//! down) that give keys among them a new value. The answer to a key is its newest value.
//!
//! ```text
//! atpm-train suite show --task forgetting_mqar --split train --seed 2 --count 1
//! forgetting_mqar k25 v20 k54 v58 k42 v34 k47 v21 k54 v57 k42 v15 k54 [v57] n12 n11 n4 k25 [v20] n10 k47 [v21] n0 n13 n9 k42 [v15] n8 n5 n12 n3 n3 n6 n10 n1 n11
//! ```
//!
//! Size: pairs before the updates. The loss counts at every key behind the pairs. A memory that replaces what stood at a
//! key and keeps the others solves it.

use super::draw::{Draw, Sizes};
use super::vocabulary::{N_VALUES, value};
use super::{Definition, Sample, Task, mqar};

pub(super) const DEFINITION: Definition =
    Definition { name: "forgetting_mqar", unit: "pairs", sizes: Sizes { least: 4, most: 16 }, write };

fn write(draw: &mut Draw, size: usize) -> Sample {
    let mut pairs = mqar::pairs(draw, size);
    let mut line: Vec<u32> = pairs.iter().flatten().copied().collect();
    for index in draw.distinct(size / 2, size) {
        let old = pairs[index][1];
        while pairs[index][1] == old {
            pairs[index][1] = value(draw.below(N_VALUES));
        }
        line.extend(pairs[index]);
    }
    mqar::ask(draw, Task::ForgettingMqar, line, &pairs)
}
