//! Models trained on the memory tasks.
//!
//! [`ntm`]: the Neural Turing machine on its own tasks.

pub mod ntm;
