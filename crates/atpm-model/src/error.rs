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
    /// An op refused.
    #[error(transparent)]
    Op(#[from] atpm_core::Error),
    /// A tensor operation failed inside candle.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
}
