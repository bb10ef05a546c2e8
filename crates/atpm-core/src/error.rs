//! The one error type of this crate.

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What can go wrong in an op.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument has the wrong shape.
    #[error("{op}: `{argument}` has shape {got:?}, expected {expected}")]
    Shape {
        /// The op that refused.
        op: &'static str,
        /// The argument's name in the op's signature.
        argument: &'static str,
        /// The shape that was given.
        got: Vec<usize>,
        /// The shape that was expected, in the op's letters and in numbers.
        expected: String,
    },
    /// A dtype that the op does not take.
    #[error("{op}: dtype {got} is not supported (expected {expected})")]
    Dtype {
        /// The op that refused.
        op: &'static str,
        /// The dtype that was given.
        got: String,
        /// The dtypes the op takes.
        expected: &'static str,
    },
    /// The op has no implementation for the tensors' device in this build.
    #[error("{op}: no implementation for {device} in this build; move the tensors to the CPU")]
    Device {
        /// The op that refused.
        op: &'static str,
        /// The device of the arguments.
        device: String,
    },
    /// An id outside a table.
    #[error("{op}: id {id} at position {position} is outside the table of {rows} rows")]
    IdOutOfRange {
        /// The op that refused.
        op: &'static str,
        /// The offending id.
        id: u32,
        /// Its position in the flattened ids.
        position: usize,
        /// Rows of the table.
        rows: usize,
    },
    /// Document starts that make no sense.
    #[error("document starts of row {row}: {problem}")]
    Segments {
        /// The row of the batch.
        row: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// Any other argument that an op refuses, said in one sentence.
    #[error("{op}: {problem}")]
    Argument {
        /// The op that refused.
        op: &'static str,
        /// What is wrong and what would be right.
        problem: String,
    },
    /// The CUDA driver or one of its libraries reports an error.
    #[error("CUDA: {action}: {problem}")]
    Cuda {
        /// What was being done.
        action: String,
        /// What the driver or library said.
        problem: String,
    },
    /// A tensor operation failed inside candle.
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
}
