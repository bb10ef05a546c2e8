//! Floating-point operations of one token, by part.
//!
//! A multiply-add counts as two. Counted are matrix products, the convolution, and the mixer's own
//! work: its geometry and transport, and the chunk form's products. Norms, activations and the
//! embedding's gather are not, as is customary. A transformer's products with earlier tokens are not either: they
//! depend on how many there are. A training step costs three times a forward pass;
//! what activation checkpointing recomputes is not useful work and not counted.

use std::fmt::Write as _;

use atpm_core::ops::mixer::CHUNK;

use crate::{MixerKind, ModelConfig, ModelKind};

/// One part's share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// What does the work.
    pub name: &'static str,
    /// FLOPs a token of the forward pass, over all layers.
    pub forward: f64,
}

/// FLOPs a token of the model, by part.
#[derive(Debug, Clone, PartialEq)]
pub struct Flops {
    /// The parts, in the order of the forward pass.
    pub parts: Vec<Part>,
}

impl Flops {
    /// Counts the model's work.
    pub fn of(config: &ModelConfig) -> Self {
        let ModelConfig { d_model: d, layers, mlp, vocab, .. } = *config;
        let mut multiply_adds = match config.kind {
            ModelKind::Atpm => atpm(config),
            ModelKind::Transformer => {
                vec![("mixer.qkv", layers * 3 * d * d), ("mixer.out_proj", layers * d * d)]
            }
            ModelKind::Lstm => {
                vec![("mixer.in_proj", layers * 4 * d * d), ("mixer.recurrent", layers * 4 * d * d)]
            }
            ModelKind::Ntm => {
                config.ntm().multiply_adds().map(|(part, count)| (part, layers * count)).to_vec()
            }
        };
        if MixerKind::of(config).mlp {
            multiply_adds.push(("mlp", layers * 3 * d * mlp));
        }
        multiply_adds.push(("head", d * vocab));
        let part = |(name, count): (&'static str, usize)| Part { name, forward: 2.0 * count as f64 };
        Self { parts: multiply_adds.into_iter().map(part).collect() }
    }

    /// FLOPs a token of the forward pass.
    pub fn forward(&self) -> f64 {
        self.parts.iter().map(|part| part.forward).sum()
    }

    /// FLOPs a token of forward and backward.
    pub fn training(&self) -> f64 {
        3.0 * self.forward()
    }

    /// The parts as aligned plain text, with their shares.
    pub fn render(&self) -> String {
        let total = self.forward();
        let mut text = format!("{:18}{:>16}{:>8}\n", "part", "FLOP/token", "share");
        for part in &self.parts {
            let share = 100.0 * part.forward / total;
            let _ = writeln!(text, "{:18}{:>16.0}{share:>7.1}%", part.name, part.forward);
        }
        let _ = writeln!(text, "{:18}{total:>16.0}\n{:18}{:>16.0}", "forward", "training", self.training());
        text
    }
}

/// Multiply-adds a token of all layers' memories and what stands around them.
fn atpm(config: &ModelConfig) -> Vec<(&'static str, usize)> {
    let ModelConfig { d_model: d, layers, heads, short_conv, .. } = *config;
    let shape = config.mixer_shape();
    let channels = heads * shape.channels();
    let inner = heads * shape.entity();
    vec![
        ("mixer.in_proj", layers * d * channels),
        ("mixer.short_conv", layers * short_conv * channels),
        ("mixer.controls", layers * d * 5 * heads),
        ("mixer.geometry", layers * heads * geometry(config)),
        ("mixer.memory", layers * heads * memory(config)),
        ("mixer.gate_proj", layers * d * inner),
        ("mixer.out_proj", layers * inner * d),
    ]
}

/// Multiply-adds a token and head outside the recurrence: unit addresses, RMS of the entity,
/// transport `z = (A_K k) ⊙ (A_V v)`, `c = C z`, and the vectors `b, τ, d, a, q` of size `S`.
fn geometry(config: &ModelConfig) -> usize {
    let (s, d, r) = (config.address, config.key + config.value, config.rank);
    13 * s + 2 * d + r * (d + 1) + s * r
}

/// Multiply-adds a token and head of the chunk form, `2·C²S + 2·CSD + C²D + C²D + CSD` over `C`
/// tokens: scores, products with the state, the triangular solve (half of its square is used), the
/// output, and the state's update.
fn memory(config: &ModelConfig) -> usize {
    let (s, d) = (config.address, config.key + config.value);
    2 * CHUNK * s + 2 * s * d + 2 * CHUNK * d + s * d
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default_with_vocabulary() -> ModelConfig {
        ModelConfig { vocab: 50304, ..ModelConfig::default() }
    }

    #[test]
    fn the_memory_costs_98_kflop_a_token_and_head() {
        assert_eq!(2 * memory(&default_with_vocabulary()), 98_304);
    }

    #[test]
    fn the_default_model_costs_two_flop_a_weight_and_the_memory() {
        let config = default_with_vocabulary();
        let flops = Flops::of(&config);
        let weights: usize = crate::specs(&config)
            .unwrap()
            .iter()
            .filter(|spec| spec.name.ends_with("weight") && spec.shape.len() == 2)
            .map(crate::ParameterSpec::elements)
            .sum();
        let mixer: f64 = flops
            .parts
            .iter()
            .filter(|part| ["mixer.geometry", "mixer.memory"].contains(&part.name))
            .map(|part| part.forward)
            .sum();
        assert_eq!(flops.forward(), 2.0 * weights as f64 + mixer, "{}", flops.render());
        assert!((0.41e9..0.44e9).contains(&flops.forward()), "{}", flops.render());
        assert_eq!(flops.training(), 3.0 * flops.forward());
    }

    #[test]
    fn the_table_sums_up() {
        let flops = Flops::of(&default_with_vocabulary());
        let text = flops.render();
        assert_eq!(text.lines().count(), flops.parts.len() + 3);
        assert!(text.contains(&format!("{:.0}", flops.training())), "{text}");
    }
}
