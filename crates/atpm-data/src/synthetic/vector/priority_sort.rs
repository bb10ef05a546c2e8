//! Priority sort: vectors, each with a priority between −1 and 1, an end mark, then the four fifths of highest priority in its
//! order.

use std::collections::HashSet;

use super::{Definition, MOST, Row, Steps, bits, nothing};
use crate::order::Stream;

/// Bits of a vector.
const BITS: usize = 8;
/// Steps of the priorities' scale, a power of two that f32 holds exactly.
const SCALE: usize = 1 << 16;

pub(super) const DEFINITION: Definition = Definition {
    name: "priority_sort",
    inputs: BITS + 2,
    outputs: BITS,
    unit: "vectors",
    sizes: (5, 20),
    // One priority of four at most, so that a new one is soon found.
    limits: (1, MOST),
    common: nothing,
    row,
};

fn row(stream: &mut Stream, size: usize, _: usize) -> Row {
    let mut list: Vec<(usize, Vec<f32>)> = Vec::with_capacity(size);
    let mut taken = HashSet::with_capacity(size);
    while list.len() < size {
        let priority = stream.below(SCALE);
        // Equal priorities would have two right answers.
        if taken.insert(priority) {
            list.push((priority, bits(stream, BITS)));
        }
    }
    let mut steps = Steps::new(DEFINITION.inputs, DEFINITION.outputs);
    for (priority, vector) in &list {
        let shown = 2.0 * (*priority as f32) / SCALE as f32 - 1.0;
        steps.show(vector, &[(BITS, shown)]);
    }
    steps.show(&[], &[(BITS + 1, 1.0)]);
    list.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
    for (_, vector) in &list[..asked(size)] {
        steps.ask(vector);
    }
    steps.finish()
}

/// Vectors that are asked for: four fifths, 16 of 20 as in the paper, at least one.
pub(super) fn asked(size: usize) -> usize {
    (size * 4 / 5).max(1)
}
