//! The three products on a GPU, by its vendor's library.
//!
//! With activations in bf16, factors are bf16 and results what they are stored in: bf16, gradients of weights f32.
//! Forward in [`Precision::F32`] widens `x` instead, and its result is f32.

use candle_core::{DType, Tensor};
use half::bf16;

use super::cpu::Sizes;
use super::{OP, with_last};
use crate::Result;
use crate::cuda::{Activation, Operand, Product, Stream, Target};
use crate::vector::Precision;

pub(super) fn forward(
    stream: &Stream,
    sizes: Sizes,
    x: &Tensor,
    weight: &Tensor,
    precision: Precision,
) -> Result<Tensor> {
    if x.dtype() == DType::BF16 && precision == Precision::Bf16 {
        let (x_buffer, weight) = (stream.read::<bf16>(OP, x)?, stream.read_as::<bf16>(OP, weight)?);
        let factors = [Operand::of(&x_buffer), Operand::of(&weight).t()];
        return output::<bf16>(stream, sizes, x, factors, precision);
    }
    let (x_buffer, weight) = (stream.read_as::<f32>(OP, x)?, stream.read::<f32>(OP, weight)?);
    output::<f32>(stream, sizes, x, [Operand::of(&x_buffer), Operand::of(&weight).t()], precision)
}

/// `y = A B`, as a tensor of `x`'s leading dimensions.
fn output<T: Activation>(
    stream: &Stream,
    Sizes { rows, inputs, outputs }: Sizes,
    x: &Tensor,
    [a, b]: [Operand<'_>; 2],
    precision: Precision,
) -> Result<Tensor> {
    let mut y = stream.unset::<T>(rows * outputs)?;
    let c = Target::of(&mut y);
    stream.product(Product { rows, inner: inputs, columns: outputs, a, b, c, keep: 0.0, precision })?;
    stream.tensor(y, with_last(x, outputs))
}

/// `T`: what `dy` is stored in.
pub(super) fn backward_input<T: Activation>(
    stream: &Stream,
    sizes: Sizes,
    weight: &Tensor,
    dy: &Tensor,
    precision: Precision,
) -> Result<Tensor> {
    let mut dx = stream.unset::<T>(sizes.rows * sizes.inputs)?;
    input_product::<T>(stream, sizes, weight, dy, Target::of(&mut dx), 0.0, precision)?;
    stream.tensor(dx, with_last(dy, sizes.inputs))
}

/// `T`: what `dx` is stored in.
pub(super) fn backward_input_add<T: Activation>(
    stream: &Stream,
    sizes: Sizes,
    weight: &Tensor,
    dy: &Tensor,
    dx: &Tensor,
    precision: Precision,
) -> Result<()> {
    let mut dx = stream.in_place::<T>(OP, dx)?;
    input_product::<T>(stream, sizes, weight, dy, Target::of(&mut dx), 1.0, precision)
}

/// `dx ← keep·dx + dy W`, of factors in `T`.
fn input_product<T: Activation>(
    stream: &Stream,
    Sizes { rows, inputs, outputs }: Sizes,
    weight: &Tensor,
    dy: &Tensor,
    c: Target<'_>,
    keep: f32,
    precision: Precision,
) -> Result<()> {
    let (weight, dy) = (stream.read_as::<T>(OP, weight)?, stream.read_as::<T>(OP, dy)?);
    let (a, b) = (Operand::of(&dy), Operand::of(&weight));
    stream.product(Product { rows, inner: outputs, columns: inputs, a, b, c, keep, precision })
}

/// `T`: what `x` is stored in.
pub(super) fn backward_weight<T: Activation>(
    stream: &Stream,
    Sizes { rows, inputs, outputs }: Sizes,
    x: &Tensor,
    dy: &Tensor,
    dweight: &Tensor,
    precision: Precision,
) -> Result<()> {
    let (x, dy) = (stream.read::<T>(OP, x)?, stream.read_as::<T>(OP, dy)?);
    let (a, b) = (Operand::of(&dy).t(), Operand::of(&x));
    let mut dweight = stream.in_place::<f32>(OP, dweight)?;
    let c = Target::of(&mut dweight);
    stream.product(Product { rows: outputs, inner: rows, columns: inputs, a, b, c, keep: 1.0, precision })
}
