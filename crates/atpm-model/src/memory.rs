//! Bytes that training needs, before anything is allocated.
//!
//! Shapes: `N = B·T` tokens of a micro-batch, letters as in [`crate::mixer`]. Everything is f32.

use std::fmt::Write as _;

use atpm_core::ops::cross_entropy::TOKENS_PER_BLOCK;
use atpm_core::ops::mixer::CHUNK;

use crate::{ModelConfig, ModelKind, Result, specs};

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
    /// The estimate for micro-batches of `rows` × `tokens`.
    ///
    /// # Errors
    /// A configuration that cannot be built.
    pub fn of(config: &ModelConfig, rows: usize, tokens: usize) -> Result<Self> {
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
            working: sum(&[recomputed, working(config, product(&[rows, tokens]))]),
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

/// Bytes that one block saves: the memory (projected, logits, gate, y, a state a chunk), attention (rotated
/// projections, y, a number a head) or LSTM (gates, cells, outputs); the middle of the block, and the MLP's packed
/// projection.
fn block_activations(config: &ModelConfig, rows: usize, tokens: usize) -> usize {
    let ModelConfig { d_model: d, heads, mlp, address, .. } = *config;
    let shape = config.mixer_shape();
    let (per_token, states) = match config.kind {
        ModelKind::Atpm => (
            heads * (shape.channels() + 5 + 2 * shape.entity()) + d + 2 * mlp,
            product(&[rows, tokens.div_ceil(CHUNK), heads, address, shape.entity()]),
        ),
        ModelKind::Transformer => (4 * d + heads + d + 2 * mlp, 0),
        ModelKind::Lstm => (6 * d, 0),
    };
    product(&[sum(&[product(&[rows, tokens, per_token]), states]), F32])
}

/// Bytes alive beside the saved activations at the worst of three moments: the backward of an MLP,
/// of a mixer, and of the head.
fn working(config: &ModelConfig, tokens: usize) -> usize {
    let ModelConfig { d_model: d, heads, mlp, vocab, .. } = *config;
    let shape = config.mixer_shape();
    let (channels, inner) = (heads * shape.channels(), heads * shape.entity());
    // Output gradient, normed input, its gradient; inner product and its gradient; dpacked.
    let in_mlp = product(&[tokens, 3 * d + 4 * mlp]);
    // The same three; channels and their gradient, dprojected; dy, dgate, the gated norm.
    let in_mixer = match config.kind {
        ModelKind::Atpm => product(&[tokens, 3 * d + 3 * channels + 3 * inner]),
        // dy; dqkv.
        ModelKind::Transformer => product(&[tokens, 7 * d]),
        // dgates; the outputs before each token.
        ModelKind::Lstm => product(&[tokens, 8 * d]),
    };
    // Last output, normed, its gradient; one block of logits.
    let in_head = sum(&[product(&[tokens, 3 * d]), tokens.min(TOKENS_PER_BLOCK) * vocab]);
    product(&[in_mlp.max(in_mixer).max(in_head), F32])
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
        let estimate = MemoryEstimate::of(&config, usize::MAX, usize::MAX).unwrap();
        assert_eq!(estimate.total(), usize::MAX);
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
