//! Pairs are told in random order; their values are given in the order of their keys.
//!
//! Line: `sort`, for each pair `k v`, then `=`. Keys differ and are ordered by their numbers (`k0` first); values may
//! repeat.
//!
//! ```text
//! atpm-train suite show --task sort --split train --seed 3 --count 1
//! sort k2 v48 k34 v57 n9 k59 v14 k4 v25 = [v48] [v25] [v57] [v14]
//! ```
//!
//! Size: pairs. The loss counts from `=` on, for every value. A memory that finds the next key above the last one
//! solves it.

use super::draw::{Draw, Sizes};
use super::vocabulary::{ANSWER, N_KEYS, N_VALUES, key, value};
use super::{Definition, Sample, Task};

pub(super) const DEFINITION: Definition =
    Definition { name: "sort", unit: "pairs", sizes: Sizes { least: 2, most: 8 }, write };

fn write(draw: &mut Draw, size: usize) -> Sample {
    let keys = draw.distinct(size, N_KEYS);
    let mut pairs: Vec<(usize, u32)> = keys.into_iter().map(|k| (k, value(draw.below(N_VALUES)))).collect();
    let mut line = Vec::new();
    for &(k, v) in &pairs {
        draw.distract(&mut line);
        line.extend([key(k), v]);
    }
    draw.distract(&mut line);
    line.push(ANSWER);
    pairs.sort_unstable();
    let sorted: Vec<u32> = pairs.iter().map(|&(_, v)| v).collect();
    Sample::generated(Task::Sort, &line, &sorted)
}
