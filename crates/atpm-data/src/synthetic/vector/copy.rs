//! Copy: a list of vectors, an end mark, then the list again.

use super::{Definition, MOST, Row, Steps, bits, nothing};
use crate::order::Stream;

/// Bits of a vector.
const BITS: usize = 8;

pub(super) const DEFINITION: Definition = Definition {
    name: "copy",
    inputs: BITS + 1,
    outputs: BITS,
    unit: "vectors",
    sizes: (5, 20),
    limits: (1, MOST),
    common: nothing,
    row,
};

fn row(stream: &mut Stream, size: usize, _: usize) -> Row {
    let list: Vec<Vec<f32>> = (0..size).map(|_| bits(stream, BITS)).collect();
    let mut steps = Steps::new(DEFINITION.inputs, DEFINITION.outputs);
    for vector in &list {
        steps.show(vector, &[]);
    }
    steps.show(&[], &[(BITS, 1.0)]);
    for vector in &list {
        steps.ask(vector);
    }
    steps.finish()
}
