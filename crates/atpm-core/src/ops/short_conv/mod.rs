//! Depthwise causal convolution over time (width W, 4 by default), then SiLU; it never crosses a document start.
//!
//! Shapes: `x`, `y` `[B,T,C]`, `w [C,W]`, states `[B,W−1,C]` (oldest first). dtype f32 (f64 in tests),
//! accumulated in the same. Inputs before the row come from the state; inputs of another document
//! count as zero, as all of the state does once a document has begun in the row:
//!
//! ```text
//! pre_t  = Σ_j w_j ⊙ x_{t−W+1+j}        y = silu(pre)        final = x_{T−W+1} … x_{T−1}
//! dpre_t = dy_t ⊙ σ(1 + pre(1 − σ)), σ = sigmoid(pre)
//! dx_u   = Σ_j w_j ⊙ dpre_{u+W−1−j}     dw_j += Σ_t dpre_t ⊙ x_{t−W+1+j}
//! ```
//!
//! Saved for backward: nothing but the inputs; `pre` is computed again.

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use crate::cuda::{stream_of, with_activation};
use crate::elements::{Element, expect_shape, read_all, real_dtype, tensor, update, with_real};
use crate::vector::unset;
use crate::{Error, Result, Segments};

const OP: &str = "short_conv";

/// The largest width; the kernel is compiled once for each width from 2 to this.
pub const MAX_WIDTH: usize = 8;

/// `y [B,T,C]` and the final state `[B,W−1,C]` (the last W−1 inputs that the next token may see; zeros
/// where a document began less than W−1 tokens ago) of `x [B,T,C]`, `weight [C,W]`, `state [B,W−1,C]`
/// (oldest first; zeros when absent).
///
/// # Errors
/// Shapes or dtypes that do not fit, a width outside 2 to 8, a device without an implementation.
pub fn forward(
    x: &Tensor,
    weight: &Tensor,
    state: Option<&Tensor>,
    segments: &Segments,
) -> Result<(Tensor, Tensor)> {
    let sizes = Sizes::check(x, weight, segments)?;
    sizes.check_state("state", state)?;
    if let Some(stream) = stream_of(x)? {
        return with_activation!(OP, x, T => {
            cuda::forward::<T>(&stream, (x, weight, state), segments, sizes)
        });
    }
    let dtype = real_dtype(OP, &[x, weight, state.unwrap_or(x)])?;
    with_real!(dtype, T => forward_as::<T>(x, weight, state, segments, sizes))
}

fn forward_as<T: Element>(
    x: &Tensor,
    weight: &Tensor,
    state: Option<&Tensor>,
    segments: &Segments,
    sizes: Sizes,
) -> Result<(Tensor, Tensor)> {
    let (mut y, mut last) = (unset::<T>(x.elem_count()), unset::<T>(sizes.state_elements()));
    read_all(OP, [x, weight, state.unwrap_or(x)], |[x, weight, given]| {
        let state = state.map(|_| given);
        cpu::forward(&cpu::Inputs { x, weight, state, segments, sizes }, &mut y, &mut last);
        Ok(())
    })?;
    Ok((tensor(y, x.shape())?, tensor(last, &sizes.state_shape())?))
}

/// `(dx, dstate)`; `dfinal [B,W−1,C]` is the final state's gradient if it has one; adds to `dweight [C,W]`.
/// `dstate` is zero-filled when no state was given.
///
/// # Errors
/// As [`forward`].
pub fn backward(
    x: &Tensor,
    weight: &Tensor,
    state: Option<&Tensor>,
    segments: &Segments,
    dy: &Tensor,
    dfinal: Option<&Tensor>,
    dweight: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let sizes = Sizes::check(x, weight, segments)?;
    sizes.check_state("state", state)?;
    sizes.check_state("dfinal", dfinal)?;
    expect_shape(OP, "dy", dy, x.dims(), "[B,T,C]")?;
    expect_shape(OP, "dweight", dweight, weight.dims(), "[C,W]")?;
    let inputs = (x, weight, state);
    if let Some(stream) = stream_of(x)? {
        return with_activation!(OP, x, T => {
            cuda::backward::<T>(&stream, inputs, segments, sizes, dy, dfinal, dweight)
        });
    }
    let dtype = real_dtype(OP, &[x, weight, state.unwrap_or(x), dy, dfinal.unwrap_or(x), dweight])?;
    with_real!(dtype, T => backward_as::<T>(inputs, segments, sizes, dy, dfinal, dweight))
}

fn backward_as<T: Element>(
    (x, weight, state): (&Tensor, &Tensor, Option<&Tensor>),
    segments: &Segments,
    sizes: Sizes,
    dy: &Tensor,
    dfinal: Option<&Tensor>,
    dweight: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let (mut dx, mut dstate) = (unset::<T>(x.elem_count()), unset::<T>(sizes.state_elements()));
    let tensors = [x, weight, state.unwrap_or(x), dy, dfinal.unwrap_or(x)];
    read_all(OP, tensors, |[x, weight, given, dy, last]| {
        let inputs = cpu::Inputs { x, weight, state: state.map(|_| given), segments, sizes };
        let gradients = cpu::OutputGradients { dy, dfinal: dfinal.map(|_| last) };
        update(OP, dweight, |dweight| {
            cpu::backward(&inputs, &gradients, &mut dx, &mut dstate, dweight);
            Ok(())
        })
    })?;
    Ok((tensor(dx, x.shape())?, tensor(dstate, &sizes.state_shape())?))
}

/// `B`, `T`, `C` and `W`.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    tokens: usize,
    channels: usize,
    width: usize,
}

impl Sizes {
    fn check(x: &Tensor, weight: &Tensor, segments: &Segments) -> Result<Self> {
        let &[batch, tokens, channels] = x.dims() else {
            let got = x.dims().to_vec();
            return Err(Error::Shape { op: OP, argument: "x", got, expected: "[B,T,C]".into() });
        };
        let width = weight.dims().last().copied().unwrap_or(0);
        expect_shape(OP, "weight", weight, &[channels, width], "[C,W]")?;
        if !(2..=MAX_WIDTH).contains(&width) {
            let problem = format!("the width must be from 2 to {MAX_WIDTH}, got {width}");
            return Err(Error::Argument { op: OP, problem });
        }
        if (segments.batch(), segments.tokens()) != (batch, tokens) {
            let (rows, length) = (segments.batch(), segments.tokens());
            let problem =
                format!("document starts are for {rows}×{length} tokens, but x has {batch}×{tokens}");
            return Err(Error::Argument { op: OP, problem });
        }
        Ok(Self { batch, tokens, channels, width })
    }

    fn check_state(&self, argument: &'static str, state: Option<&Tensor>) -> Result<()> {
        state.map_or(Ok(()), |state| expect_shape(OP, argument, state, &self.state_shape(), "[B,W−1,C]"))
    }

    fn state_shape(&self) -> [usize; 3] {
        [self.batch, self.width - 1, self.channels]
    }

    fn state_elements(&self) -> usize {
        self.state_shape().iter().product()
    }
}
