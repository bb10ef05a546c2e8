//! Depthwise causal convolution over time (width W, 4 by default), then SiLU; it never crosses a document start.
//!
//! `pre_t = Σ_j w_j ⊙ x_{t−W+1+j}`, `y = silu(pre)`; inputs before the row come from `state`, inputs of
//! another document count as zero.
use crate::{Result, Segments};
use candle_core::Tensor;
/// `y [B,T,C]` and the final state `[B,W−1,C]` (the last W−1 inputs that the next token may see; zeros
/// where a document began less than W−1 tokens ago) of `x [B,T,C]`, `weight [C,W]`, `state [B,W−1,C]`
/// (oldest first; zeros when absent).
///
/// # Errors
/// Shapes or dtypes that do not fit, a device without an implementation.
pub fn forward(
    _x: &Tensor,
    _weight: &Tensor,
    _state: Option<&Tensor>,
    _segments: &Segments,
) -> Result<(Tensor, Tensor)> {
    todo!()
}
/// `(dx, dstate)`; `dfinal [B,W−1,C]` is the final state's gradient if it has one; adds to `dweight [C,W]`.
/// `dstate` is zero-filled when no state was given.
///
/// # Errors
/// As [`forward`].
pub fn backward(
    _x: &Tensor,
    _weight: &Tensor,
    _state: Option<&Tensor>,
    _segments: &Segments,
    _dy: &Tensor,
    _dfinal: Option<&Tensor>,
    _dweight: &Tensor,
) -> Result<(Tensor, Tensor)> {
    todo!()
}
