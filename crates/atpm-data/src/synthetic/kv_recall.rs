//! Key → value: pairs are told, one key is asked for.
//!
//! Line: `kv_recall`, for each pair `k v`, then `? k =`. Keys differ, values may repeat; every pair is as likely to
//! be asked for.
//!
//! ```text
//! atpm-train suite show --task kv_recall --split train --seed 11 --count 1
//! kv_recall k32 v37 k47 v35 k19 v43 k36 v0 k4 v31 ? k47 = [v35]
//! ```
//!
//! Size: pairs. The loss counts at `=`, for one value. A memory that keeps every pair solves it.

use super::draw::{Draw, Sizes};
use super::vocabulary::{ANSWER, N_KEYS, N_VALUES, QUERY, key, value};
use super::{Definition, Sample, Task};

pub(super) const DEFINITION: Definition =
    Definition { name: "kv_recall", unit: "pairs", sizes: Sizes { least: 4, most: 16 }, write };

fn write(draw: &mut Draw, size: usize) -> Sample {
    let keys = draw.distinct(size, N_KEYS);
    let asked = draw.below(size);
    let mut line = Vec::new();
    let mut answer = 0;
    for (index, &k) in keys.iter().enumerate() {
        let v = draw.below(N_VALUES);
        draw.distract(&mut line);
        line.extend([key(k), value(v)]);
        if index == asked {
            answer = value(v);
        }
    }
    draw.distract(&mut line);
    line.extend([QUERY, key(keys[asked]), ANSWER]);
    Sample::generated(Task::KvRecall, &line, &[answer])
}
