//! AdamW (Loshchilov & Hutter, decoupled weight decay), fused: one pass over parameter, moments and gradient.
use crate::Result;
use candle_core::Tensor;
/// Hyper-parameters of one update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Config {
    /// Learning rate of this step.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment, outside the root.
    pub eps: f64,
    /// Decoupled weight decay; 0 for parameters outside the decay group.
    pub weight_decay: f64,
    /// Factor on the gradient before use (clipping).
    pub grad_scale: f64,
    /// Number of this update, from 1 (bias correction).
    pub step: u64,
}
/// Updates `parameter`, `m` and `v` in place from `gradient`; all of one shape, f32.
///
/// # Errors
/// Shapes or dtypes that do not fit, a device without an implementation, step 0.
pub fn update(
    _config: &Config,
    _parameter: &Tensor,
    _m: &Tensor,
    _v: &Tensor,
    _gradient: &Tensor,
) -> Result<()> {
    todo!()
}
/// `Σ g²` of one gradient, in f64 and in a fixed order.
///
/// # Errors
/// As [`update`].
pub fn squared_norm(_gradient: &Tensor) -> Result<f64> {
    todo!()
}
