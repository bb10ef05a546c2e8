//! SwiGLU on one packed projection: `out = silu(x[.., :F]) ⊙ x[.., F:]`.
//!
//! Shapes: `x [.., 2F]` (gate `g` first, then up `u`), `out [.., F]`; leading dimensions are rows.
//! dtype f32 (f64 in tests). With `σ = sigmoid(g)`:
//!
//! ```text
//! out = g·σ ⊙ u        dg = dout ⊙ u ⊙ σ(1 + g(1 − σ))        du = dout ⊙ g·σ
//! ```
//!
//! Saved for backward: nothing but `x`. Backward gives `out` once more, since whoever needs it again then (for the
//! gradient of the projection that follows) gets it from the same pass over memory; on CUDA, from a launch of its own.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use crate::cuda::{stream_of, with_activation};
use crate::elements::{Element, expect_shape, read_all, real_dtype, tensor, with_real};
use crate::vector::unset;
use crate::{Error, Result};

const OP: &str = "swiglu";

/// `out [.., F]` of `x [.., 2F]` (gate first, then up).
///
/// # Errors
/// Shapes or dtypes that do not fit, a device without an implementation.
pub fn forward(x: &Tensor) -> Result<Tensor> {
    let shape = halved(x)?;
    if let Some(stream) = stream_of(x)? {
        return with_activation!(OP, x, T => cuda::forward::<T>(&stream, x, shape));
    }
    with_real!(real_dtype(OP, &[x])?, T => forward_as::<T>(x, shape))
}

fn forward_as<T: Element>(x: &Tensor, shape: Vec<usize>) -> Result<Tensor> {
    let mut out = unset::<T>(x.elem_count() / 2);
    read_all(OP, [x], |[x]| {
        cpu::forward(x, last(&shape), &mut out);
        Ok(())
    })?;
    tensor(out, shape)
}

/// `(dx [.., 2F], out [.., F])` of `dout [.., F]`.
///
/// # Errors
/// As [`forward`].
pub fn backward(x: &Tensor, dout: &Tensor) -> Result<(Tensor, Tensor)> {
    let shape = halved(x)?;
    expect_shape(OP, "dout", dout, &shape, "[.., F]")?;
    if let Some(stream) = stream_of(x)? {
        return with_activation!(OP, x, T => {
            let dx = cuda::backward::<T>(&stream, x, dout, last(&shape))?;
            Ok((dx, cuda::forward::<T>(&stream, x, shape)?))
        });
    }
    with_real!(real_dtype(OP, &[x, dout])?, T => backward_as::<T>(x, dout, last(&shape)))
}

fn backward_as<T: Element>(x: &Tensor, dout: &Tensor, width: usize) -> Result<(Tensor, Tensor)> {
    let (mut dx, mut out) = (unset::<T>(x.elem_count()), unset::<T>(dout.elem_count()));
    read_all(OP, [x, dout], |[x, dout]| {
        cpu::backward(x, dout, width, &mut dx, &mut out);
        Ok(())
    })?;
    Ok((tensor(dx, x.shape())?, tensor(out, dout.shape())?))
}

/// The shape of `x` with half its last dimension.
fn halved(x: &Tensor) -> Result<Vec<usize>> {
    let mut shape = x.dims().to_vec();
    match shape.last_mut() {
        Some(width) if *width % 2 == 0 => *width /= 2,
        _ => {
            return Err(Error::Shape {
                op: OP,
                argument: "x",
                got: shape,
                expected: "[.., 2F], an even last dimension".into(),
            });
        }
    }
    Ok(shape)
}

fn last(shape: &[usize]) -> usize {
    shape.last().copied().unwrap_or(0)
}
