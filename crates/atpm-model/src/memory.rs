//! Bytes that training needs, before anything is allocated.
//!
//! Shapes: `N = B·T` tokens of a micro-batch, letters as in [`crate::mixer`]. Everything is f32.

use std::fmt::Write as _;

use atpm_core::ops::cross_entropy::TOKENS_PER_BLOCK;
use atpm_core::ops::mixer::CHUNK;

use crate::{ModelConfig, Result, specs};

/// Bytes of one number.
const F32: usize = 4;

/// Bytes by what they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// The parameters.
    pub parameters: usize,
    /// Their gradients.
    pub gradients: usize,
    /// The optimiser's two moments.
    pub moments: usize,
    /// What forward keeps for backward, for one micro-batch.
    pub activations: usize,
    /// What one block's backward and the head need beside it, at the worst moment.
    pub working: usize,
}

impl MemoryEstimate {
    /// The estimate for micro-batches of `rows` × `tokens` on a CPU.
    ///
    /// # Errors
    /// A configuration that cannot be built.
    pub fn of(config: &ModelConfig, rows: usize, tokens: usize) -> Result<Self> {
        Self::with(config, rows, tokens, mixer_working(config, product(&[rows, tokens])))
    }

    /// The same on a GPU, whose kernels pass more through memory. What a driver takes for itself is not in it.
    ///
    /// # Errors
    /// A configuration that cannot be built.
    pub fn on_gpu(config: &ModelConfig, rows: usize, tokens: usize) -> Result<Self> {
        Self::with(config, rows, tokens, mixer_working_on_gpu(config, rows, tokens))
    }

    /// `in_mixer`: elements alive in the backward of a mixer.
    fn with(config: &ModelConfig, rows: usize, tokens: usize, in_mixer: usize) -> Result<Self> {
        let elements: usize = specs(config)?.iter().map(crate::ParameterSpec::elements).sum();
        let parameters = elements * F32;
        let block = block_activations(config, rows, tokens);
        let input = product(&[rows, tokens, config.d_model, F32]);
        let (kept, recomputed) =
            if config.activation_checkpointing { (input, block) } else { (sum(&[input, block]), 0) };
        Ok(Self {
            parameters,
            gradients: parameters,
            moments: 2 * parameters,
            activations: product(&[config.layers, kept]),
            working: sum(&[recomputed, working(config, product(&[rows, tokens]), in_mixer)]),
        })
    }

    /// All of it.
    pub fn total(&self) -> usize {
        sum(&[self.parameters, self.gradients, self.moments, self.activations, self.working])
    }

    /// The estimate as aligned plain text.
    pub fn render(&self) -> String {
        let mut text = String::new();
        for (name, bytes) in [
            ("parameters", self.parameters),
            ("gradients", self.gradients),
            ("moments", self.moments),
            ("activations", self.activations),
            ("working", self.working),
            ("total", self.total()),
        ] {
            let _ = writeln!(text, "{name:12}{:>12.1} MiB", bytes as f64 / f64::from(1 << 20));
        }
        text
    }
}

/// Bytes that one block saves: mixer (projected, logits, gate, y, a state a chunk), the middle of
/// the block, and the MLP's packed projection.
fn block_activations(config: &ModelConfig, rows: usize, tokens: usize) -> usize {
    let ModelConfig { d_model: d, heads, mlp, .. } = *config;
    let shape = config.mixer_shape();
    let per_token = heads * (shape.channels() + 5 + 2 * shape.entity()) + d + 2 * mlp;
    product(&[sum(&[product(&[rows, tokens, per_token]), states(config, rows, tokens)]), F32])
}

/// Elements of the states at the beginning of every chunk.
fn states(config: &ModelConfig, rows: usize, tokens: usize) -> usize {
    let shape = config.mixer_shape();
    product(&[rows, tokens.div_ceil(CHUNK), shape.heads, shape.address, shape.entity()])
}

/// Bytes alive beside the saved activations at the worst of three moments: the backward of an MLP,
/// of a mixer, and of the head.
fn working(config: &ModelConfig, tokens: usize, in_mixer: usize) -> usize {
    let ModelConfig { d_model: d, mlp, vocab, .. } = *config;
    // Output gradient, normed input, its gradient; inner product and its gradient; dpacked.
    let in_mlp = product(&[tokens, 3 * d + 4 * mlp]);
    // Last output, normed, its gradient; one block of logits.
    let in_head = sum(&[product(&[tokens, 3 * d]), tokens.min(TOKENS_PER_BLOCK) * vocab]);
    product(&[in_mlp.max(in_mixer).max(in_head), F32])
}

/// Elements alive in the backward of a mixer.
fn mixer_working(config: &ModelConfig, tokens: usize) -> usize {
    let shape = config.mixer_shape();
    let (channels, inner) = (shape.heads * shape.channels(), shape.heads * shape.entity());
    // The three of the MLP; channels and their gradient, dprojected; dy, dgate, the gated norm.
    product(&[tokens, 3 * config.d_model + 3 * channels + 3 * inner])
}

/// The same on a GPU, less what the block's MLP had saved, which is gone by then.
fn mixer_working_on_gpu(config: &ModelConfig, rows: usize, tokens: usize) -> usize {
    let ModelConfig { d_model: d, mlp, .. } = *config;
    let shape = config.mixer_shape();
    let (address, entity) = (shape.address, shape.entity());
    // The same three; channels, controls and the gradients of both; dy, dgate.
    let around = 3 * d + shape.heads * (2 * shape.channels() + 10 + 2 * entity);
    // s, q, d and their gradients, W; B, M, N; decays and shares of the gates' gradients; dr, U.
    let scratch = shape.heads * (8 * address + 4 * CHUNK + 6 + 2 * entity);
    // Rows of scratch are whole chunks of tokens. Chunk states have a gradient.
    let chunked = product(&[rows, tokens.div_ceil(CHUNK), CHUNK, scratch]);
    let alive = sum(&[product(&[rows, tokens, around]), chunked, states(config, rows, tokens)]);
    alive.saturating_sub(product(&[rows, tokens, 2 * mlp]))
}

/// Rows and tokens are anyone's numbers: what overflows is too much, and stays the largest number.
fn product(factors: &[usize]) -> usize {
    factors.iter().fold(1, |product, &factor| product.saturating_mul(factor))
}

fn sum(terms: &[usize]) -> usize {
    terms.iter().fold(0, |sum, &term| sum.saturating_add(term))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_rows_are_too_much_rather_than_a_panic() {
        let config = ModelConfig { vocab: 64, ..ModelConfig::default() };
        for estimate in [MemoryEstimate::of, MemoryEstimate::on_gpu] {
            assert_eq!(estimate(&config, usize::MAX, usize::MAX).unwrap().total(), usize::MAX);
        }
    }

    // What the kernels' buffers hold for one token of a model whose mixer is its widest part, added up by hand.
    #[test]
    fn a_gpu_needs_what_its_kernels_are_given() {
        let config = ModelConfig { vocab: 64, d_model: 8, mlp: 2, layers: 1, ..ModelConfig::default() };
        let (heads, address, entity) = (8, 64, 128);
        let around = 3 * 8 + 2 * heads * 256 + 10 * heads + 2 * heads * entity;
        let addresses = heads * (3 + 2 + 3) * address;
        let squares = heads * (64 + 64 + 2 * 64);
        let rest = heads * (2 + 4) + 2 * heads * entity + heads * address * entity / 64;
        let estimate = MemoryEstimate::on_gpu(&config, 2, 64).unwrap();
        assert_eq!(estimate.working, 4 * 128 * (around + addresses + squares + rest - 4));
        assert!(estimate.working > MemoryEstimate::of(&config, 2, 64).unwrap().working);
    }

    #[test]
    fn checkpointing_needs_less() {
        let plain = ModelConfig { vocab: 50304, ..ModelConfig::default() };
        let checkpointed = ModelConfig { activation_checkpointing: true, ..plain.clone() };
        let [plain, checkpointed] =
            [plain, checkpointed].map(|config| MemoryEstimate::of(&config, 8, 1024).unwrap());
        assert!(2 * checkpointed.activations < plain.activations);
        assert!(checkpointed.total() < plain.total());
        assert_eq!(checkpointed.parameters, plain.parameters);
    }
}
