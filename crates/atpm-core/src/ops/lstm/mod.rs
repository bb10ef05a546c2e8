//! LSTM (Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000): the baseline with a vector for a
//! memory.
//!
//! Shapes: `x [B,T,4d]` the input's part of the gates (input, forget, candidate, output; one product for all steps,
//! made outside), `W [4d,d]`, `bias [4,d]`, `h [B,T,d]`, states `h, c [B,d]`. dtype f32 (f64 in tests), accumulated in
//! the same. At a document's start `h` and `c` are zero.
//!
//! ```text
//! z_t = x_t + bias + W h_{t−1}        i, f, o = σ(z)      g = tanh(z)
//! c_t = f ⊙ c_{t−1} + i ⊙ g           h_t = o ⊙ tanh(c_t)
//! do = dh ⊙ tanh(c)     dc += dh ⊙ o ⊙ (1 − tanh²(c))     di = dc ⊙ g    df = dc ⊙ c_{t−1}    dg = dc ⊙ i
//! dh_{t−1} = Wᵀ dz_t    dc_{t−1} = dc ⊙ f     dW += Σ_t dz_t h_{t−1}ᵀ    dbias += Σ_t dz_t
//! ```
//!
//! Saved for backward: the gates `[B,T,4d]`, `c [B,T,d]` and `h`. Rows go through time in blocks, each on one thread
//! with its state in the cache; the weight's gradient is one product over all steps. There is no CUDA kernel.

mod cpu;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use crate::elements::{Element, expect_shape, read_all, real_dtype, tensor, update, with_real};
use crate::vector::unset;
use crate::{Result, Segments};
use cpu::Sizes;

const OP: &str = "lstm";

/// What a row's earlier tokens left behind.
#[derive(Debug, Clone)]
pub struct State {
    /// `[B,d]`.
    pub h: Tensor,
    /// `[B,d]`.
    pub c: Tensor,
}

/// What backward needs.
#[derive(Debug, Clone)]
pub struct Saved {
    /// `i, f, g, o` after their functions, `[B,T,4d]`.
    pub gates: Tensor,
    /// `[B,T,d]`.
    pub cells: Tensor,
    /// The output `[B,T,d]`.
    pub h: Tensor,
}

/// `h [B,T,d]` of `x [B,T,4d]`, `weight [4d,d]`, `bias [4,d]`, going on from `state` (zeros when absent); and what
/// backward needs.
///
/// # Errors
/// Shapes or dtypes that do not fit, a device without an implementation.
pub fn forward(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    state: Option<&State>,
    segments: &Segments,
) -> Result<(Tensor, Saved)> {
    let sizes = check(weight, segments)?;
    let Sizes { batch, tokens, width } = sizes;
    expect_shape(OP, "x", x, &[batch, tokens, 4 * width], "[B,T,4d]")?;
    expect_shape(OP, "bias", bias, &[4, width], "[4,d]")?;
    for part in state.iter().flat_map(|state| [&state.h, &state.c]) {
        expect_shape(OP, "state", part, &[batch, width], "[B,d]")?;
    }
    with_real!(real_dtype(OP, &[x, weight, bias])?, T => forward_as::<T>(sizes, x, weight, bias, state, segments))
}

fn forward_as<T: Element>(
    sizes: Sizes,
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    state: Option<&State>,
    segments: &Segments,
) -> Result<(Tensor, Saved)> {
    let Sizes { batch, tokens, width } = sizes;
    let zeros = || Tensor::zeros((batch, width), x.dtype(), x.device());
    let (h, c) = match state {
        Some(State { h, c }) => (h.clone(), c.clone()),
        None => (zeros()?, zeros()?),
    };
    let starts = segments.flags();
    let mut gates = unset::<T>(batch * tokens * 4 * width);
    let (mut cells, mut out) = (unset::<T>(batch * tokens * width), unset::<T>(batch * tokens * width));
    read_all(OP, [x, weight, bias, &h, &c], |[x, weight, bias, h, c]| {
        let inputs = cpu::Inputs { sizes, x, weight, bias, state: (h, c), starts: &starts };
        cpu::forward(&inputs, &mut gates, &mut cells, &mut out);
        Ok(())
    })?;
    let shape = (batch, tokens, width);
    let h = tensor(out, shape)?;
    let gates = tensor(gates, (batch, tokens, 4 * width))?;
    Ok((h.clone(), Saved { gates, cells: tensor(cells, shape)?, h }))
}

/// The state after the last of the tokens (at least one).
///
/// # Errors
/// No tokens.
pub fn last_state(saved: &Saved) -> Result<State> {
    let last = saved.h.dim(1)?.saturating_sub(1);
    let at = |of: &Tensor| of.narrow(1, last, 1)?.squeeze(1)?.contiguous();
    Ok(State { h: at(&saved.h)?, c: at(&saved.cells)? })
}

/// `dx [B,T,4d]` from `dh [B,T,d]`, for rows that began with zeros; adds to `dweight [4d,d]` and `dbias [4,d]`.
///
/// # Errors
/// As [`forward`].
pub fn backward(
    saved: &Saved,
    weight: &Tensor,
    dh: &Tensor,
    segments: &Segments,
    dweight: &Tensor,
    dbias: &Tensor,
) -> Result<Tensor> {
    let sizes = check(weight, segments)?;
    let Sizes { batch, tokens, width } = sizes;
    for (name, part) in [("saved.h", &saved.h), ("saved.cells", &saved.cells), ("dh", dh)] {
        expect_shape(OP, name, part, &[batch, tokens, width], "[B,T,d]")?;
    }
    expect_shape(OP, "dweight", dweight, weight.dims(), "[4d,d]")?;
    expect_shape(OP, "dbias", dbias, &[4, width], "[4,d]")?;
    let dtype = real_dtype(OP, &[&saved.gates, weight, dh, dweight, dbias])?;
    with_real!(dtype, T => backward_as::<T>(sizes, saved, weight, dh, segments, dweight, dbias))
}

fn backward_as<T: Element>(
    sizes: Sizes,
    saved: &Saved,
    weight: &Tensor,
    dh: &Tensor,
    segments: &Segments,
    dweight: &Tensor,
    dbias: &Tensor,
) -> Result<Tensor> {
    let starts = segments.flags();
    let mut dx = unset::<T>(saved.gates.elem_count());
    read_all(OP, [&saved.gates, &saved.cells, &saved.h, weight, dh], |[gates, cells, h, weight, dh]| {
        let inputs = cpu::Backward { sizes, gates, cells, h, weight, dh, starts: &starts };
        cpu::backward(&inputs, &mut dx);
        update(OP, dbias, |dbias| {
            cpu::add_bias_gradient(sizes, &dx, dbias);
            Ok(())
        })?;
        update(OP, dweight, |dweight| {
            cpu::add_weight_gradient(&inputs, &dx, dweight);
            Ok(())
        })
    })?;
    tensor(dx, saved.gates.shape())
}

fn check(weight: &Tensor, segments: &Segments) -> Result<Sizes> {
    let width = weight.dims().last().copied().unwrap_or(0);
    expect_shape(OP, "weight", weight, &[4 * width, width], "[4d,d]")?;
    Ok(Sizes { batch: segments.batch(), tokens: segments.tokens(), width })
}
