//! The ATPM mixer: one joint key/value state per head, decayed, compared, polarised, transported,
//! rewritten and read at every token.
//!
//! Shapes: `B` rows, `T` tokens, `H` heads, `S` address, `K`/`V` the entity's blocks, `D = K + V`,
//! `R` transport rank. Per head and token, with `E [S,D]` the state:
//!
//! | step | formula |
//! |---|---|
//! | source | `s = s_raw/√(Σs_raw² + ε)`; `q0` likewise when `query_norm` |
//! | proposal | `z = (A_K·RMS0(k)) ⊙ (A_V·RMS0(v))`, `c = C z/√R`, `b = c/√(1+‖c‖²)` |
//! | transport | `τ = b − (sᵀb)s`, `d = s + ρτ`, hence `sᵀd = 1` where `ε` does not show |
//! | decay | `Ē = αE₋`; at a document's first token `α = 0` |
//! | compare | `r = e − Ēᵀs`, `e = [k; v]` |
//! | rewrite | `E = Ē + d(Ωr)ᵀ`, `Ω = β_K` on the first `K` columns, `β_V` on the rest |
//! | recall | `a = d/‖d‖`, `q = q0 + λ(1 − q0ᵀa)a`, `y = Eᵀq`: read after write |
//!
//! A source of zeros that is not transported (`ρb = 0`) has `d = 0`, hence no direction. There `a = 0` with gradient 0:
//! nothing is written, and the query stays `q0`, as with `λ = 0`. So it is wherever `‖d‖²` rounds to zero.
//!
//! Chunks of 64 tokens are done at once (WY form, see [`forward`]'s kernel in `cpu/chunk.rs`), from
//! the projections to `y` without any `[B,T,H,·]` intermediate. Saved for backward: the state at each
//! chunk's start; all else is recomputed. dtype f32 (f64 in tests), decays in f64.
//!
//! Pinned controllers give the known limits: `ρ = λ = 0` with `β_K = β_V` is Gated DeltaNet
//! (Yang et al., 2024).

mod cpu;
mod cuda;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::Tensor;
use half::bf16;

use crate::cuda::limits::Demand;
use crate::cuda::{stream_of, with_activation};
use crate::elements::{Element, expect_shape, read_all, real_dtype, tensor, update, with_real};
use crate::vector::{Precision, unset};
use crate::{Error, Result, Segments};
pub use cpu::CHUNK;
use cpu::{NORM_EPS, Sizes};

const OP: &str = "mixer";

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
    /// Bytes of shared memory that the largest block of the mixer's CUDA kernels needs.
    ///
    /// # Errors
    /// Sizes that the kernels do not take.
    pub fn gpu_block_bytes(&self, demand: Demand) -> Result<usize> {
        match demand.precision {
            Precision::F32 => cuda::shared_bytes::<f32>(self, demand.backward),
            Precision::Bf16 => cuda::shared_bytes::<bf16>(self, demand.backward),
        }
    }

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
    /// The state after the last token, `[B,H,S,D]`; without tokens, the one before them.
    pub state: Tensor,
    /// Mean `‖d‖` over the tokens, `[B,H]`: how far transport stretches the write address (telemetry). 0 without tokens.
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
/// Shapes or dtypes that do not fit, a device without an implementation; on CUDA rows without tokens, and sizes that
/// the kernels do not take.
pub fn forward(shape: &Shape, inputs: &Inputs<'_>, save: bool) -> Result<(Outputs, Option<Saved>)> {
    let sizes = check(shape, inputs)?;
    if let Some(stream) = stream_of(inputs.x)? {
        return with_activation!(OP, inputs.x, T => cuda::forward::<T>(&stream, &sizes, inputs, save));
    }
    with_real!(dtype(inputs)?, T => forward_as::<T>(&sizes, inputs, save))
}

/// Gradients of the inputs from `dy [B,T,H·D]` and, if it has one, the final state's gradient
/// `[B,H,S,D]`; adds to `dtransport`.
///
/// # Errors
/// As [`forward`].
pub fn backward(
    shape: &Shape,
    inputs: &Inputs<'_>,
    saved: &Saved,
    dy: &Tensor,
    dstate: Option<&Tensor>,
    dtransport: &Transport,
) -> Result<Gradients> {
    let sizes = check(shape, inputs)?;
    let Sizes { batch, tokens, heads, address, .. } = sizes;
    let entity = sizes.entity();
    expect_shape(OP, "dy", dy, &[batch, tokens, heads * entity], "[B, T, H·D]")?;
    let states = [batch, heads, sizes.chunks(), address, entity];
    expect_shape(OP, "chunk_states", &saved.chunk_states, &states, "[B, H, N, S, D]")?;
    if let Some(dstate) = dstate {
        expect_shape(OP, "dstate", dstate, &states_shape(&sizes), "[B, H, S, D]")?;
    }
    check_transport(&sizes, dtransport)?;
    if let Some(stream) = stream_of(inputs.x)? {
        return with_activation!(OP, inputs.x, T => {
            cuda::backward::<T>(&stream, &sizes, inputs, saved, dy, dstate, dtransport)
        });
    }
    with_real!(dtype(inputs)?, T => backward_as::<T>(&sizes, inputs, saved, dy, dstate, dtransport))
}

fn forward_as<T: Element>(
    sizes: &Sizes,
    inputs: &Inputs<'_>,
    save: bool,
) -> Result<(Outputs, Option<Saved>)> {
    let Sizes { batch, tokens, heads, address, .. } = *sizes;
    let entity = sizes.entity();
    let state_len = batch * heads * address * entity;
    let mut y = unset::<T>(batch * tokens * heads * entity);
    let mut state = unset::<T>(state_len);
    let mut chunk_states = unset::<T>(if save { state_len * sizes.chunks() } else { 0 });
    let mut address_norm = unset::<T>(batch * heads);
    with_inputs(inputs, |slices| {
        let mut outputs = cpu::Outputs {
            y: &mut y,
            state: &mut state,
            chunk_states: &mut chunk_states,
            address_norm: &mut address_norm,
        };
        cpu::forward(sizes, &slices, &mut outputs);
        Ok(())
    })?;
    let outputs = Outputs {
        y: tensor(y, (batch, tokens, heads * entity))?,
        state: tensor(state, &states_shape(sizes))?,
        address_norm: tensor(address_norm, (batch, heads))?,
    };
    let saved = save
        .then(|| tensor(chunk_states, (batch, heads, sizes.chunks(), address, entity)))
        .transpose()?
        .map(|chunk_states| Saved { chunk_states });
    Ok((outputs, saved))
}

fn backward_as<T: Element>(
    sizes: &Sizes,
    inputs: &Inputs<'_>,
    saved: &Saved,
    dy: &Tensor,
    dstate: Option<&Tensor>,
    dtransport: &Transport,
) -> Result<Gradients> {
    let Sizes { batch, tokens, heads, address, .. } = *sizes;
    let mut dx = unset::<T>(batch * tokens * heads * sizes.channels());
    let mut dcontrols = unset::<T>(batch * tokens * 5 * heads);
    let mut dinitial = unset::<T>(batch * heads * address * sizes.entity());
    let Transport { a_key, a_value, c } = dtransport;
    let no_gradient = dy; // stands in where there is no gradient of the final state; not read
    with_inputs(inputs, |slices| {
        read_all(
            OP,
            [&saved.chunk_states, dy, dstate.unwrap_or(no_gradient)],
            |[states, dy, final_gradient]| {
                update(OP, a_key, |a_key| {
                    update(OP, a_value, |a_value| {
                        update(OP, c, |c| {
                            let gradients = cpu::Gradients {
                                x: &mut dx,
                                controls: &mut dcontrols,
                                state: &mut dinitial,
                                transport: cpu::TransportMut { a_key, a_value, c },
                            };
                            let final_gradient = dstate.is_some().then_some(final_gradient);
                            cpu::backward(sizes, &slices, states, dy, final_gradient, gradients);
                            Ok(())
                        })
                    })
                })
            },
        )
    })?;
    Ok(Gradients {
        x: tensor(dx, inputs.x.dims())?,
        controls: tensor(dcontrols, inputs.controls.dims())?,
        state: tensor(dinitial, &states_shape(sizes))?,
    })
}

/// Runs `body` over the inputs as slices.
fn with_inputs<T: Element, R>(
    inputs: &Inputs<'_>,
    body: impl FnOnce(cpu::Inputs<'_, T>) -> Result<R>,
) -> Result<R> {
    let Transport { a_key, a_value, c } = inputs.transport;
    let no_state = inputs.x; // stands in where there is no initial state; not read
    let tensors = [inputs.x, inputs.controls, a_key, a_value, c, inputs.state.unwrap_or(no_state)];
    read_all(OP, tensors, |[x, controls, a_key, a_value, c, state]| {
        body(cpu::Inputs {
            x,
            controls,
            transport: cpu::Transport { a_key, a_value, c },
            state: inputs.state.is_some().then_some(state),
            segments: inputs.segments,
        })
    })
}

fn dtype(inputs: &Inputs<'_>) -> Result<candle_core::DType> {
    let Transport { a_key, a_value, c } = inputs.transport;
    let state = inputs.state.unwrap_or(inputs.x);
    real_dtype(OP, &[inputs.x, inputs.controls, a_key, a_value, c, state])
}

/// Checks every shape against the first input's and gives the sizes of the call.
fn check(shape: &Shape, inputs: &Inputs<'_>) -> Result<Sizes> {
    let Shape { heads, address, key, value, rank, query_norm } = *shape;
    if [heads, address, key, value, rank].contains(&0) {
        return Err(Error::Argument {
            op: OP,
            problem: format!("every size must be at least 1, got {shape:?}"),
        });
    }
    let &[batch, tokens, _] = inputs.x.dims() else {
        let expected = "[B, T, H·(2S+K+V)]".into();
        return Err(Error::Shape { op: OP, argument: "x", got: inputs.x.dims().to_vec(), expected });
    };
    let chunk = CHUNK.min(tokens);
    let sizes = Sizes { batch, tokens, heads, address, key, value, rank, query_norm, chunk };
    expect_shape(OP, "x", inputs.x, &[batch, tokens, heads * shape.channels()], "[B, T, H·(2S+K+V)]")?;
    expect_shape(OP, "controls", inputs.controls, &[batch, tokens, 5, heads], "[B, T, 5, H]")?;
    check_transport(&sizes, inputs.transport)?;
    if let Some(state) = inputs.state {
        expect_shape(OP, "state", state, &states_shape(&sizes), "[B, H, S, D]")?;
    }
    if (inputs.segments.batch(), inputs.segments.tokens()) != (batch, tokens) {
        let (rows, row_tokens) = (inputs.segments.batch(), inputs.segments.tokens());
        let problem = format!("segments are of {rows} rows of {row_tokens} tokens, x of {batch} of {tokens}");
        return Err(Error::Argument { op: OP, problem });
    }
    Ok(sizes)
}

fn check_transport(sizes: &Sizes, transport: &Transport) -> Result<()> {
    let Sizes { heads, address, key, value, rank, .. } = *sizes;
    expect_shape(OP, "A_K", &transport.a_key, &[heads, rank, key], "[H, R, K]")?;
    expect_shape(OP, "A_V", &transport.a_value, &[heads, rank, value], "[H, R, V]")?;
    expect_shape(OP, "C", &transport.c, &[heads, address, rank], "[H, S, R]")
}

/// `[B,H,S,D]`.
fn states_shape(sizes: &Sizes) -> [usize; 4] {
    [sizes.batch, sizes.heads, sizes.address, sizes.entity()]
}
