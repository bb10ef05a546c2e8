//! The three products on a GPU, by its vendor's library.

use candle_core::Tensor;

use super::cpu::Sizes;
use super::{OP, with_last};
use crate::Result;
use crate::cuda::{Buffer, Operand, Product, Stream};
use crate::vector::Precision;

pub(super) fn forward(
    stream: &Stream,
    Sizes { rows, inputs, outputs }: Sizes,
    x: &Tensor,
    weight: &Tensor,
    precision: Precision,
) -> Result<Tensor> {
    let mut y = stream.unset(rows * outputs)?;
    let [input, weight] = stream.read_all(OP, [x, weight])?;
    let (a, b) = (Operand::of(&input), Operand::of(&weight).t());
    let (inner, columns) = (inputs, outputs);
    stream.product(Product { rows, inner, columns, a, b, c: &mut y, c_first: 0, keep: 0.0, precision })?;
    stream.tensor(y, with_last(x, outputs))
}

pub(super) fn backward_input(
    stream: &Stream,
    sizes: Sizes,
    weight: &Tensor,
    dy: &Tensor,
    precision: Precision,
) -> Result<Tensor> {
    let mut dx = stream.unset(sizes.rows * sizes.inputs)?;
    input_product(stream, sizes, weight, dy, &mut dx, 0.0, precision)?;
    stream.tensor(dx, with_last(dy, sizes.inputs))
}

pub(super) fn backward_input_add(
    stream: &Stream,
    sizes: Sizes,
    weight: &Tensor,
    dy: &Tensor,
    dx: &Tensor,
    precision: Precision,
) -> Result<()> {
    input_product(stream, sizes, weight, dy, &mut stream.in_place(OP, dx)?, 1.0, precision)
}

/// `dx ← keep·dx + dy W`.
fn input_product(
    stream: &Stream,
    Sizes { rows, inputs, outputs }: Sizes,
    weight: &Tensor,
    dy: &Tensor,
    dx: &mut Buffer<f32>,
    keep: f32,
    precision: Precision,
) -> Result<()> {
    let [weight, dy] = stream.read_all(OP, [weight, dy])?;
    let (a, b) = (Operand::of(&dy), Operand::of(&weight));
    stream.product(Product {
        rows,
        inner: outputs,
        columns: inputs,
        a,
        b,
        c: dx,
        c_first: 0,
        keep,
        precision,
    })
}

pub(super) fn backward_weight(
    stream: &Stream,
    Sizes { rows, inputs, outputs }: Sizes,
    x: &Tensor,
    dy: &Tensor,
    dweight: &Tensor,
    precision: Precision,
) -> Result<()> {
    let [x, dy] = stream.read_all(OP, [x, dy])?;
    let (a, b) = (Operand::of(&dy).t(), Operand::of(&x));
    let c = &mut stream.in_place(OP, dweight)?;
    stream.product(Product {
        rows: outputs,
        inner: rows,
        columns: inputs,
        a,
        b,
        c,
        c_first: 0,
        keep: 1.0,
        precision,
    })
}
