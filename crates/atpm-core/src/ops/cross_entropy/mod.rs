//! Output projection and cross-entropy in one op, over blocks of tokens: `[tokens × vocabulary]`
//! never exists whole.
//!
//! Shapes: `x [N, D]`, `W [V, D]`, targets `[N]` (u32), losses `[N]`. dtype f32 (f64 in tests); sums
//! of exponentials are carried on in f64. With logits `l = x Wᵀ`, `lse = ln Σ_v exp(l_v)`,
//! `p = softmax(l)` and `s` the scale:
//!
//! ```text
//! loss = lse − l_target        G = s·((1 + 2·z·lse) p − onehot(target))
//! dx   = G W                   dW += Gᵀ x
//! ```
//!
//! Targets are on the host for every device. A token whose target is [`IGNORE`] has loss 0 and `G = 0`. Saved for backward: nothing, since
//! loss and gradient come from one pass, in which the logits of a block become `G` in place.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

pub use cpu::TOKENS_PER_BLOCK;

use candle_core::{DType, Tensor};

use crate::cuda::{stream_of, with_activation};
use crate::elements::{Element, expect_shape, read, read_all, real_dtype, tensor, update, with_real};
use crate::vector::{Precision, unset};
use crate::{Error, Result};

const OP: &str = "cross_entropy";

/// The target that counts for nothing (document boundaries, padding).
pub const IGNORE: u32 = u32::MAX;

/// How the loss is computed, and what it is made of besides the target's log-probability.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Options {
    /// What the operands of the matrix products are rounded to.
    pub precision: Precision,
    /// Weight of `lse²` added to each token's loss (z-loss; 0 = off). Not part of the reported token losses.
    pub z_loss: f64,
}

/// Token losses in nats `[N]` (0 where the target is [`IGNORE`]; the dtype of `x`) of `x [N, D]`,
/// `weight [V, D]`, `targets [N]` (u32).
///
/// # Errors
/// A target ≥ V other than [`IGNORE`], shapes or dtypes that do not fit, a device without an implementation.
pub fn forward(x: &Tensor, weight: &Tensor, targets: &Tensor, precision: Precision) -> Result<Tensor> {
    let sizes = check(x, weight, targets)?;
    if let Some(stream) = stream_of(x)? {
        return with_activation!(OP, x, T => {
            cuda::forward::<T>(&stream, [x, weight, targets], sizes, precision)
        });
    }
    with_real!(real_dtype(OP, &[x, weight])?, T => forward_as::<T>(x, weight, targets, sizes, precision))
}

fn forward_as<T: Element>(
    x: &Tensor,
    weight: &Tensor,
    targets: &Tensor,
    sizes: Sizes,
    precision: Precision,
) -> Result<Tensor> {
    let mut losses = unset::<T>(sizes.tokens);
    read(OP, targets, |targets: &[u32]| {
        read_all(OP, [x, weight], |[x, weight]| {
            cpu::forward(&cpu::Inputs { x, weight, targets, sizes, precision }, &mut losses);
            Ok(())
        })
    })?;
    tensor(losses, sizes.tokens)
}

/// Token losses, and the gradient `dx [N, D]` of `scale · Σ_tokens (loss + z_loss·lse²)`; adds to `dweight [V, D]`.
/// One pass: the logits of a block are made once, used for the loss and turned into their gradient in place.
///
/// # Errors
/// As [`forward`].
pub fn forward_backward(
    x: &Tensor,
    weight: &Tensor,
    targets: &Tensor,
    scale: f64,
    options: Options,
    dweight: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let sizes = check(x, weight, targets)?;
    expect_shape(OP, "dweight", dweight, weight.dims(), "[V, D]")?;
    if let Some(stream) = stream_of(x)? {
        return with_activation!(OP, x, T => {
            cuda::forward_backward::<T>(&stream, [x, weight, targets], sizes, options, scale, dweight)
        });
    }
    let dtype = real_dtype(OP, &[x, weight, dweight])?;
    with_real!(dtype, T => {
        forward_backward_as::<T>(x, weight, targets, sizes, options, scale, dweight)
    })
}

fn forward_backward_as<T: Element>(
    x: &Tensor,
    weight: &Tensor,
    targets: &Tensor,
    sizes: Sizes,
    Options { precision, z_loss }: Options,
    scale: f64,
    dweight: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let objective = cpu::Objective { scale, z_loss };
    let (mut losses, mut dx) = (unset::<T>(sizes.tokens), unset::<T>(x.elem_count()));
    read(OP, targets, |targets: &[u32]| {
        read_all(OP, [x, weight], |[x, weight]| {
            let inputs = cpu::Inputs { x, weight, targets, sizes, precision };
            update(OP, dweight, |dweight| {
                cpu::forward_backward(&inputs, objective, &mut losses, &mut dx, dweight);
                Ok(())
            })
        })
    })?;
    Ok((tensor(losses, sizes.tokens)?, tensor(dx, x.shape())?))
}

/// `N`, `D` and `V`.
#[derive(Clone, Copy)]
struct Sizes {
    tokens: usize,
    width: usize,
    vocabulary: usize,
}

fn check(x: &Tensor, weight: &Tensor, targets: &Tensor) -> Result<Sizes> {
    let &[tokens, width] = x.dims() else {
        let got = x.dims().to_vec();
        return Err(Error::Shape { op: OP, argument: "x", got, expected: "[N, D]".into() });
    };
    let vocabulary = weight.dims().first().copied().unwrap_or(0);
    expect_shape(OP, "weight", weight, &[vocabulary, width], "[V, D]")?;
    expect_shape(OP, "targets", targets, &[tokens], "[N]")?;
    if targets.dtype() != DType::U32 {
        return Err(Error::Dtype { op: OP, got: format!("{:?}", targets.dtype()), expected: "u32 targets" });
    }
    read(OP, targets, |targets: &[u32]| check_targets(targets, vocabulary))?;
    Ok(Sizes { tokens, width, vocabulary })
}

fn check_targets(targets: &[u32], rows: usize) -> Result<()> {
    match targets.iter().position(|&id| id != IGNORE && id as usize >= rows) {
        Some(position) => Err(Error::IdOutOfRange { op: OP, id: targets[position], position, rows }),
        None => Ok(()),
    }
}
