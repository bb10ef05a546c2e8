//! Output projection and cross-entropy in one op, over blocks of tokens: `[tokens × vocabulary]` never exists whole.
use crate::Result;
use candle_core::Tensor;
/// The target that counts for nothing (document boundaries, padding).
pub const IGNORE: u32 = u32::MAX;
/// What the loss is made of besides the target's log-probability.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Options {
    /// Weight of `lse²` added to each token's loss (z-loss; 0 = off). Not part of the reported token losses.
    pub z_loss: f64,
}
/// Token losses in nats `[N]` (f32; 0 where the target is [`IGNORE`]) of `x [N, D]`, `weight [V, D]`, `targets [N]` (u32).
///
/// # Errors
/// A target ≥ V other than [`IGNORE`], shapes or dtypes that do not fit, a device without an implementation.
pub fn forward(_x: &Tensor, _weight: &Tensor, _targets: &Tensor) -> Result<Tensor> {
    todo!()
}
/// Token losses, and the gradient `dx [N, D]` of `scale · Σ_tokens (loss + z_loss·lse²)`; adds to `dweight [V, D]`.
/// One pass: the logits of a block are made once, used for the loss and turned into their gradient in place.
///
/// # Errors
/// As [`forward`].
pub fn forward_backward(
    _x: &Tensor,
    _weight: &Tensor,
    _targets: &Tensor,
    _scale: f64,
    _options: Options,
    _dweight: &Tensor,
) -> Result<(Tensor, Tensor)> {
    todo!()
}
