//! What ATPM is compared with, and sizes that make the comparison fair.
//!
//! Gated DeltaNet, PSM and the corner limits are ATPM with pinned controllers. Two others are mixers of their own in
//! the same decoder, so that trainer, evaluation, checkpoints and decoding take them as they take ATPM:
//!
//! - [`TRANSFORMER`]: causal softmax attention with rotary positions, before a SwiGLU as in any block
//! - [`LSTM`]: an LSTM a block, without an MLP; blocks are normed residuals, which only helps it

mod lstm;
mod matching;
mod transformer;

#[cfg(test)]
mod tests;

pub use lstm::LSTM;
pub use matching::{learning_parameters, match_parameters};
pub use transformer::TRANSFORMER;
