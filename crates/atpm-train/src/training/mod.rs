//! Training: trainer, step, schedule, evaluation.

pub mod command;
