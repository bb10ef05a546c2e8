//! What a trained model is for: evaluation, generation, export.
//!
//! [`model`] opens a run folder, a checkpoint or an export; [`eval`] measures its loss
//! ([`token_losses`] keeps that of every token), [`generate`] continues
//! prompts with it ([`session`] keeps its memory, [`sampler`] picks tokens), [`export`] writes it as a Hugging
//! Face folder.

pub mod eval;
pub mod export;
mod export_config;
pub mod generate;
pub mod model;
pub mod sampler;
pub mod session;
mod state_file;
mod token_losses;

#[cfg(test)]
pub(crate) mod tests;
