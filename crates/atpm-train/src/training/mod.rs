//! Training: trainer, step, schedule, evaluation.

pub mod command;
pub mod rate;
pub mod signals;
