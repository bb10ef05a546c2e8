//! The export's `config.json`: the model's configuration in the words of the Hugging Face hub.

use std::path::Path;

use atpm_data::Tokenizer;
use atpm_model::ModelConfig;
use serde::{Deserialize, Serialize};

use crate::checkpoint::tensor_file::Encoding;
use crate::checkpoint::{Error, Result};

/// The hub's word for the kind of model.
const MODEL_TYPE: &str = "atpm";
const ARCHITECTURE: &str = "AtpmForCausalLM";

/// Everything that a reader needs to build the model. Keys that other programs add are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a key of the file")]
pub(super) struct ExportConfig {
    architectures: Vec<String>,
    model_type: String,
    /// `float32` or `bfloat16`.
    torch_dtype: String,
    vocab_size: usize,
    /// Ids that the tokenizer can give; the rows of the tables beyond them are padding.
    tokenizer_vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_heads: usize,
    address_size: usize,
    key_size: usize,
    value_size: usize,
    transport_rank: usize,
    intermediate_size: usize,
    /// 0 = none.
    short_conv_width: usize,
    query_norm: bool,
    rms_norm_eps: f64,
    tie_word_embeddings: bool,
    /// ρ held at this value; null = learned.
    rho: Option<f64>,
    /// λ held at this value; null = learned.
    #[serde(rename = "lambda")]
    lambda_pin: Option<f64>,
    tie_beta: bool,
    /// The token that ends a text.
    pub(super) eos_token_id: u32,
    /// The token that begins a text; null = the tokenizer has none.
    #[serde(default)]
    pub(super) bos_token_id: Option<u32>,
    /// Whether each document began with it in training (`data.bos`). Exports from before that key did not.
    #[serde(default)]
    pub(super) add_bos_token: bool,
    /// Whether each document ended with the token that ends a text (`data.eos`). It did before there was that key.
    #[serde(default = "always")]
    pub(super) add_eos_token: bool,
}

fn always() -> bool {
    true
}

impl ExportConfig {
    /// The words for a model, its tokenizer, and whether its documents had beginning-of-text and end-of-text tokens.
    pub(super) fn new(
        config: &ModelConfig,
        tokenizer: &Tokenizer,
        bos: bool,
        eos: bool,
        encoding: Encoding,
    ) -> Self {
        // Named one by one, so that a new key of the model cannot be forgotten here.
        let ModelConfig {
            kind: _,
            vocab,
            d_model,
            layers,
            heads,
            address,
            key,
            value,
            rank,
            mlp,
            short_conv,
            query_norm,
            tied,
            norm_eps,
            rho,
            lambda,
            tie_beta,
            // A Neural Turing machine has no export.
            hidden: _,
            slots: _,
            slot_width: _,
            // These act before or during training only.
            rho_logit: _,
            lambda_logit: _,
            beta_logit: _,
            half_life: _,
            embedding_std: _,
            activation_checkpointing: _,
        } = *config;
        Self {
            architectures: vec![ARCHITECTURE.into()],
            model_type: MODEL_TYPE.into(),
            torch_dtype: match encoding {
                Encoding::F32 => "float32".into(),
                Encoding::Bf16 => "bfloat16".into(),
            },
            vocab_size: vocab,
            tokenizer_vocab_size: tokenizer.vocab_size(),
            hidden_size: d_model,
            num_hidden_layers: layers,
            num_heads: heads,
            address_size: address,
            key_size: key,
            value_size: value,
            transport_rank: rank,
            intermediate_size: mlp,
            short_conv_width: short_conv,
            query_norm,
            rms_norm_eps: norm_eps,
            tie_word_embeddings: tied,
            rho,
            lambda_pin: lambda,
            tie_beta,
            eos_token_id: tokenizer.eos_id(),
            bos_token_id: tokenizer.bos_id(),
            add_bos_token: bos,
            add_eos_token: eos,
        }
    }

    /// The model that the words describe.
    pub(super) fn model(&self) -> ModelConfig {
        ModelConfig {
            vocab: self.vocab_size,
            d_model: self.hidden_size,
            layers: self.num_hidden_layers,
            heads: self.num_heads,
            address: self.address_size,
            key: self.key_size,
            value: self.value_size,
            rank: self.transport_rank,
            mlp: self.intermediate_size,
            short_conv: self.short_conv_width,
            query_norm: self.query_norm,
            tied: self.tie_word_embeddings,
            norm_eps: self.rms_norm_eps,
            rho: self.rho,
            lambda: self.lambda_pin,
            tie_beta: self.tie_beta,
            ..ModelConfig::default()
        }
    }

    /// Reads a `config.json`.
    ///
    /// # Errors
    /// A file that cannot be read, lacks a key, or describes another kind of model.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let json = std::fs::read(path).map_err(Error::io("read", path))?;
        let value: serde_json::Value =
            serde_json::from_slice(&json).map_err(|error| Error::format(path, error.to_string()))?;
        let kind = value.get("model_type").and_then(serde_json::Value::as_str).unwrap_or("none");
        if kind != MODEL_TYPE {
            return Err(Error::format(
                path,
                format!("its model_type is `{kind}`, only `{MODEL_TYPE}` is known"),
            ));
        }
        serde_json::from_value(value).map_err(|error| Error::format(path, error.to_string()))
    }
}
