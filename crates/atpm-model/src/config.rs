//! The `[model]` section of a run: sizes, switches and initial controllers.
//!
//! The letters are those of the equations: `S` address, `K` and `V` the two blocks of the entity,
//! `D = K + V`, `R` transport rank, `H` heads, `d` model width.

use atpm_core::Precision;
use atpm_core::cuda::limits::{
    ADDRESS_STEP, Demand, ENTITY_STEP, MOST_HEAD, MOST_RANK, MOST_ROW, ROW_STEP, row_block_bytes,
};
use atpm_core::ops::gates::Pins;
use atpm_core::ops::mixer;
use serde::{Deserialize, Serialize};

use crate::ntm::NtmConfig;
use crate::{Error, Result};

/// Largest size in channels, and largest number of layers or heads: far beyond use, and small enough
/// that no product of them overflows.
pub(crate) const MAX_SIZE: usize = 1 << 16;
pub(crate) const MAX_COUNT: usize = 1 << 12;

/// How a model looks back in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelKind {
    /// The ATPM memory.
    #[default]
    Atpm,
    /// Softmax attention with rotary positions: [`crate::baselines::TRANSFORMER`].
    Transformer,
    /// An LSTM: [`crate::baselines::LSTM`].
    Lstm,
    /// A Neural Turing machine: [`crate::baselines::NTM`].
    Ntm,
}

impl ModelKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Atpm, Self::Transformer, Self::Lstm, Self::Ntm];

    /// What it is called in configs and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Atpm => "atpm",
            Self::Transformer => "transformer",
            Self::Lstm => "lstm",
            Self::Ntm => "ntm",
        }
    }
}

/// Everything that fixes the model's shape and function. The default is a model of about 206M
/// parameters with a vocabulary of 50304.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches, each a key of the run's file")]
pub struct ModelConfig {
    /// How blocks look back in time. Default ATPM. A transformer has `d_model / heads` channels a head and reads
    /// neither the memory's sizes nor its controllers; an LSTM has `d_model` cells a layer, no heads and no MLP; a
    /// Neural Turing machine has `heads` read and as many write heads, and no MLP.
    pub kind: ModelKind,
    /// Rows of the embedding table, in tokens. 0 (default) takes the tokenizer's size, rounded up
    /// to a multiple of 64; the model itself is built with the resolved number.
    pub vocab: usize,
    /// Model width `d`, in channels. Default 1024.
    pub d_model: usize,
    /// Blocks (one mixer and one MLP each). Default 12.
    pub layers: usize,
    /// Memory heads `H` of each mixer. Default 8.
    pub heads: usize,
    /// Address size `S` of a head, in channels. Default 64.
    pub address: usize,
    /// Key block `K` of a head's entity, in channels. Default 64.
    pub key: usize,
    /// Value block `V` of a head's entity, in channels. Default 64.
    pub value: usize,
    /// Transport rank `R`. Default 16.
    pub rank: usize,
    /// Inner size of the SwiGLU MLP, in channels. Default 2816.
    pub mlp: usize,
    /// Width of the short causal convolution, in tokens: 2 to 8, or 0 for none (then without its
    /// SiLU, so that the mixer reads the plain projections). Default 4.
    pub short_conv: usize,
    /// Whether the query is L2-normalised like the source address. Default true.
    pub query_norm: bool,
    /// Whether the output head is the embedding table. Default true.
    pub tied: bool,
    /// Hidden units of a Neural Turing machine's LSTM. Default (not set): 128.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hidden: Option<usize>,
    /// Slots of a Neural Turing machine's memory. Default (not set): 128.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<usize>,
    /// Numbers in such a slot. Default (not set): 32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slot_width: Option<usize>,
    /// ε of every RMSNorm, added to the mean square. Default 1e-6.
    pub norm_eps: f64,
    /// Holds ρ, the strength of transport, at this value in \[0, 1\]. Default: learned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rho: Option<f64>,
    /// Holds λ, the strength of the recall correction, at this value in \[0, 1\]. Default: learned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lambda: Option<f64>,
    /// One write strength for the whole entity: β_V follows β_K. Default false.
    pub tie_beta: bool,
    /// Initial logit of ρ. Default 0, the neutral ρ = 0.5.
    pub rho_logit: f64,
    /// Initial logit of λ. Default 0, the neutral λ = 0.5.
    pub lambda_logit: f64,
    /// Initial bias of the β_K and β_V logits. Default 0, β around 0.5.
    pub beta_logit: f64,
    /// Half-life of every head's state at the start, in tokens. Default (not set): drawn for each head as Gated
    /// DeltaNet does, `A` uniform in (0, 16] and `dt` log-uniform in \[0.001, 0.1\], which suits many heads; one alone
    /// may begin with a memory of a token or two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_life: Option<f64>,
    /// Standard deviation of the embedding table at the start. Default (not set): 0.02. Where rows begin small, what
    /// all tokens of a kind learn alike can outgrow what tells them apart; an output head of its own keeps 0.02.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub embedding_std: Option<f64>,
    /// Keeps only each block's input and runs its forward pass again in backward: less memory, a
    /// third more work. Default false.
    pub activation_checkpointing: bool,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            kind: ModelKind::Atpm,
            vocab: 0,
            d_model: 1024,
            layers: 12,
            heads: 8,
            address: 64,
            key: 64,
            value: 64,
            rank: 16,
            mlp: 2816,
            short_conv: 4,
            query_norm: true,
            tied: true,
            hidden: None,
            slots: None,
            slot_width: None,
            norm_eps: 1e-6,
            rho: None,
            lambda: None,
            tie_beta: false,
            rho_logit: 0.0,
            lambda_logit: 0.0,
            beta_logit: 0.0,
            half_life: None,
            embedding_std: None,
            activation_checkpointing: false,
        }
    }
}

impl ModelConfig {
    /// Refuses what cannot be built.
    ///
    /// # Errors
    /// The first offending key, with what would be right.
    pub fn validate(&self) -> Result<()> {
        if self.vocab == 0 {
            return refuse(
                "vocab",
                "0 stands for the tokenizer's size, which is not known here; give a number",
            );
        }
        for (key, size, limit) in [
            ("d_model", self.d_model, MAX_SIZE),
            ("layers", self.layers, MAX_COUNT),
            ("heads", self.heads, MAX_COUNT),
            ("address", self.address, MAX_SIZE),
            ("key", self.key, MAX_SIZE),
            ("value", self.value, MAX_SIZE),
            ("rank", self.rank, MAX_SIZE),
            ("mlp", self.mlp, MAX_SIZE),
        ] {
            if !(1..=limit).contains(&size) {
                return refuse(key, format!("must be 1 to {limit}, got {size}"));
            }
        }
        if self.vocab > u32::MAX as usize {
            return refuse("vocab", format!("ids are 32-bit, got {}", self.vocab));
        }
        if self.short_conv != 0 && !(2..=8).contains(&self.short_conv) {
            return refuse("short_conv", format!("must be 0 (off) or 2 to 8, got {}", self.short_conv));
        }
        self.validate_kind()?;
        self.validate_reals()
    }

    fn validate_kind(&self) -> Result<()> {
        let name = self.kind.name();
        for (key, size, least) in
            [("hidden", self.hidden, 1), ("slots", self.slots, 3), ("slot_width", self.slot_width, 1)]
        {
            let Some(size) = size else { continue };
            if self.kind != ModelKind::Ntm {
                let problem = format!(
                    "belongs to the Neural Turing machine, and model.kind is \"{name}\"; leave it out"
                );
                return refuse(key, problem);
            }
            if !(least..=MAX_SIZE).contains(&size) {
                return refuse(key, format!("must be {least} to {MAX_SIZE}, got {size}"));
            }
        }
        if self.kind == ModelKind::Atpm {
            return Ok(());
        }
        for (key, is_set) in
            [("rho", self.rho.is_some()), ("lambda", self.lambda.is_some()), ("tie_beta", self.tie_beta)]
        {
            if is_set {
                return refuse(
                    key,
                    format!("belongs to the ATPM memory, and model.kind is \"{name}\"; leave it out"),
                );
            }
        }
        let Self { d_model, heads, .. } = *self;
        if self.kind == ModelKind::Transformer && !d_model.is_multiple_of(2 * heads) {
            return refuse(
                "heads",
                format!(
                    "a transformer's d_model = {d_model} must be an even multiple of its heads, got {heads}"
                ),
            );
        }
        Ok(())
    }

    fn validate_reals(&self) -> Result<()> {
        if !(self.norm_eps.is_finite() && self.norm_eps > 0.0) {
            return refuse("norm_eps", format!("must be a positive number, got {}", self.norm_eps));
        }
        for (key, pin) in [("rho", self.rho), ("lambda", self.lambda)] {
            if let Some(pin) = pin
                && !(0.0..=1.0).contains(&pin)
            {
                return refuse(key, format!("must lie in [0, 1] or be left out, got {pin}"));
            }
        }
        for (key, logit) in [
            ("rho_logit", self.rho_logit),
            ("lambda_logit", self.lambda_logit),
            ("beta_logit", self.beta_logit),
        ] {
            if !logit.is_finite() {
                return refuse(key, format!("must be a finite number, got {logit}"));
            }
        }
        for (key, kind, value) in [
            ("half_life", "number of tokens", self.half_life),
            ("embedding_std", "number", self.embedding_std),
        ] {
            if let Some(value) = value
                && !(value.is_finite() && value > 0.0)
            {
                return refuse(key, format!("must be a {kind} above 0, got {value}"));
            }
        }
        Ok(())
    }

    /// Refuses kinds and sizes that the CUDA kernels do not take, though a CPU does: at all, or for this use on a GPU that
    /// gives a block `block_bytes` of shared memory.
    ///
    /// # Errors
    /// The first offending key, with what would be right.
    pub fn validate_for_gpu(&self, demand: Demand, block_bytes: usize) -> Result<()> {
        if self.kind != ModelKind::Atpm {
            let problem =
                format!("\"{}\" has no CUDA kernels; use \"atpm\", or device = \"cpu\"", self.kind.name());
            return refuse("kind", problem);
        }
        for (key, size, step, most) in [
            ("d_model", self.d_model, ROW_STEP, MOST_ROW),
            ("address", self.address, ADDRESS_STEP, MOST_HEAD),
            ("key", self.key, ENTITY_STEP, MOST_HEAD),
            ("value", self.value, ENTITY_STEP, MOST_HEAD),
            ("rank", self.rank, 1, MOST_RANK),
            ("mlp", self.mlp, ROW_STEP, MAX_SIZE),
        ] {
            if !size.is_multiple_of(step) || size > most {
                let multiple = if step > 1 { format!("a multiple of {step}, ") } else { String::new() };
                return refuse(key, format!("on CUDA it must be {multiple}at most {most}, got {size}"));
            }
        }
        let (dtype, instead) = match demand.precision {
            Precision::F32 => ("f32", "a smaller one, train.dtype = \"bf16\" or another GPU"),
            Precision::Bf16 => ("bf16", "a smaller one or another GPU"),
        };
        let row = if demand.backward { row_block_bytes(self.d_model) } else { 0 };
        let mixer = self.mixer_shape().gpu_block_bytes(demand)?;
        for (key, size, bytes) in [("address", self.address, mixer), ("d_model", self.d_model, row)] {
            if bytes > block_bytes {
                let problem = format!(
                    "{size} needs {bytes} bytes of shared memory a block in {dtype}, this GPU has {block_bytes}; use {instead}"
                );
                return refuse(key, problem);
            }
        }
        Ok(())
    }

    /// Sizes of one mixer, as its op takes them.
    pub fn mixer_shape(&self) -> mixer::Shape {
        mixer::Shape {
            heads: self.heads,
            address: self.address,
            key: self.key,
            value: self.value,
            rank: self.rank,
            query_norm: self.query_norm,
        }
    }

    /// Sizes of one Neural Turing machine, which reads and gives `d_model` numbers a token.
    pub fn ntm(&self) -> NtmConfig {
        let usual = NtmConfig::new(self.d_model, self.d_model);
        NtmConfig {
            hidden: self.hidden.unwrap_or(usual.hidden),
            slots: self.slots.unwrap_or(usual.slots),
            width: self.slot_width.unwrap_or(usual.width),
            read_heads: self.heads,
            write_heads: self.heads,
            ..usual
        }
    }

    /// Controllers of a head, of five, that are neither held at a constant nor follow another.
    pub(crate) fn free_controllers(&self) -> usize {
        let held = [self.rho.is_some(), self.lambda.is_some(), self.tie_beta];
        5 - held.into_iter().filter(|held| *held).count()
    }

    /// Whether transport can have an effect.
    pub(crate) fn transports(&self) -> bool {
        self.rho != Some(0.0)
    }

    /// Controllers that are held at a constant.
    pub fn pins(&self) -> Pins {
        Pins { rho: self.rho, lambda: self.lambda, tie_beta: self.tie_beta }
    }
}

fn refuse<T>(key: &'static str, problem: impl Into<String>) -> Result<T> {
    Err(Error::Config { key, problem: problem.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Change = fn(&mut ModelConfig);

    fn with(change: impl FnOnce(&mut ModelConfig)) -> ModelConfig {
        let mut config = ModelConfig { vocab: 256, ..ModelConfig::default() };
        change(&mut config);
        config
    }

    #[test]
    fn refusals_name_the_key() {
        let cases: [(&str, Change); 28] = [
            ("vocab", |c| c.vocab = 0),
            ("vocab", |c| c.vocab = 1 << 33),
            ("d_model", |c| c.d_model = 0),
            ("layers", |c| c.layers = 0),
            ("heads", |c| c.heads = 0),
            ("heads", |c| c.heads = 4097),
            ("mlp", |c| c.mlp = usize::MAX),
            ("address", |c| c.address = 0),
            ("key", |c| c.key = 0),
            ("value", |c| c.value = 0),
            ("rank", |c| c.rank = 0),
            ("mlp", |c| c.mlp = 0),
            ("short_conv", |c| c.short_conv = 1),
            ("short_conv", |c| c.short_conv = 9),
            ("norm_eps", |c| c.norm_eps = 0.0),
            ("rho", |c| c.rho = Some(1.5)),
            ("lambda", |c| c.lambda = Some(f64::NAN)),
            ("rho_logit", |c| c.rho_logit = f64::INFINITY),
            ("lambda_logit", |c| c.lambda_logit = f64::NAN),
            ("beta_logit", |c| c.beta_logit = f64::NEG_INFINITY),
            ("half_life", |c| c.half_life = Some(0.0)),
            ("embedding_std", |c| c.embedding_std = Some(-0.02)),
            ("heads", |c| (c.kind, c.heads) = (ModelKind::Transformer, 3)),
            ("lambda", |c| (c.kind, c.lambda) = (ModelKind::Lstm, Some(0.0))),
            ("tie_beta", |c| (c.kind, c.tie_beta) = (ModelKind::Transformer, true)),
            ("rho", |c| (c.kind, c.rho) = (ModelKind::Ntm, Some(0.0))),
            ("slots", |c| (c.kind, c.slots) = (ModelKind::Ntm, Some(2))),
            ("slot_width", |c| c.slot_width = Some(32)),
        ];
        for (expected, change) in cases {
            match with(change).validate() {
                Err(Error::Config { key, problem }) => {
                    assert_eq!(key, expected);
                    assert!(!problem.is_empty());
                }
                other => panic!("{expected}: expected a refusal, got {other:?}"),
            }
        }
    }

    #[test]
    fn sizes_that_kernels_do_not_take_are_named() {
        // What a block has on sm_80, and on sm_86, sm_89 and sm_120.
        let (large, small) = (163 * 1024, 99 * 1024);
        let training = |precision| Demand { precision, backward: true };
        let refusal = |config: &ModelConfig, precision, bytes| {
            config.validate_for_gpu(training(precision), bytes).err().map(|error| error.to_string())
        };
        for precision in [Precision::F32, Precision::Bf16] {
            assert_eq!(refusal(&ModelConfig::default(), precision, large), None);
            let widest = with(|c| (c.address, c.key, c.value, c.rank) = (256, 8, 248, 64));
            assert_eq!(refusal(&widest, precision, large), None);
        }
        let heads_of_64 = with(|c| (c.address, c.key, c.value) = (64, 64, 64));
        assert_eq!(refusal(&heads_of_64, Precision::Bf16, small), None);
        assert_eq!(
            refusal(&heads_of_64, Precision::F32, small).unwrap(),
            "model.address: 64 needs 121856 bytes of shared memory a block in f32, this GPU has 101376; \
             use a smaller one, train.dtype = \"bf16\" or another GPU"
        );
        let reading = Demand { precision: Precision::F32, backward: false };
        heads_of_64.validate_for_gpu(reading, small).unwrap();
        let wide = ModelConfig { d_model: 3170, ..heads_of_64 };
        assert!(
            refusal(&wide, Precision::Bf16, small).unwrap().starts_with("model.d_model: 3170 needs 101440")
        );
        let cases: [(Change, &str); 8] = [
            (
                |c| c.kind = ModelKind::Lstm,
                "model.kind: \"lstm\" has no CUDA kernels; use \"atpm\", or device = \"cpu\"",
            ),
            (|c| c.d_model = 33, "model.d_model: on CUDA it must be a multiple of 2, at most 5216, got 33"),
            (
                |c| c.d_model = 5218,
                "model.d_model: on CUDA it must be a multiple of 2, at most 5216, got 5218",
            ),
            (|c| c.address = 24, "model.address: on CUDA it must be a multiple of 16, at most 256, got 24"),
            (|c| c.key = 4, "model.key: on CUDA it must be a multiple of 8, at most 256, got 4"),
            (|c| c.value = 264, "model.value: on CUDA it must be a multiple of 8, at most 256, got 264"),
            (|c| c.rank = 65, "model.rank: on CUDA it must be at most 64, got 65"),
            (|c| c.mlp = 7, "model.mlp: on CUDA it must be a multiple of 2, at most 65536, got 7"),
        ];
        for (change, expected) in cases {
            assert_eq!(refusal(&with(change), Precision::F32, large).unwrap(), expected);
        }
    }

    #[test]
    fn accepts_every_corner() {
        for (rho, lambda, tie_beta, short_conv) in [
            (None, None, false, 4),
            (Some(0.0), Some(0.0), true, 2),
            (Some(1.0), Some(1.0), false, 8),
            (Some(0.0), Some(1.0), false, 0),
        ] {
            with(|c| {
                c.rho = rho;
                c.lambda = lambda;
                c.tie_beta = tie_beta;
                c.short_conv = short_conv;
            })
            .validate()
            .unwrap();
        }
    }

    #[test]
    fn toml_round_trips_and_fills_in_defaults() {
        let config = with(|c| {
            c.rho = Some(0.25);
            c.norm_eps = 1e-5;
        });
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<ModelConfig>(&text).unwrap(), config);
        assert_eq!(toml::from_str::<ModelConfig>("").unwrap(), ModelConfig::default());
        let misspelt = toml::from_str::<ModelConfig>("d_modle = 8").unwrap_err().to_string();
        assert!(misspelt.contains("d_modle") && misspelt.contains("d_model"), "{misspelt}");
    }
}
