//! The ATPM mixer: one joint key/value state per head, decayed, compared, polarised, transported, rewritten and read at every token.
use crate::{Result, Segments};
use candle_core::Tensor;

/// Sizes of one head and what is normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// `H`, heads.
    pub heads: usize,
    /// `S`, address size.
    pub address: usize,
    /// `K`, the entity's key block.
    pub key: usize,
    /// `V`, the entity's value block.
    pub value: usize,
    /// `R`, transport rank.
    pub rank: usize,
    /// Whether the query is L2-normalised like the source address.
    pub query_norm: bool,
}

impl Shape {
    /// `D = K + V`, the entity's size.
    pub fn entity(&self) -> usize {
        self.key + self.value
    }
    /// `2S + K + V`: what one head reads per token, in the order query, source, key, value.
    pub fn channels(&self) -> usize {
        2 * self.address + self.key + self.value
    }
}

/// Transport weights: `A_K [H,R,K]`, `A_V [H,R,V]`, `C [H,S,R]`.
#[derive(Debug, Clone)]
pub struct Transport {
    /// `A_K [H,R,K]`.
    pub a_key: Tensor,
    /// `A_V [H,R,V]`.
    pub a_value: Tensor,
    /// `C [H,S,R]`.
    pub c: Tensor,
}

/// What the mixer reads.
#[derive(Debug, Clone)]
pub struct Inputs<'a> {
    /// `[B,T,H·(2S+K+V)]`, per head query, source, key, value.
    pub x: &'a Tensor,
    /// `[B,T,5,H]`: log α, β_K, β_V, ρ, λ (see [`super::gates`]).
    pub controls: &'a Tensor,
    /// The transport weights.
    pub transport: &'a Transport,
    /// The state before the first token, `[B,H,S,D]`; zero when absent.
    pub state: Option<&'a Tensor>,
    /// Where documents begin.
    pub segments: &'a Segments,
}

/// What the mixer gives.
#[derive(Debug)]
pub struct Outputs {
    /// `[B,T,H·D]`.
    pub y: Tensor,
    /// The state after the last token, `[B,H,S,D]`.
    pub state: Tensor,
    /// Mean `‖d‖` over the tokens, `[B,H]`: how far transport stretches the write address (telemetry).
    pub address_norm: Tensor,
}

/// What backward needs besides the inputs: the state at the beginning of each chunk.
#[derive(Debug)]
pub struct Saved {
    /// `[B,H,N,S,D]`.
    pub chunk_states: Tensor,
}

/// Gradients of the inputs.
#[derive(Debug)]
pub struct Gradients {
    /// `[B,T,H·(2S+K+V)]`.
    pub x: Tensor,
    /// `[B,T,5,H]`.
    pub controls: Tensor,
    /// `[B,H,S,D]`.
    pub state: Tensor,
}

/// Runs the mixer over a block of rows. `save` keeps what [`backward`] needs.
///
/// # Errors
/// Shapes or dtypes that do not fit, a device without an implementation.
pub fn forward(_shape: &Shape, _inputs: &Inputs<'_>, _save: bool) -> Result<(Outputs, Option<Saved>)> {
    todo!()
}

/// Gradients of the inputs from `dy [B,T,H·D]` and, if it has one, the final state's gradient `[B,H,S,D]`;
/// adds to `dtransport`.
///
/// # Errors
/// As [`forward`].
pub fn backward(
    _shape: &Shape,
    _inputs: &Inputs<'_>,
    _saved: &Saved,
    _dy: &Tensor,
    _dstate: Option<&Tensor>,
    _dtransport: &Transport,
) -> Result<Gradients> {
    todo!()
}
