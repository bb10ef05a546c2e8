//! A value moves to another key, and the old key becomes unknown.
//!
//! Line: `rebind`, for each binding `k v`, then half as many moves `> k k'` (the value of `k` is from now on that of
//! `k'`, which had none), then `? k =`. A value may move several times, and a key that lost its value may get another.
//! Asked for is one time in four a key that lost its value (the answer is `unknown`), two times in four one that got
//! its value by a move, and one time in four any key with a value.
//!
//! ```text
//! atpm-train suite show --task rebind --split train --seed 1 --count 1
//! rebind k46 v9 k32 v22 k44 v29 k53 v29 > k44 k41 > k53 k55 ? k55 = [v29]
//! ```
//!
//! Size: bindings. The loss counts at `=`, for one value or `unknown`. A memory that writes what it read at one
//! address to another one, and clears the first, solves it.

use super::draw::{Draw, Sizes};
use super::vocabulary::{ANSWER, MOVE, N_KEYS, N_VALUES, QUERY, UNKNOWN, key, value};
use super::{Definition, Sample, Task};

pub(super) const DEFINITION: Definition =
    Definition { name: "rebind", unit: "bindings", sizes: Sizes { least: 4, most: 16 }, write };

fn write(draw: &mut Draw, size: usize) -> Sample {
    let keys = draw.distinct(N_KEYS, N_KEYS);
    let (mut bound, mut free) = (keys[..size].to_vec(), keys[size..].to_vec());
    let mut held = [UNKNOWN; N_KEYS];
    let mut line = Vec::new();
    for &k in &bound {
        held[k] = value(draw.below(N_VALUES));
        draw.distract(&mut line);
        line.extend([key(k), held[k]]);
    }
    let (mut left, mut reached) = (Vec::new(), Vec::new());
    for _ in 0..size / 2 {
        let (from, to) = (draw.below(bound.len()), draw.below(free.len()));
        std::mem::swap(&mut bound[from], &mut free[to]);
        let (old, new) = (free[to], bound[from]);
        held.swap(old, new);
        left.push(old);
        reached.push(new);
        draw.distract(&mut line);
        line.extend([MOVE, key(old), key(new)]);
    }
    draw.distract(&mut line);
    // The last move leaves at least one key of either kind.
    left.retain(|&k| held[k] == UNKNOWN);
    reached.retain(|&k| held[k] != UNKNOWN);
    let among = [&left, &reached, &reached, &bound][draw.below(4)];
    let asked = draw.pick(among);
    line.extend([QUERY, key(asked), ANSWER]);
    Sample::generated(Task::Rebind, &line, &[held[asked]])
}
