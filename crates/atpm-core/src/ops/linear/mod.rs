//! `y = x Wᵀ`, without bias: matrix products with strides and accumulation.
//!
//! Shapes: `x [.., K]`, `W [N, K]`, `y [.., N]`; leading dimensions are rows. dtype f32 (f64 in
//! tests), accumulated in the same; with [`Precision::Bf16`] the operands of each product are rounded first.
//!
//! ```text
//! y  = x Wᵀ        dx = dy W        dW += dyᵀ x
//! ```
//!
//! Saved for backward: nothing but `x` and `W` themselves. The three products are three functions,
//! because a layer with several projections of one input sums their `dx` in one buffer.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use crate::cuda::{stream_of, with_activation};
use crate::elements::{Element, expect_shape, read_all, real_dtype, tensor, update, with_real};
use crate::vector::{Precision, unset};
use crate::{Error, Result};
use cpu::Sizes;

const OP: &str = "linear";

/// `y [.., N] = x [.., K] · Wᵀ`, `W [N, K]`.
///
/// # Errors
/// Shapes or dtypes that do not fit, a device without an implementation.
pub fn forward(x: &Tensor, weight: &Tensor, precision: Precision) -> Result<Tensor> {
    let (outputs, inputs) = weight_dims(weight)?;
    let sizes = sizes("x", x, inputs, outputs, inputs)?;
    if let Some(stream) = stream_of(x)? {
        return cuda::forward(&stream, sizes, x, weight, precision);
    }
    with_real!(real_dtype(OP, &[x, weight])?, T => forward_as::<T>(sizes, x, weight, precision))
}

/// The input's gradient `dx [.., K] = dy [.., N] · W`.
///
/// # Errors
/// As [`forward`].
pub fn backward_input(weight: &Tensor, dy: &Tensor, precision: Precision) -> Result<Tensor> {
    let (outputs, inputs) = weight_dims(weight)?;
    let sizes = sizes("dy", dy, outputs, outputs, inputs)?;
    if let Some(stream) = stream_of(dy)? {
        return with_activation!(OP, dy, T => {
            cuda::backward_input::<T>(&stream, sizes, weight, dy, precision)
        });
    }
    with_real!(real_dtype(OP, &[dy, weight])?, T => backward_input_as::<T>(sizes, weight, dy, precision))
}

/// Adds `dy · W` to an existing input gradient `dx [.., K]`, in place: for inputs that several
/// projections read.
///
/// # Errors
/// As [`forward`].
pub fn backward_input_add(weight: &Tensor, dy: &Tensor, dx: &Tensor, precision: Precision) -> Result<()> {
    let (outputs, inputs) = weight_dims(weight)?;
    let sizes = sizes("dy", dy, outputs, outputs, inputs)?;
    expect_shape(OP, "dx", dx, &with_last(dy, inputs), "[.., K]")?;
    if let Some(stream) = stream_of(dy)? {
        return with_activation!(OP, dx, T => {
            cuda::backward_input_add::<T>(&stream, sizes, weight, dy, dx, precision)
        });
    }
    with_real!(real_dtype(OP, &[dy, weight, dx])?, T => {
        backward_input_add_as::<T>(sizes, weight, dy, dx, precision)
    })
}

/// Adds the weight's gradient `dyᵀ x` to `dweight [N, K]`, in place.
///
/// # Errors
/// As [`forward`].
pub fn backward_weight(x: &Tensor, dy: &Tensor, dweight: &Tensor, precision: Precision) -> Result<()> {
    let (outputs, inputs) = weight_dims(dweight)?;
    let sizes = sizes("x", x, inputs, outputs, inputs)?;
    expect_shape(OP, "dy", dy, &with_last(x, outputs), "[.., N]")?;
    if let Some(stream) = stream_of(x)? {
        return with_activation!(OP, x, T => {
            cuda::backward_weight::<T>(&stream, sizes, x, dy, dweight, precision)
        });
    }
    with_real!(real_dtype(OP, &[x, dy, dweight])?, T => {
        backward_weight_as::<T>(sizes, x, dy, dweight, precision)
    })
}

fn forward_as<T: Element>(sizes: Sizes, x: &Tensor, weight: &Tensor, precision: Precision) -> Result<Tensor> {
    let mut y = unset::<T>(sizes.rows * sizes.outputs);
    read_all(OP, [x, weight], |[x, weight]| {
        cpu::forward(sizes, x, weight, &mut y, precision);
        Ok(())
    })?;
    tensor(y, with_last(x, sizes.outputs))
}

fn backward_input_as<T: Element>(
    sizes: Sizes,
    weight: &Tensor,
    dy: &Tensor,
    precision: Precision,
) -> Result<Tensor> {
    let mut dx = unset::<T>(sizes.rows * sizes.inputs);
    read_all(OP, [weight, dy], |[weight, dy]| {
        cpu::backward_input(sizes, weight, dy, &mut dx, T::zero(), precision);
        Ok(())
    })?;
    tensor(dx, with_last(dy, sizes.inputs))
}

fn backward_input_add_as<T: Element>(
    sizes: Sizes,
    weight: &Tensor,
    dy: &Tensor,
    dx: &Tensor,
    precision: Precision,
) -> Result<()> {
    read_all(OP, [weight, dy], |[weight, dy]| {
        update(OP, dx, |dx| {
            cpu::backward_input(sizes, weight, dy, dx, T::one(), precision);
            Ok(())
        })
    })
}

fn backward_weight_as<T: Element>(
    sizes: Sizes,
    x: &Tensor,
    dy: &Tensor,
    dweight: &Tensor,
    precision: Precision,
) -> Result<()> {
    read_all(OP, [x, dy], |[x, dy]| {
        update(OP, dweight, |dweight: &mut [T]| {
            cpu::backward_weight(sizes, x, dy, dweight, precision);
            Ok(())
        })
    })
}

/// `(N, K)` of a weight.
fn weight_dims(weight: &Tensor) -> Result<(usize, usize)> {
    weight.dims2().map_err(|_| Error::Shape {
        op: OP,
        argument: "weight",
        got: weight.dims().to_vec(),
        expected: "[N, K]".into(),
    })
}

/// Checks that the last dimension of `argument` is `last`, and counts its rows.
fn sizes(name: &'static str, argument: &Tensor, last: usize, outputs: usize, inputs: usize) -> Result<Sizes> {
    if argument.dims().last() != Some(&last) {
        let expected = format!("[.., {last}] for a weight of [N, K] = [{outputs}, {inputs}]");
        return Err(Error::Shape { op: OP, argument: name, got: argument.dims().to_vec(), expected });
    }
    let rows = argument.dims()[..argument.rank() - 1].iter().product();
    Ok(Sizes { rows, inputs, outputs })
}

/// The dimensions of `tensor` with another last one.
fn with_last(tensor: &Tensor, last: usize) -> Vec<usize> {
    let mut dims = tensor.dims().to_vec();
    if let Some(end) = dims.last_mut() {
        *end = last;
    }
    dims
}
