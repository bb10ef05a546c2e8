//! A list is repeated without the noise in between.
//!
//! Line: `selective_copy`, the values with 0 to 2 noise tokens before each and behind the last (0 to 6 in Stress),
//! then `=`.
//!
//! ```text
//! atpm-train suite show --task selective_copy --split train --seed 1 --count 1
//! selective_copy v40 v52 v22 n10 v43 v18 n9 n2 = [v40] [v52] [v22] [v43] [v18]
//! ```
//!
//! Size: values. The loss counts from `=` on, for every value of the list. A memory that keeps an order and is not
//! moved on by noise solves it.

use super::draw::{Draw, Sizes};
use super::vocabulary::{ANSWER, N_VALUES, value};
use super::{Definition, Sample, Task};

pub(super) const DEFINITION: Definition =
    Definition { name: "selective_copy", unit: "values", sizes: Sizes { least: 4, most: 16 }, write };

fn write(draw: &mut Draw, size: usize) -> Sample {
    let list: Vec<u32> = (0..size).map(|_| value(draw.below(N_VALUES))).collect();
    let mut line = Vec::new();
    for &v in &list {
        gap(draw, &mut line);
        line.push(v);
    }
    gap(draw, &mut line);
    line.push(ANSWER);
    Sample::generated(Task::SelectiveCopy, &line, &list)
}

fn gap(draw: &mut Draw, line: &mut Vec<u32>) {
    for _ in 0..draw.below(if draw.is_stress() { 7 } else { 3 }) {
        line.push(draw.noise());
    }
}
