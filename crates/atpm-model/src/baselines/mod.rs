//! What ATPM is compared with, and sizes that make the comparison fair.
//!
//! Gated DeltaNet, PSM and the corner limits are ATPM with pinned controllers. Three others are mixers of their own in
//! the same decoder, so that trainer, evaluation, checkpoints and decoding take them as they take ATPM:
//!
//! - [`TRANSFORMER`]: causal softmax attention with rotary positions, before a SwiGLU as in any block
//! - [`LSTM`]: an LSTM a block, without an MLP; blocks are normed residuals, which only helps it
//! - [`NTM`]: a Neural Turing machine a block, without an MLP; with one layer it is the machine of the literature
//!   between embedding and head, in a normed residual of its own

mod lstm;
mod matching;
mod ntm;
mod transformer;

#[cfg(test)]
mod tests;

pub use lstm::LSTM;
pub use matching::{learning_parameters, match_flops, match_parameters, matched_width};
pub use ntm::NTM;
pub use transformer::TRANSFORMER;
