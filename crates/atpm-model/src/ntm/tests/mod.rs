//! The machine against finite differences, its equations in plain loops, and its own promises.

mod behaviour;
mod equations;
mod gradients;
