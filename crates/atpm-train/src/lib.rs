//! The trainer: one binary that trains, evaluates, resumes, generates, exports and plots.
//!
//! Rooms, in reading order: [`run`] (command line, configuration, run folder, exit codes),
//! [`training`] (trainer, step, schedule, evaluation), [`dist`] (the collective seam), [`checkpoint`]
//! (layout, save, load, verify-resume), [`inference`] (eval, generate, export), [`report`] (metrics, sinks,
//! plot), [`suite`] (models compared on memory tasks), [`inspect`] (what a trained memory does, token by token), [`mod@bench`] (speed, side by side), [`doctor`] (whether this machine
//! computes what it should).

pub mod bench;
pub mod checkpoint;
pub mod dist;
pub mod doctor;
pub mod inference;
pub mod inspect;
pub mod report;
pub mod run;
pub mod suite;
pub mod training;
