//! RMSNorm per head times a SiLU gate: `out = y / √(mean_head(y²) + ε) ⊙ w ⊙ silu(z)`.
//!
//! Shapes: `y`, `z` (the gate) and `out` `[.., H·D]`, `w [D]` shared by the heads. dtype f32 (f64 in
//! tests), accumulated in the same. With `i = 1/√(mean_head(y²) + ε)`, `σ = sigmoid(z)`, `g = z·σ` and
//! `u = w ⊙ g ⊙ dout`, per head:
//!
//! ```text
//! out = i·y ⊙ w ⊙ g                     dz = dout ⊙ i·y ⊙ w ⊙ σ(1 + z(1 − σ))
//! dy  = i·u − (i³/D)(u·y) y             dw += Σ i·y ⊙ g ⊙ dout
//! ```
//!
//! Saved for backward: nothing but `y`, `z` and `w`. Backward gives `out` once more, as SwiGLU's does.

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

const OP: &str = "gated_norm";

/// `out [.., H·D]` of `y [.., H·D]`, `gate [.., H·D]`, `weight [D]` (shared by the heads).
///
/// # Errors
/// Shapes or dtypes that do not fit, a device without an implementation.
pub fn forward(y: &Tensor, gate: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    check_shapes(y, gate, weight)?;
    if let Some(stream) = stream_of(y)? {
        return with_activation!(OP, y, T => cuda::forward::<T>(&stream, y, gate, weight, eps));
    }
    with_real!(real_dtype(OP, &[y, gate, weight])?, T => forward_as::<T>(y, gate, weight, eps))
}

fn forward_as<T: Element>(y: &Tensor, gate: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let mut out = unset::<T>(y.elem_count());
    read_all(OP, [y, gate, weight], |[y, gate, weight]| {
        cpu::forward(y, gate, weight, eps, &mut out);
        Ok(())
    })?;
    tensor(out, y.shape())
}

/// `(dy, dgate, out)`; adds to `dweight [D]`.
///
/// # Errors
/// As [`forward`].
pub fn backward(
    y: &Tensor,
    gate: &Tensor,
    weight: &Tensor,
    eps: f64,
    dout: &Tensor,
    dweight: &Tensor,
) -> Result<(Tensor, Tensor, Tensor)> {
    check_shapes(y, gate, weight)?;
    expect_shape(OP, "dout", dout, y.dims(), "[.., H·D]")?;
    expect_shape(OP, "dweight", dweight, weight.dims(), "[D]")?;
    if let Some(stream) = stream_of(y)? {
        return with_activation!(OP, y, T => {
            let (dy, dgate) = cuda::backward::<T>(&stream, [y, gate, weight, dout], eps, dweight)?;
            Ok((dy, dgate, cuda::forward::<T>(&stream, y, gate, weight, eps)?))
        });
    }
    let dtype = real_dtype(OP, &[y, gate, weight, dout, dweight])?;
    with_real!(dtype, T => backward_as::<T>(y, gate, weight, eps, dout, dweight))
}

fn backward_as<T: Element>(
    y: &Tensor,
    gate: &Tensor,
    weight: &Tensor,
    eps: f64,
    dout: &Tensor,
    dweight: &Tensor,
) -> Result<(Tensor, Tensor, Tensor)> {
    let [mut dy, mut dgate, mut out] = [0; 3].map(|_| unset::<T>(y.elem_count()));
    read_all(OP, [y, gate, weight, dout], |[y, gate, weight, dout]| {
        let inputs = cpu::Backward { y, gate, weight, eps, dout };
        update(OP, dweight, |dweight| {
            cpu::backward(&inputs, cpu::Outputs { dy: &mut dy, dgate: &mut dgate, out: &mut out }, dweight);
            Ok(())
        })
    })?;
    Ok((tensor(dy, y.shape())?, tensor(dgate, y.shape())?, tensor(out, y.shape())?))
}

fn check_shapes(y: &Tensor, gate: &Tensor, weight: &Tensor) -> Result<()> {
    let &[width] = weight.dims() else {
        let got = weight.dims().to_vec();
        return Err(Error::Shape { op: OP, argument: "weight", got, expected: "[D]".into() });
    };
    if !y.dims().last().is_some_and(|&last| width > 0 && last % width == 0) {
        let expected = format!("[.., H·D], a multiple of D = {width}");
        return Err(Error::Shape { op: OP, argument: "y", got: y.dims().to_vec(), expected });
    }
    expect_shape(OP, "gate", gate, y.dims(), "[.., H·D]")
}
