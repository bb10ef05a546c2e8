//! The machine against finite differences, an independent forward, and its own promises.

mod behaviour;
mod gradients;
