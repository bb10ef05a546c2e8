//! Bytes that training needs, before anything is allocated.
//!
//! Shapes: `N = B·T` tokens of a micro-batch, letters as in [`crate::mixer`]. Everything is f32, but for activations of
//! a bf16 model on a GPU.

use std::fmt::Write as _;

use atpm_core::Precision;
use atpm_core::ops::cross_entropy::TOKENS_PER_BLOCK;
use atpm_core::ops::mixer::CHUNK;

use crate::{MixerKind, ModelConfig, ModelKind, ParameterSpec, Result, specs};

/// Bytes of one number.
const F32: usize = 4;
/// Bytes of one rounded number.
const BF16: usize = 2;

/// Bytes by what they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryEstimate {
    /// The parameters, and the bf16 copies that products on a GPU read.
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
        let call = Call { config, rows, tokens, activation: F32 };
        Self::with(&call, call.in_mixer())
    }

    /// The same on a GPU, whose kernels pass more through memory and store activations in `precision`. What a driver
    /// takes for itself is not in it.
    ///
    /// # Errors
    /// A configuration that cannot be built.
    pub fn on_gpu(config: &ModelConfig, rows: usize, tokens: usize, precision: Precision) -> Result<Self> {
        let activation = if precision == Precision::Bf16 { BF16 } else { F32 };
        let call = Call { config, rows, tokens, activation };
        Self::with(&call, call.in_mixer_on_gpu())
    }

    /// `in_mixer`: bytes alive in the backward of a mixer.
    fn with(call: &Call<'_>, in_mixer: usize) -> Result<Self> {
        let config = call.config;
        let specs = specs(config)?;
        let masters = F32 * specs.iter().map(ParameterSpec::elements).sum::<usize>();
        let copies = if call.activation == BF16 { BF16 * call.factors(&specs) } else { 0 };
        let block = call.block();
        let input = call.for_each_token(config.d_model * call.activation);
        let (kept, recomputed) =
            if config.activation_checkpointing { (input, block) } else { (sum(&[input, block]), 0) };
        Ok(Self {
            parameters: masters + copies,
            gradients: masters,
            moments: 2 * masters,
            activations: product(&[config.layers, kept]),
            working: sum(&[recomputed, call.in_mlp().max(in_mixer).max(call.in_head())]),
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

/// A micro-batch, and how many bytes one number of its activations takes.
struct Call<'a> {
    config: &'a ModelConfig,
    rows: usize,
    tokens: usize,
    activation: usize,
}

impl Call<'_> {
    fn for_each_token(&self, bytes: usize) -> usize {
        product(&[self.rows, self.tokens, bytes])
    }

    /// Elements of the parameters that products read, or a little more: all matrices, but for an embedding that is
    /// not the head's.
    fn factors(&self, specs: &[ParameterSpec]) -> usize {
        let lookup = |spec: &&ParameterSpec| !self.config.tied && spec.name == "embedding.weight";
        let weights = specs.iter().filter(|spec| spec.shape.len() == 2 && spec.name.ends_with(".weight"));
        let matrices = weights.filter(|spec| !lookup(spec));
        matrices.map(ParameterSpec::elements).sum()
    }

    /// What one block saves: the memory (projected, gate, y, logits, a state a chunk), attention (rotated projections, y, a
    /// number a head), LSTM (gates, cells, outputs) or Turing machine (its memory and what led to it); with an MLP, the
    /// middle of the block and the MLP's packed projection.
    fn block(&self) -> usize {
        let ModelConfig { d_model: d, heads, mlp, .. } = *self.config;
        let shape = self.config.mixer_shape();
        let middle_and_mlp = d + 2 * mlp;
        match self.config.kind {
            ModelKind::Atpm => {
                let activations = heads * (shape.channels() + 2 * shape.entity()) + middle_and_mlp;
                let per_token = self.activation * activations + F32 * 5 * heads;
                sum(&[self.for_each_token(per_token), self.states()])
            }
            ModelKind::Transformer => self.for_each_token(self.activation * (4 * d + heads + middle_and_mlp)),
            ModelKind::Lstm => self.for_each_token(self.activation * 6 * d),
            ModelKind::Ntm => {
                let machine = self.config.ntm();
                let at_start = product(&[self.rows, machine.state_len(), F32]);
                sum(&[self.for_each_token(F32 * machine.numbers_per_step().0), at_start])
            }
        }
    }

    /// The states at the beginning of every chunk.
    fn states(&self) -> usize {
        let shape = self.config.mixer_shape();
        let chunks = self.tokens.div_ceil(CHUNK);
        product(&[self.rows, chunks, shape.heads, shape.address, shape.entity(), self.activation])
    }

    /// Alive beside the saved activations in the backward of an MLP: output gradient, normed input, its gradient; inner
    /// product and its gradient; dpacked. Nothing where blocks have no MLP.
    fn in_mlp(&self) -> usize {
        if !MixerKind::of(self.config).mlp {
            return 0;
        }
        self.for_each_token(self.activation * (3 * self.config.d_model + 4 * self.config.mlp))
    }

    /// In that of the head: last output, normed, its gradient; one block of logits.
    fn in_head(&self) -> usize {
        let ModelConfig { d_model: d, vocab, .. } = *self.config;
        let logits = product(&[product(&[self.rows, self.tokens]).min(TOKENS_PER_BLOCK), vocab, F32]);
        sum(&[self.for_each_token(self.activation * 3 * d), logits])
    }

    /// In that of a mixer, output gradient, normed input and its gradient among it.
    fn in_mixer(&self) -> usize {
        let d = self.config.d_model;
        let shape = self.config.mixer_shape();
        let (channels, inner) = (shape.heads * shape.channels(), shape.heads * shape.entity());
        let numbers = match self.config.kind {
            // Those three; channels and their gradient, dprojected; dy, dgate, the gated norm.
            ModelKind::Atpm => 3 * d + 3 * channels + 3 * inner,
            // Those three; dy; dqkv.
            ModelKind::Transformer => 7 * d,
            // Those three; dgates; the outputs before each token.
            ModelKind::Lstm => 8 * d,
            // Those three; what the machine holds.
            ModelKind::Ntm => 3 * d + self.config.ntm().numbers_per_step().1,
        };
        self.for_each_token(self.activation * numbers)
    }

    /// The same on a GPU, less what the block's MLP had saved, which is gone by then.
    fn in_mixer_on_gpu(&self) -> usize {
        let ModelConfig { d_model: d, mlp, heads, .. } = *self.config;
        let shape = self.config.mixer_shape();
        let (address, entity) = (shape.address, shape.entity());
        // The same three; channels and their gradient; dy, dgate. Controls and logits with their gradients are f32.
        let around =
            self.activation * (3 * d + heads * (2 * shape.channels() + 2 * entity)) + F32 * 10 * heads;
        // s, q, d, W; dr, U.
        let rounded = self.activation * (5 * address + 2 * entity);
        // Gradients of s, q, d; B, M, N, of two parts where they are bf16; decays and shares of the gates' gradients.
        let exact = F32 * (3 * address + 4 * CHUNK + 6);
        // Rows of scratch are whole chunks of tokens. Chunk states have a gradient.
        let chunked = product(&[self.rows, self.tokens.div_ceil(CHUNK), CHUNK, heads, rounded + exact]);
        let alive = sum(&[self.for_each_token(around), chunked, self.states()]);
        alive.saturating_sub(self.for_each_token(self.activation * 2 * mlp))
    }
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
        let most = usize::MAX;
        assert_eq!(MemoryEstimate::of(&config, most, most).unwrap().total(), most);
        let on_gpu = MemoryEstimate::on_gpu(&config, most, most, Precision::Bf16).unwrap();
        assert_eq!(on_gpu.total(), most);
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
        let estimate = MemoryEstimate::on_gpu(&config, 2, 64, Precision::F32).unwrap();
        assert_eq!(estimate.working, 4 * 128 * (around + addresses + squares + rest - 4));
        assert!(estimate.working > MemoryEstimate::of(&config, 2, 64).unwrap().working);

        // In bf16 all is half of that, but for controls, gradients of addresses, squares and shares.
        let exact = 10 * heads + 3 * heads * address + squares + heads * (2 + 4);
        let rounded = MemoryEstimate::on_gpu(&config, 2, 64, Precision::Bf16).unwrap();
        assert_eq!(2 * rounded.working, estimate.working + 4 * 128 * exact);
        assert_eq!(2 * rounded.activations, estimate.activations + 128 * 4 * 5 * heads);

        // Beside the parameters there are copies of the head, of projections, gate and output, of the MLP's two
        // products, and of the controllers' and the convolution's matrices, which none reads.
        let matrices = 64 * 8 + heads * (256 + 2 * entity) * 8 + 3 * 2 * 8 + heads * (5 * 8 + 256 * 4);
        assert_eq!(rounded.parameters, estimate.parameters + 2 * matrices);
        assert_eq!(rounded.gradients, estimate.gradients);
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
