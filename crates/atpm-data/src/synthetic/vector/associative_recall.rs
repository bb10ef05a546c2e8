//! Associative recall: items of three vectors, one of them again, then the item that stood behind it.

use std::collections::HashSet;

use super::{Definition, MOST, Row, Steps, bits, nothing};
use crate::order::Stream;

/// Bits of a vector.
const BITS: usize = 6;
/// Vectors of an item.
const VECTORS: usize = 3;
/// The channel that says: an item begins.
const ITEM: usize = BITS;
/// The channel that says: the question begins, or ends.
const QUERY: usize = BITS + 1;

pub(super) const DEFINITION: Definition = Definition {
    name: "associative_recall",
    inputs: BITS + 2,
    outputs: BITS,
    unit: "items",
    sizes: (2, 6),
    // One item of sixteen at most, so that a new one is soon found.
    limits: (2, MOST),
    common: nothing,
    row,
};

fn row(stream: &mut Stream, size: usize, _: usize) -> Row {
    let mut items: Vec<Vec<f32>> = Vec::with_capacity(size);
    let mut taken = HashSet::with_capacity(size);
    while items.len() < size {
        let item = bits(stream, BITS * VECTORS);
        // A repeated item would have two right answers.
        if taken.insert(item.iter().map(|bit| bit.to_bits()).collect::<Vec<_>>()) {
            items.push(item);
        }
    }
    let asked = stream.below(size - 1);
    let mut steps = Steps::new(DEFINITION.inputs, DEFINITION.outputs);
    let show = |steps: &mut Steps, mark: usize, item: &[f32]| {
        steps.show(&[], &[(mark, 1.0)]);
        item.chunks(BITS).for_each(|vector| steps.show(vector, &[]));
    };
    for item in &items {
        show(&mut steps, ITEM, item);
    }
    show(&mut steps, QUERY, &items[asked]);
    steps.show(&[], &[(QUERY, 1.0)]);
    items[asked + 1].chunks(BITS).for_each(|vector| steps.ask(vector));
    steps.finish()
}
