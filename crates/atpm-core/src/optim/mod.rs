//! Parameter updates, in the form of the ops.

pub mod adamw;
