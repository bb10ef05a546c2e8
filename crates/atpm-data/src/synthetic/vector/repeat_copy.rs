//! Repeat copy: a list of vectors, an end mark with the number of repeats, the list as often, then an end mark to be given.
//!
//! The number is shown on a channel of its own, less its mean and divided by its deviation, as in the paper.

use super::{Definition, MOST, Row, Steps, bits};
use crate::order::Stream;

/// Bits of a vector.
const BITS: usize = 8;
/// Most repeats; the fewest are one.
const REPEATS: usize = 10;

pub(super) const DEFINITION: Definition = Definition {
    name: "repeat_copy",
    inputs: BITS + 2,
    outputs: BITS + 1,
    unit: "vectors",
    sizes: (1, 10),
    limits: (1, MOST),
    common: |stream| 1 + stream.below(REPEATS),
    row,
};

fn row(stream: &mut Stream, size: usize, repeats: usize) -> Row {
    let list: Vec<Vec<f32>> = (0..size).map(|_| bits(stream, BITS)).collect();
    let mut steps = Steps::new(DEFINITION.inputs, DEFINITION.outputs);
    for vector in &list {
        steps.show(vector, &[]);
    }
    steps.show(&[], &[(BITS, 1.0), (BITS + 1, shown(repeats))]);
    for vector in (0..repeats).flat_map(|_| &list) {
        steps.ask(vector);
    }
    let mut end = vec![0.0; BITS];
    end.push(1.0);
    steps.ask(&end);
    steps.finish()
}

/// A number of repeats as it is shown: uniform on `1..=REPEATS` has mean `(n+1)/2` and variance `(n²−1)/12`.
pub(super) fn shown(repeats: usize) -> f32 {
    let n = REPEATS as f64;
    let deviation = ((n * n - 1.0) / 12.0).sqrt();
    ((repeats as f64 - f64::midpoint(n, 1.0)) / deviation) as f32
}
