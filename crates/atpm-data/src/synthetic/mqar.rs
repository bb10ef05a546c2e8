//! Multi-query associative recall, as Zoology defines it: every key is asked for once, somewhere behind the pairs.
//!
//! Line of size `n`: `mqar`, then `8 n` tokens: `n` pairs `k v`, and behind them slots of two tokens. Each key stands in
//! one slot of its own, slot `i` (from 1) drawn with a weight of `1/i`; everything else there is noise. The answer is
//! due at the key itself and is not read afterwards. Keys differ and so do values.
//!
//! Two things are told apart from the definition: its weight is `i^-0.99`, which whole numbers cannot hold, and it
//! fills gaps with any token of the vocabulary, where here only noise stands, so that a line shows by itself where it
//! asks.
//!
//! ```text
//! atpm-train suite show --task mqar --split train --seed 3 --count 1
//! mqar k20 v32 k23 v58 k0 v62 k18 v9 k42 v26 k0 [v62] n10 k42 [v26] n3 n13 n6 k20 [v32] n4 n9 n3 n2 n9 n8 n1 n13 n9 n1 n7 n10 n7 k23 [v58] n4 n6 n10 n6 n10 n1 n2 k18 [v9] n2
//! ```
//!
//! Size: pairs. The loss counts at every key behind the pairs. A memory that keeps every pair solves it.

use super::draw::{Draw, Sizes};
use super::vocabulary::{N_KEYS, N_VALUES, key, value};
use super::{Definition, Sample, Task};
use crate::IGNORE;

pub(super) const DEFINITION: Definition =
    Definition { name: "mqar", unit: "pairs", sizes: Sizes { least: 4, most: 16 }, write };

/// Tokens of a line for each pair.
const TOKENS_A_PAIR: usize = 8;

fn write(draw: &mut Draw, size: usize) -> Sample {
    let pairs = pairs(draw, size);
    let line = pairs.iter().flatten().copied().collect();
    ask(draw, Task::Mqar, line, &pairs)
}

/// `n` keys with their values, all different.
pub(super) fn pairs(draw: &mut Draw, n: usize) -> Vec<[u32; 2]> {
    let (keys, values) = (draw.distinct(n, N_KEYS), draw.distinct(n, N_VALUES));
    keys.into_iter().zip(values).map(|(k, v)| [key(k), value(v)]).collect()
}

/// Goes on from `line`, which tells them, to ask for the key of every pair once.
pub(super) fn ask(draw: &mut Draw, task: Task, mut line: Vec<u32>, pairs: &[[u32; 2]]) -> Sample {
    let told = line.len();
    let tokens = TOKENS_A_PAIR * pairs.len();
    line.resize_with(tokens, || draw.noise());
    let mut targets = vec![IGNORE; tokens];
    let mut weights: Vec<usize> = (1..=(tokens - told) / 2).map(|slot| (1 << 32) / slot).collect();
    for &[k, v] in pairs {
        let place = told + 2 * weighted(draw, &weights);
        weights[(place - told) / 2] = 0;
        line[place] = k;
        targets[place] = v;
    }
    Sample::inside(task, &line, &targets)
}

/// An index, drawn with the weights' probabilities; not all of them are zero.
fn weighted(draw: &mut Draw, weights: &[usize]) -> usize {
    let mut rest = draw.below(weights.iter().sum());
    let stop = |&weight: &usize| {
        let inside = rest < weight;
        rest = rest.saturating_sub(weight);
        inside
    };
    weights.iter().position(stop).unwrap_or(0)
}
