//! The mixer on slices: one task a (row, head), each walking its chunks in order.
//!
//! A task's working set (a few `chunk × chunk`, `chunk × D` and `S × D` blocks) stays in the core's
//! cache; only what the caller asked for is written to memory. Parameter gradients are summed per
//! task and then over rows in order, so results do not depend on the number of threads.

mod chunk;
mod geometry;
mod solve;
mod triangle;

pub(super) use geometry::NORM_EPS;

use rayon::prelude::*;

use crate::Segments;
use crate::vector::bands::{self, Band};
use crate::vector::{Real, prefetch};
use chunk::Chunk;
use geometry::{Geometry, WeightGradients, Weights};

/// Tokens of a chunk.
pub const CHUNK: usize = 64;

/// Log decay of a document's first token, and the floor of any other: `e^{−1000}` is zero in f32 and in
/// f64, and no more negative than that, since sums of it take digits from the decays after it.
const LOG_ALPHA_FLOOR: f64 = -1e3;

/// Sizes of the whole call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) tokens: usize,
    pub(super) heads: usize,
    pub(super) address: usize,
    pub(super) key: usize,
    pub(super) value: usize,
    pub(super) rank: usize,
    pub(super) query_norm: bool,
    /// Tokens of a full chunk: [`CHUNK`], or all tokens where there are fewer.
    pub(super) chunk: usize,
}

impl Sizes {
    pub(super) fn entity(&self) -> usize {
        self.key + self.value
    }
    pub(super) fn channels(&self) -> usize {
        2 * self.address + self.entity()
    }
    pub(super) fn chunks(&self) -> usize {
        self.tokens.div_ceil(self.chunk.max(1))
    }
    fn state(&self) -> usize {
        self.address * self.entity()
    }
    fn token_range(&self, chunk_idx: usize) -> std::ops::Range<usize> {
        chunk_idx * self.chunk..((chunk_idx + 1) * self.chunk).min(self.tokens)
    }
}

/// The transport weights of all heads: `A_K [H,R,K]`, `A_V [H,R,V]`, `C [H,S,R]`.
#[derive(Clone, Copy)]
pub(super) struct Transport<'a, T> {
    pub(super) a_key: &'a [T],
    pub(super) a_value: &'a [T],
    pub(super) c: &'a [T],
}

/// Gradient buffers of the transport weights, shaped like them.
pub(super) struct TransportMut<'a, T> {
    pub(super) a_key: &'a mut [T],
    pub(super) a_value: &'a mut [T],
    pub(super) c: &'a mut [T],
}

/// What the mixer reads, as slices; layouts as in [`super::Inputs`].
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a, T> {
    pub(super) x: &'a [T],
    pub(super) controls: &'a [T],
    pub(super) transport: Transport<'a, T>,
    pub(super) state: Option<&'a [T]>,
    pub(super) segments: &'a Segments,
}

/// What forward writes; `chunk_states` may be empty when nothing is saved.
pub(super) struct Outputs<'a, T> {
    pub(super) y: &'a mut [T],
    pub(super) state: &'a mut [T],
    pub(super) chunk_states: &'a mut [T],
    pub(super) address_norm: &'a mut [T],
}

/// What backward writes; `transport` is added to.
pub(super) struct Gradients<'a, T> {
    pub(super) x: &'a mut [T],
    pub(super) controls: &'a mut [T],
    pub(super) state: &'a mut [T],
    pub(super) transport: TransportMut<'a, T>,
}

/// One chunk's controls of one head, or their gradients.
struct Controls<T> {
    tokens: usize,
    /// Running sum of log α from the chunk's first token on; as a gradient, that of log α itself.
    cumulative: Vec<f64>,
    beta_key: Vec<T>,
    beta_value: Vec<T>,
    rho: Vec<T>,
    lambda: Vec<T>,
}

impl<T: Real> Controls<T> {
    fn new(chunk: usize) -> Self {
        let zeros = || vec![T::zero(); chunk];
        Self {
            tokens: 0,
            cumulative: vec![0.0; chunk],
            beta_key: zeros(),
            beta_value: zeros(),
            rho: zeros(),
            lambda: zeros(),
        }
    }

    /// Loads the controls of one head over the tokens of one chunk.
    fn load(&mut self, sizes: &Sizes, inputs: &Inputs<'_, T>, at: Head, chunk_idx: usize) {
        let range = sizes.token_range(chunk_idx);
        self.tokens = range.len();
        let mut sum = 0.0;
        for (slot, token) in range.enumerate() {
            let control = |index: usize| {
                inputs.controls[((at.row * sizes.tokens + token) * 5 + index) * sizes.heads + at.head]
            };
            let log_alpha = control(0).wide();
            // Written so that a NaN stays one.
            let floored = if log_alpha < LOG_ALPHA_FLOOR { LOG_ALPHA_FLOOR } else { log_alpha };
            sum += if inputs.segments.is_start(at.row, token) { LOG_ALPHA_FLOOR } else { floored };
            self.cumulative[slot] = sum;
            self.beta_key[slot] = control(1);
            self.beta_value[slot] = control(2);
            self.rho[slot] = control(3);
            self.lambda[slot] = control(4);
        }
    }
}

/// Which head of which row.
#[derive(Debug, Clone, Copy)]
struct Head {
    row: usize,
    head: usize,
}

/// A core's working memory, reused from task to task.
struct Workspace<T> {
    geometry: Geometry<T>,
    chunk: Chunk<T>,
    controls: Controls<T>,
    dcontrols: Controls<T>,
}

impl<T: Real> Workspace<T> {
    fn new(sizes: &Sizes) -> Self {
        Self {
            geometry: Geometry::new(sizes),
            chunk: Chunk::new(sizes),
            controls: Controls::new(sizes.chunk),
            dcontrols: Controls::new(sizes.chunk),
        }
    }

    /// Fills controls and geometry of one chunk; returns `Σ‖d‖`. Calls `ahead` once for every token of the
    /// chunk, to ask for what comes next: a head's rows lie too far apart for the processor to guess.
    fn prepare(
        &mut self,
        sizes: &Sizes,
        inputs: &Inputs<'_, T>,
        at: Head,
        chunk_idx: usize,
        ahead: impl FnMut(usize),
    ) -> f64 {
        self.controls.load(sizes, inputs, at, chunk_idx);
        let first = sizes.token_range(chunk_idx).start;
        let row = |t: usize| inputs.row(sizes, at, first + t);
        self.geometry.forward(sizes, row, ahead, &self.controls)
    }
}

impl<'a, T> Inputs<'a, T> {
    /// Asks for what one head reads at one token, if there is such a token.
    #[inline(always)]
    fn prefetch(&self, sizes: &Sizes, at: Head, token: usize) {
        if token < sizes.tokens {
            prefetch(self.row(sizes, at, token));
        }
    }

    /// What one head reads at one token.
    #[inline(always)]
    fn row(&self, sizes: &Sizes, at: Head, token: usize) -> &'a [T] {
        let channels = sizes.channels();
        &self.x[((at.row * sizes.tokens + token) * sizes.heads + at.head) * channels..][..channels]
    }

    fn initial_state(&self, sizes: &Sizes, task: usize) -> Option<&'a [T]> {
        self.state.map(|state| &state[task * sizes.state()..][..sizes.state()])
    }
}

impl<'a, T> Transport<'a, T> {
    fn of(&self, sizes: &Sizes, head: usize) -> Weights<'a, T> {
        let (key, value, c) = transport_sizes(sizes);
        Weights {
            a_key: &self.a_key[head * key..][..key],
            a_value: &self.a_value[head * value..][..value],
            c: &self.c[head * c..][..c],
        }
    }
}

/// Elements of one head's `A_K, A_V, C`.
fn transport_sizes(sizes: &Sizes) -> (usize, usize, usize) {
    (sizes.rank * sizes.key, sizes.rank * sizes.value, sizes.address * sizes.rank)
}

/// The `(row, head)` bands of a `[B,T,H·width]` buffer, in task order.
fn head_bands<'a, T>(buffer: &'a mut [T], sizes: &Sizes, width: usize) -> Vec<Band<'a, T>> {
    let row = sizes.tokens * sizes.heads * width;
    if row == 0 {
        return Vec::new();
    }
    buffer.chunks_exact_mut(row).flat_map(|row| bands::split(row, sizes.tokens, sizes.heads, width)).collect()
}

pub(super) fn forward<T: Real>(sizes: &Sizes, inputs: &Inputs<'_, T>, outputs: &mut Outputs<'_, T>) {
    if sizes.tokens == 0 {
        return forward_nothing(inputs, outputs);
    }
    let (state, saved) = (sizes.state(), sizes.chunks() * sizes.state());
    let mut chunk_states: Vec<&mut [T]> = outputs.chunk_states.chunks_mut(saved.max(1)).collect();
    chunk_states.resize_with(sizes.batch * sizes.heads, Default::default);
    head_bands(outputs.y, sizes, sizes.entity())
        .into_par_iter()
        .zip(outputs.state.par_chunks_mut(state))
        .zip(chunk_states)
        .zip(outputs.address_norm.par_iter_mut())
        .enumerate()
        .for_each_init(
            || Workspace::new(sizes),
            |workspace, (task, (((y, state), chunk_states), address_norm))| {
                let norms = forward_head(workspace, sizes, inputs, task, y, state, chunk_states);
                *address_norm = T::of(norms / sizes.tokens as f64);
            },
        );
}

/// Rows without tokens: there is no band of `y` to walk along, and the state goes through as it is.
fn forward_nothing<T: Real>(inputs: &Inputs<'_, T>, outputs: &mut Outputs<'_, T>) {
    match inputs.state {
        Some(initial) => outputs.state.copy_from_slice(initial),
        None => outputs.state.fill(T::zero()),
    }
    outputs.address_norm.fill(T::zero());
}

/// Walks the chunks of one head; returns `Σ‖d‖`.
fn forward_head<T: Real>(
    workspace: &mut Workspace<T>,
    sizes: &Sizes,
    inputs: &Inputs<'_, T>,
    task: usize,
    mut y: Band<'_, T>,
    state: &mut [T],
    chunk_states: &mut [T],
) -> f64 {
    let at = Head { row: task / sizes.heads, head: task % sizes.heads };
    match inputs.initial_state(sizes, task) {
        Some(initial) => state.copy_from_slice(initial),
        None => state.fill(T::zero()),
    }
    workspace.geometry.load_weights(sizes, inputs.transport.of(sizes, at.head));
    let mut saved = chunk_states.chunks_exact_mut(sizes.state());
    let mut norms = 0.0;
    for chunk_idx in 0..sizes.chunks() {
        if let Some(saved) = saved.next() {
            saved.copy_from_slice(state);
        }
        let range = sizes.token_range(chunk_idx);
        norms += workspace.prepare(sizes, inputs, at, chunk_idx, |t| {
            inputs.prefetch(sizes, at, range.end + t);
            y.prefetch(range.start + t);
        });
        let Workspace { geometry, chunk, controls, .. } = workspace;
        chunk.forward(sizes, geometry, controls, state);
        for (token, row) in range.zip(chunk.y.chunks_exact(sizes.entity())) {
            y.row_mut(token).copy_from_slice(row);
        }
    }
    norms
}

pub(super) fn backward<T: Real>(
    sizes: &Sizes,
    inputs: &Inputs<'_, T>,
    chunk_states: &[T],
    dy: &[T],
    dstate: Option<&[T]>,
    gradients: Gradients<'_, T>,
) {
    let saved = sizes.chunks() * sizes.state();
    let (key, value, c) = transport_sizes(sizes);
    match dstate {
        Some(dstate) => gradients.state.copy_from_slice(dstate),
        None => gradients.state.fill(T::zero()),
    }
    let partial: Vec<_> = head_bands(gradients.x, sizes, sizes.channels())
        .into_par_iter()
        .zip(gradients.state.par_chunks_mut(sizes.state()))
        .zip(chunk_states.par_chunks(saved.max(1)))
        .enumerate()
        .map_init(
            || Workspace::new(sizes),
            |workspace, (task, ((mut dx, dstate), chunk_states))| {
                let mut partial = Partial::new(sizes, key, value, c);
                backward_head(
                    workspace,
                    sizes,
                    inputs,
                    task,
                    chunk_states,
                    dy,
                    &mut dx,
                    dstate,
                    &mut partial,
                );
                partial
            },
        )
        .collect();
    let TransportMut { a_key, a_value, c: c_gradient } = gradients.transport;
    for (task, partial) in partial.iter().enumerate() {
        let (row, head) = (task / sizes.heads, task % sizes.heads);
        add(&mut a_key[head * key..], &partial.a_key);
        add(&mut a_value[head * value..], &partial.a_value);
        add(&mut c_gradient[head * c..], &partial.c);
        for (token, controls) in partial.controls.chunks_exact(5).enumerate() {
            for (index, &value) in controls.iter().enumerate() {
                let at = ((row * sizes.tokens + token) * 5 + index) * sizes.heads + head;
                gradients.controls[at] = value;
            }
        }
    }
}

/// What one task gives besides its own bands: gradients that are summed or scattered afterwards.
struct Partial<T> {
    a_key: Vec<T>,
    a_value: Vec<T>,
    c: Vec<T>,
    /// `[T,5]`.
    controls: Vec<T>,
}

impl<T: Real> Partial<T> {
    fn new(sizes: &Sizes, key: usize, value: usize, c: usize) -> Self {
        let zeros = |n: usize| vec![T::zero(); n];
        Self { a_key: zeros(key), a_value: zeros(value), c: zeros(c), controls: zeros(5 * sizes.tokens) }
    }
}

fn add<T: Real>(sum: &mut [T], part: &[T]) {
    sum.iter_mut().zip(part).for_each(|(sum, &part)| *sum = *sum + part);
}

/// Walks the chunks of one head backwards, recomputing each from its saved initial state.
#[expect(clippy::too_many_arguments, reason = "one argument a buffer")]
fn backward_head<T: Real>(
    workspace: &mut Workspace<T>,
    sizes: &Sizes,
    inputs: &Inputs<'_, T>,
    task: usize,
    chunk_states: &[T],
    dy: &[T],
    dx: &mut Band<'_, T>,
    dstate: &mut [T],
    partial: &mut Partial<T>,
) {
    let at = Head { row: task / sizes.heads, head: task % sizes.heads };
    let entity = sizes.entity();
    let weights = inputs.transport.of(sizes, at.head);
    workspace.geometry.load_weights(sizes, weights);
    for chunk_idx in (0..sizes.chunks()).rev() {
        let range = sizes.token_range(chunk_idx);
        let dy = |t: usize| {
            &dy[((at.row * sizes.tokens + range.start + t) * sizes.heads + at.head) * entity..][..entity]
        };
        workspace.prepare(sizes, inputs, at, chunk_idx, |t| {
            if let Some(before) = range.start.checked_sub(sizes.chunk) {
                inputs.prefetch(sizes, at, before + t);
            }
            prefetch(dy(t));
            dx.prefetch(range.start + t);
        });
        let Workspace { geometry, chunk, controls, dcontrols } = workspace;
        let state = &chunk_states[chunk_idx * sizes.state()..][..sizes.state()];
        let grads = chunk.backward(sizes, geometry, controls, state, dy, dstate, dcontrols);
        let mut dweights =
            WeightGradients { a_key: &mut partial.a_key, a_value: &mut partial.a_value, c: &mut partial.c };
        geometry.backward(sizes, controls, weights, grads, dcontrols, &mut dweights, dx, range.start);
        for (t, token) in range.enumerate() {
            // Nothing before a document's first token reaches it, so its decay has no gradient.
            let start = inputs.segments.is_start(at.row, token);
            let log_alpha = if start { 0.0 } else { dcontrols.cumulative[t] };
            let controls = [
                T::of(log_alpha),
                dcontrols.beta_key[t],
                dcontrols.beta_value[t],
                dcontrols.rho[t],
                dcontrols.lambda[t],
            ];
            partial.controls[token * 5..][..5].copy_from_slice(&controls);
        }
    }
}
