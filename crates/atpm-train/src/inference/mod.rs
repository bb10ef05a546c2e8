//! What a trained model is for: evaluation, generation, export.

pub mod eval;
pub mod export;
pub mod generate;
