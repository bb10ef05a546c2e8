//! The Neural Turing machine (Graves, Wayne & Danihelka 2014): a controller with a memory that it reads and writes by
//! soft addresses. Forward and a written backward through time, parallel over the rows of a batch.
//!
//! Shapes: `B` rows, `T` steps, `I` inputs, `O` outputs, `H` hidden units, `N` slots, `W` numbers in a slot, `R` read
//! heads. f32 (f64 to check the gradients). The memory is kept as `[W, N]`, so that loops run along slots.
//!
//! One step, from the state `(h, c, r, w, f, M)` of the step before:
//!
//! ```text
//! controller  (i, f, o, g) = W_c [x; r'; h'] + b_c       c = σ(f) c' + σ(i) tanh(g)      h = σ(o) tanh(c)      (LSTM)
//!             h = tanh(W_c [x; r'] + b_c)                                                        (feed-forward)
//! of a head   (p_k, p_β, p_g, p_s, p_γ) = W_h h + b_h
//!             k = tanh(p_k)   β = a softplus(p_β)   g = σ(p_g)   s = softmax(p_s)   γ = 1 + softplus(p_γ)
//! content     z_i = k·M'_i / (√(k·k + ε) √(M'_i·M'_i + ε))           u = softmax(β z)
//! location    d = g u + (1 − g) w'      v_i = s₋₁ d_{i+1} + s₀ d_i + s₊₁ d_{i−1}  (indices mod N)
//!             w_i = (v_i + δ)^γ / Σ_j (v_j + δ)^γ
//! read        r = Σ_i w_i M'_i
//! write       e = σ(p_e)   a = tanh(p_a)
//!             M_ij = M'_ij Π (1 − ŵ_i e_j) + Σ ŵ_i a_j     (product and sum over the write heads)
//! output      y = W_o [h; r] + b_o
//! ```
//!
//! All heads address and read the memory `M'` before the step's writes. `ε = 10⁻⁶` keeps the similarity of an empty slot
//! 0 and its gradient finite, `δ = 10⁻¹²` the logarithm of a weight.
//! `a` is 1, or a factor on `β` that training raises to 1 (annealing: soft addresses first).
//! Without suppression `ŵ = w`. With it (strength `ς`), `ŵ_i = w_i (1 − ς (1 − f'_i))` and `f = f' Π (1 − ŵ)`: `f` is how free
//! a slot is, 1 at the start, and what is written to a much-used slot is held back.
//!
//! A sequence starts with `M = 0`, `h = c = r = 0`, `f = 1`, and every head on slot 0: `w = (1, 0, …, 0)`. The initial bias of `β`
//! is such that `β = 1`, that of the erase gate is +0.8, that of the LSTM's forget gate +1. Collier & Beel (2018) found
//! what the memory starts with to decide whether training converges: a small constant does, random values do not.
//!
//! Reading order: [`config`] · `layout` (the state's and the heads' places) · `controller` · `addressing` · `memory` · `sequence`
//! (forward and backward through time) · [`model`] (parameters, the layer) · [`executor`] (step by step) · [`loss`].

mod addressing;
pub mod config;
mod controller;
pub mod executor;
mod layout;
pub mod loss;
mod memory;
pub mod model;
mod sequence;
#[cfg(test)]
mod tests;
mod weights;

pub use config::{ControllerKind, NtmConfig};
pub use executor::{Executor, Focus};
pub use model::Ntm;
