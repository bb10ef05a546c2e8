//! Training, in reading order: [`command`] (from flags to a finished run), [`setup`] and [`estimate`]
//! (before the first step), [`session`] (the loop and what is due between steps), [`trainer`] and
//! [`step`] (what a step changes), [`schedule`], [`evaluation`], [`rate`], [`signals`].

pub mod command;
pub mod estimate;
pub mod evaluation;
pub mod inputs;
pub mod rate;
pub mod schedule;
pub mod session;
pub mod setup;
pub mod signals;
pub(crate) mod step;
#[cfg(test)]
mod tests;
pub mod trainer;

pub use session::{Outcome, Stopped, train};
