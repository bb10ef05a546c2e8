//! Keys point to keys; the answer is where a number of hops leads.
//!
//! Line: `pointer_chase`, for each link `k k'` (from `k` to `k'`), then `? k`, a `>` for each hop, and `=`. The links
//! form one ring over all keys of the line and are told in random order. There are always two hops: the links grow
//! from split to split, the hops do not.
//!
//! ```text
//! atpm-train suite show --task pointer_chase --split train --seed 0 --count 1
//! pointer_chase k43 k41 k14 k43 k41 k2 k2 k14 ? k2 > > = [k43]
//! ```
//!
//! Size: links. The loss counts at `=`, for one key. Reading the memory at what was read from it solves it: a layer for
//! each hop, or steps in between.

use super::draw::{Draw, Sizes};
use super::vocabulary::{ANSWER, MOVE, N_KEYS, QUERY, key};
use super::{Definition, Sample, Task};

/// Links to follow.
const HOPS: usize = 2;

pub(super) const DEFINITION: Definition =
    Definition { name: "pointer_chase", unit: "links", sizes: Sizes { least: 4, most: 16 }, write };

fn write(draw: &mut Draw, size: usize) -> Sample {
    let ring = draw.distinct(size, N_KEYS);
    let after = |place: usize, hops: usize| key(ring[(place + hops) % size]);
    let mut line = Vec::new();
    for place in draw.distinct(size, size) {
        draw.distract(&mut line);
        line.extend([after(place, 0), after(place, 1)]);
    }
    draw.distract(&mut line);
    let asked = draw.below(size);
    line.extend([QUERY, after(asked, 0)]);
    line.extend([MOVE; HOPS]);
    line.push(ANSWER);
    Sample::generated(Task::PointerChase, &line, &[after(asked, HOPS)])
}
