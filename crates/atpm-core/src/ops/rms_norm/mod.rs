//! RMSNorm: `y = x / √(mean(x²) + ε) ⊙ w`.
//!
//! Shapes: `x [.., D]`, `w [D]`, `y [.., D]`; leading dimensions are rows. dtype f32 (f64 in tests),
//! accumulated in the same. With `i = 1/√(mean(x²) + ε)` and `u = w ⊙ dy`, per row:
//!
//! ```text
//! y = i·x ⊙ w        dx = i·u − (i³/D)(u·x) x        dw += Σ_rows i·x ⊙ dy
//! ```
//!
//! Saved for backward: nothing but `x` and `w`; `i` costs less to compute again than to read.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use crate::cuda::{stream_of, with_activation};
use crate::elements::{Element, expect_shape, read_all, real_dtype, tensor, update, with_real};
use crate::vector::unset;
use crate::{Error, Result};

const OP: &str = "rms_norm";

/// `y [.., D]` of `x [.., D]`, `weight [D]`.
///
/// # Errors
/// Shapes or dtypes that do not fit, a device without an implementation.
pub fn forward(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    check_shapes(x, weight)?;
    if let Some(stream) = stream_of(x)? {
        return with_activation!(OP, x, T => cuda::forward::<T>(&stream, x, weight, eps));
    }
    with_real!(real_dtype(OP, &[x, weight])?, T => forward_as::<T>(x, weight, eps))
}

fn forward_as<T: Element>(x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let mut y = unset::<T>(x.elem_count());
    read_all(OP, [x, weight], |[x, weight]| {
        cpu::forward(x, weight, eps, &mut y);
        Ok(())
    })?;
    tensor(y, x.shape())
}

/// `dx [.., D]`, with `residual [.., D]` (the gradient that bypasses the norm) added to it when given;
/// adds to `dweight [D]`.
///
/// # Errors
/// As [`forward`].
pub fn backward(
    x: &Tensor,
    weight: &Tensor,
    eps: f64,
    dy: &Tensor,
    residual: Option<&Tensor>,
    dweight: &Tensor,
) -> Result<Tensor> {
    check_shapes(x, weight)?;
    expect_shape(OP, "dy", dy, x.dims(), "[.., D]")?;
    expect_shape(OP, "dweight", dweight, weight.dims(), "[D]")?;
    let bypass = residual.unwrap_or(dy);
    expect_shape(OP, "residual", bypass, x.dims(), "[.., D]")?;
    if let Some(stream) = stream_of(x)? {
        return with_activation!(OP, x, T => {
            cuda::backward::<T>(&stream, x, weight, eps, dy, residual, dweight)
        });
    }
    let dtype = real_dtype(OP, &[x, weight, dy, bypass, dweight])?;
    with_real!(dtype, T => backward_as::<T>(x, weight, eps, dy, residual, dweight))
}

fn backward_as<T: Element>(
    x: &Tensor,
    weight: &Tensor,
    eps: f64,
    dy: &Tensor,
    residual: Option<&Tensor>,
    dweight: &Tensor,
) -> Result<Tensor> {
    let mut dx = unset::<T>(x.elem_count());
    read_all(OP, [x, weight, dy, residual.unwrap_or(dy)], |[x, weight, dy, bypass]| {
        let inputs = cpu::Backward { x, weight, eps, dy, residual: residual.map(|_| bypass) };
        update(OP, dweight, |dweight| {
            cpu::backward(&inputs, &mut dx, dweight);
            Ok(())
        })
    })?;
    tensor(dx, x.shape())
}

fn check_shapes(x: &Tensor, weight: &Tensor) -> Result<()> {
    let Some(&width) = x.dims().last() else {
        return Err(Error::Shape { op: OP, argument: "x", got: vec![], expected: "[.., D]".into() });
    };
    expect_shape(OP, "weight", weight, &[width], "[D]")
}
