//! Value → key: pairs are told, the key of one value is asked for.
//!
//! Line: `inverse_recall`, for each pair `k v`, then `? v =`. Keys differ and so do values; every pair is as likely
//! to be asked for.
//!
//! ```text
//! atpm-train suite show --task inverse_recall --split train --seed 11 --count 1
//! inverse_recall k32 v45 k25 v32 k52 v53 k0 v16 k19 v20 ? v16 = [k0]
//! ```
//!
//! Size: pairs. The loss counts at `=`, for one key. A memory that can be searched by what it holds solves it, or one
//! that stores every pair both ways.

use super::draw::{Draw, Sizes};
use super::vocabulary::{ANSWER, N_KEYS, N_VALUES, QUERY, key, value};
use super::{Definition, Sample, Task};

pub(super) const DEFINITION: Definition =
    Definition { name: "inverse_recall", unit: "pairs", sizes: Sizes { least: 4, most: 16 }, write };

fn write(draw: &mut Draw, size: usize) -> Sample {
    let keys = draw.distinct(size, N_KEYS);
    let values = draw.distinct(size, N_VALUES);
    let asked = draw.below(size);
    let mut line = Vec::new();
    for (&k, &v) in keys.iter().zip(&values) {
        draw.distract(&mut line);
        line.extend([key(k), value(v)]);
    }
    draw.distract(&mut line);
    line.extend([QUERY, value(values[asked]), ANSWER]);
    Sample::generated(Task::InverseRecall, &line, &[key(keys[asked])])
}
