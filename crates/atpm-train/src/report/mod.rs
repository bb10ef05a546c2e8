//! What a run tells: metrics, progress, plots.

pub mod jsonl;
pub mod metrics;
pub mod output;
pub mod plot;
pub mod progress;
