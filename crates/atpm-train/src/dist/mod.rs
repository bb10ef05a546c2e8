//! The seam between one process and many: what processes that train together must agree on.
//!
//! [`Single`] is the only implementation so far. The training step asks through the trait wherever a sum
//! over processes is meant, so that another implementation changes no line of it.

mod single;

pub use single::Single;

use candle_core::Tensor;

/// Sums over the processes of a run. Every process calls the same functions in the same order.
pub trait Collective: Send + Sync {
    /// This process's number, below [`Self::world`].
    fn rank(&self) -> usize;
    /// Processes that train together.
    fn world(&self) -> usize;
    /// Replaces each number by its sum over all processes; the same bits everywhere.
    ///
    /// # Errors
    /// A process that cannot be reached.
    fn sum(&self, numbers: &mut [f64]) -> anyhow::Result<()>;
    /// Replaces each gradient by its sum over all processes, in place; the same bits everywhere.
    ///
    /// # Errors
    /// As [`Self::sum`].
    fn sum_gradients(&self, gradients: &[&Tensor]) -> anyhow::Result<()>;
}
