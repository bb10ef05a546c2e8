//! Keys point to keys; the answer is where a number of hops leads.
//!
//! Line: `pointer_chase`, for each link `k k'` (from `k` to `k'`), then four questions `? k`, a `>` for each hop, and
//! `=`. The links form one ring over all keys of the line and are told in random order. A question has one hop or two,
//! in every split: the links grow, the hops do not.
//!
//! ```text
//! atpm-train suite show --task pointer_chase --split train --seed 9 --count 1
//! pointer_chase k22 k25 k25 k53 k51 k22 n2 k53 k6 k6 k51 ? k22 > > = [k53] ? k6 > > = [k22] ? k51 > = [k22] ? k53 > = [k6]
//! ```
//!
//! Size: links. The loss counts at each `=`, for one key. Reading the memory at what was read from it solves it: a layer for
//! each hop, or steps in between.

use super::draw::{Draw, Sizes};
use super::sample::{QUESTIONS, Question};
use super::vocabulary::{MOVE, N_KEYS, key};
use super::{Definition, Sample, Task};

/// The most links to follow. Questions with fewer are easier, and teach what the others are made of.
const MOST_HOPS: usize = 2;

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
    let asked = draw.distinct(QUESTIONS, size);
    let question = |place| {
        let hops = 1 + draw.below(MOST_HOPS);
        let mut words = vec![after(place, 0)];
        words.resize(1 + hops, MOVE);
        Question { words, answer: after(place, hops) }
    };
    Sample::questions(Task::PointerChase, line, asked.into_iter().map(question))
}
