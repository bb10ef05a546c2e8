//! Some writes are marked to be ignored and must leave the memory alone.
//!
//! Line: `gated_write`, for each write `+ k v` (it counts) or `- k v` (it does not), then up to four questions `? k =`.
//! There are half as many keys as writes; the first write to a key always counts, every later one with probability one
//! half. A write never repeats the value that its key has; only keys that were written at least twice are asked for,
//! none twice.
//!
//! ```text
//! atpm-train suite show --task gated_write --split train --seed 11 --count 1
//! gated_write + k34 v40 + k34 v59 + k27 v13 + k8 v18 - k27 v5 - k8 v45 + k34 v28 ? k27 = [v13] ? k34 = [v28] ? k8 = [v18]
//! ```
//!
//! Size: writes. The loss counts at each `=`, for one value. A memory whose writing is gated by a mark solves it.

use super::draw::{Draw, Sizes};
use super::{Definition, Sample, Task, overwrite};

pub(super) const DEFINITION: Definition =
    Definition { name: "gated_write", unit: "writes", sizes: Sizes { least: 4, most: 16 }, write };

fn write(draw: &mut Draw, size: usize) -> Sample {
    overwrite::rewritten(draw, Task::GatedWrite, size)
}
