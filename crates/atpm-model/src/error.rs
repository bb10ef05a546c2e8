//! The one error type of this crate.

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong in the model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A model configuration that cannot be built.
    #[error("model.{key}: {problem}")]
    Config {
        /// The key of the `[model]` section.
        key: &'static str,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// A parameter whose name and shape do not say whether weight decay applies.
    #[error(
        "parameter `{name}` {shape:?} belongs to no decay group; name it `*.weight` or `*.bias`, \
         or add it to the rule in names.rs"
    )]
    Unclassified {
        /// The parameter's name.
        name: String,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Two parameters of one name, a name that no layer uses, or one that a layer misses.
    #[error("parameter `{name}`: {problem}")]
    Parameter {
        /// The parameter's name.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A layer was handed what another layer saved.
    #[error("{layer}: backward was given what another layer saved")]
    ForeignSaved {
        /// The layer that refused.
        layer: &'static str,
    },
    /// Autograd reached the end without touching a trainable tensor.
    #[error("layer `{layer}`: no gradient reaches `{tensor}`; an operation in the function cuts the graph")]
    MissingGradient {
        /// The layer's name.
        layer: String,
        /// The parameter, or `input`.
        tensor: String,
    },
    /// A layer that cannot go on token by token.
    #[error("layer `{layer}` has no decode path; run whole rows instead")]
    NoDecodePath {
        /// The layer's name.
        layer: String,
    },
    /// A decode state that does not belong to this model or batch.
    #[error("decode state: {problem}")]
    State {
        /// What is wrong with it.
        problem: String,
    },
    /// Ids, targets or segments that do not fit each other.
    #[error("{0}")]
    Input(String),
    /// An op refused.
    #[error(transparent)]
    Op(#[from] atpm_core::Error),
    /// A tensor operation failed inside candle.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
}
