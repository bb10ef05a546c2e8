//! A list is repeated.
//!
//! Line: `copy`, the values, then `=`. Distractors stand before and behind the list and never inside it; there are
//! as many gaps for them on either side as the list has values.
//!
//! ```text
//! atpm-train suite show --task copy --split train --seed 9 --count 1
//! copy n10 v0 v25 v59 v30 = [v0] [v25] [v59] [v30]
//! ```
//!
//! Size: values. The loss counts from `=` on, for every value of the list. A memory that keeps an order solves it.

use super::draw::{Draw, Sizes};
use super::vocabulary::{ANSWER, N_VALUES, value};
use super::{Definition, Sample, Task};

pub(super) const DEFINITION: Definition =
    Definition { name: "copy", unit: "values", sizes: Sizes { least: 4, most: 16 }, write };

fn write(draw: &mut Draw, size: usize) -> Sample {
    let list: Vec<u32> = (0..size).map(|_| value(draw.below(N_VALUES))).collect();
    let mut line = Vec::new();
    for _ in 0..size {
        draw.distract(&mut line);
    }
    line.extend(&list);
    for _ in 0..size {
        draw.distract(&mut line);
    }
    line.push(ANSWER);
    Sample::generated(Task::Copy, &line, &list)
}
