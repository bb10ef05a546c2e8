//! The memory suite: models × tasks × seeds, trained alike and compared. docs/suite.md describes tasks, protocol
//! and table.
//!
//! Rooms, in reading order: [`config`] (what is compared), [`models`] (their names and sizes), [`trial`] (one model
//! trained on one task), [`evaluation`] (what it then answers), [`results`] (one file a trial), [`kept`] (what it learned),
//! [`protocol`] (sweep, then all trials), [`table`], [`curves`], [`command`]; [`mod@eval`], a trained model asked again; [`matching`], equal
//! sizes for runs on text; and [`ntm`], the Neural Turing machine on tasks of its own. `overrides` reads `--set` for the suite and for it.

pub mod command;
pub mod config;
pub mod curves;
pub mod eval;
pub mod evaluation;
pub mod kept;
pub mod matching;
pub mod models;
pub mod ntm;
mod overrides;
pub mod protocol;
pub mod results;
pub mod table;
pub mod trial;

#[cfg(test)]
mod tests;
