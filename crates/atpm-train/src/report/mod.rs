//! What a run tells: metrics, progress, plots.

pub mod output;
pub mod plot;
