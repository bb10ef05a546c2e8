//! Some writes are marked to be ignored and must leave the memory alone.
//!
//! Line: `gated_write`, for each write `+ k v` (it counts) or `- k v` (it does not), then `? k =`. There are half as
//! many keys as writes; the first write to a key always counts, every later one with probability one half. A write
//! never repeats the value that its key has; only a key that was written at least twice is asked for.
//!
//! ```text
//! atpm-train suite show --task gated_write --split train --seed 11 --count 1
//! gated_write + k34 v40 + k34 v59 + k27 v13 + k8 v18 - k27 v5 - k8 v45 + k34 v28 ? k8 = [v18]
//! ```
//!
//! Size: writes. The loss counts at `=`, for one value. A memory whose writing is gated by a mark solves it.

use super::draw::{Draw, Sizes};
use super::overwrite::another_value;
use super::vocabulary::{ANSWER, N_KEYS, QUERY, SKIP, UNKNOWN, WRITE, key, value};
use super::{Definition, Sample, Task};

pub(super) const DEFINITION: Definition =
    Definition { name: "gated_write", unit: "writes", sizes: Sizes { least: 4, most: 16 }, write };

fn write(draw: &mut Draw, size: usize) -> Sample {
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
        let counts = first || draw.below(2) == 0;
        if counts {
            held[k] = Some(v);
        }
        draw.distract(&mut line);
        line.extend([if counts { WRITE } else { SKIP }, key(k), value(v)]);
    }
    draw.distract(&mut line);
    let asked = draw.pick(&rewritten);
    line.extend([QUERY, key(asked), ANSWER]);
    Sample::generated(Task::GatedWrite, &line, &[held[asked].map_or(UNKNOWN, value)])
}
