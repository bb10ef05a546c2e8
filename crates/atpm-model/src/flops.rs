//! Floating-point operations of one token, by part.
//!
//! A multiply-add counts as two. Counted are matrix products, the convolution, and the mixer's own
//! work: its geometry and transport, and the chunk form's products. Norms, activations and the
//! embedding's gather are not, as is customary. A transformer's products with earlier tokens depend on how many there
//! are, and count only where a length is given. A training step costs three times a forward pass. What activation
//! checkpointing recomputes is not useful work and not counted. Of what a pinned controller leaves without effect its
//! projection and, where ρ = 0, the transport's maps are not counted; the vectors of an address's size (`b, τ, d, a`) are
//! counted in any case.

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

    /// The same in documents of `tokens` tokens, a transformer's products with earlier tokens among it: their mean over
    /// a document's tokens.
    pub fn of_documents(config: &ModelConfig, tokens: usize) -> Self {
        let mut flops = Self::of(config);
        if config.kind == ModelKind::Transformer {
            // A query meets (tokens + 1) / 2 keys on the mean; a channel of each has one product for the score and one for
            // the value.
            let multiply_adds = config.layers * config.d_model * (tokens + 1);
            flops.parts.insert(1, Part { name: "mixer.attention", forward: 2.0 * multiply_adds as f64 });
        }
        flops
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
        ("mixer.controls", layers * d * config.free_controllers() * heads),
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
    let transport = if config.transports() { r * (d + 1) + s * r } else { 0 };
    13 * s + 2 * d + transport
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

    // A document of three tokens: its queries meet one, two and three keys, two products a channel each.
    #[test]
    fn attention_grows_with_the_document() {
        let of = |kind| ModelConfig { kind, d_model: 10, layers: 4, ..default_with_vocabulary() };
        let grown =
            |kind, tokens| Flops::of_documents(&of(kind), tokens).forward() - Flops::of(&of(kind)).forward();
        assert_eq!(grown(ModelKind::Transformer, 3), 2.0 * 4.0 * 10.0 * f64::from(2 * (1 + 2 + 3)) / 3.0);
        for kind in [ModelKind::Atpm, ModelKind::Lstm, ModelKind::Ntm] {
            assert_eq!(grown(kind, 1000), 0.0, "{}", kind.name());
        }
    }

    #[test]
    fn what_has_no_effect_is_no_work() {
        let plain = default_with_vocabulary();
        let gdn = ModelConfig { rho: Some(0.0), lambda: Some(0.0), tie_beta: true, ..plain.clone() };
        let (layers, heads, s, d, r) = (12.0, 8.0, 64.0, 128.0, 16.0);
        let transport = r * (d + 1.0) + s * r;
        let less = 2.0 * layers * heads * (transport + 3.0 * 1024.0);
        assert_eq!(Flops::of(&plain).forward() - Flops::of(&gdn).forward(), less);
    }

    // The parts of a machine of 3 inputs and outputs, 5 hidden units and a memory of 7 × 2, with one head of each kind.
    #[test]
    fn a_turing_machine_is_counted_by_hand() {
        let (hidden, slots, slot_width) = (Some(5), Some(7), Some(2));
        let sizes = ModelConfig { d_model: 3, layers: 1, heads: 1, vocab: 11, ..ModelConfig::default() };
        let config = ModelConfig { kind: ModelKind::Ntm, hidden, slots, slot_width, ..sizes };
        let controller = 4 * 5 * (3 + 2 + 5);
        let heads = (2 * (2 + 6) + 2 * 2) * 5;
        let memory = 7 * 2 * (1 + 2 + 1 + 2) + 2 * 7 * 5;
        let output = 3 * (5 + 2);
        let all = controller + heads + memory + output + 3 * 11;
        assert_eq!(Flops::of(&config).forward(), f64::from(2 * all));
    }

    #[test]
    fn the_table_sums_up() {
        let flops = Flops::of(&default_with_vocabulary());
        let text = flops.render();
        assert_eq!(text.lines().count(), flops.parts.len() + 3);
        assert!(text.contains(&format!("{:.0}", flops.training())), "{text}");
    }
}
