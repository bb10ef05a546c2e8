//! Launches of `kernels/mixer.cu`, whose head says which kernel reads and writes what.

use candle_core::Tensor;

use super::cpu::{CHUNK, Sizes};
use super::{Gradients, Inputs, OP, Outputs, Saved, Transport, states_shape};
use crate::cuda::limits::{ADDRESS_STEP, ENTITY_STEP, MOST_HEAD, MOST_RANK};
use crate::cuda::{Arg, Buffer, Grid, Int, Kernel, Stream, args};
use crate::{Error, Result};

const ADDRESSES: Kernel = kernel("mixer_addresses_f32");
const PREPARE: Kernel = kernel("mixer_prepare_f32");
const SCAN: Kernel = kernel("mixer_scan_f32");
const SCAN_BACKWARD: Kernel = kernel("mixer_scan_backward_f32");
const ENTITY_BACKWARD: Kernel = kernel("mixer_entity_backward_f32");
const ADDRESS_BACKWARD: Kernel = kernel("mixer_address_backward_f32");
const ADDRESSES_BACKWARD: Kernel = kernel("mixer_addresses_backward_f32");
const TRANSPORT_GRADIENTS: Kernel = kernel("mixer_transport_gradients");

const fn kernel(name: &'static str) -> Kernel {
    Kernel { file: "mixer", name }
}

const THREADS: i32 = 128;
/// Columns of a slice of the entity, and rows and columns of a tile.
const TILE: usize = 64;
/// Elements of a chunk's square matrix.
const SQUARE: usize = TILE * TILE;
/// Bytes of a tile in shared memory, whose rows are padded by four f32.
const TILE_BYTES: usize = TILE * (TILE + 4) * size_of::<f32>();
/// Chunks of one block of `addresses_backward`.
const CHUNKS_PER_GROUP: usize = 8;

/// Numbers of blocks, and sizes of scratch.
struct Plan<'a> {
    sizes: &'a Sizes,
    /// Chunks of all heads of all rows.
    chunks: usize,
    /// Rows of scratch: whole chunks of tokens.
    rows: usize,
    /// Blocks of `addresses_backward`.
    groups: usize,
}

impl<'a> Plan<'a> {
    fn new(sizes: &'a Sizes) -> Result<Self> {
        let Sizes { batch, tokens, heads, address, key, value, rank, .. } = *sizes;
        let fits = address.is_multiple_of(ADDRESS_STEP)
            && key.is_multiple_of(ENTITY_STEP)
            && value.is_multiple_of(ENTITY_STEP);
        if tokens == 0 || !fits || address.max(key).max(value) > MOST_HEAD || rank > MOST_RANK {
            let problem = format!(
                "on CUDA a row has at least one token, S is a multiple of {ADDRESS_STEP}, K and V are of \
                 {ENTITY_STEP}, each is at most {MOST_HEAD}, and R at most {MOST_RANK}; got T = {tokens}, \
                 S = {address}, K = {key}, V = {value}, R = {rank}"
            );
            return Err(Error::Argument { op: OP, problem });
        }
        let (states, in_row) = (batch * heads, tokens.div_ceil(CHUNK));
        let chunks = states * in_row;
        Ok(Self { sizes, chunks, rows: chunks * CHUNK, groups: states * in_row.div_ceil(CHUNKS_PER_GROUP) })
    }

    fn slices(&self, width: usize) -> usize {
        self.sizes.key.div_ceil(width) + self.sizes.value.div_ceil(width)
    }
    /// Columns of the scans' slices: the widest whose state fits in shared memory.
    fn scan_width(&self) -> usize {
        if self.sizes.address > 192 { TILE / 2 } else { TILE }
    }
    fn state_elements(&self) -> usize {
        self.sizes.batch * self.sizes.heads * self.sizes.address * self.sizes.entity()
    }
    fn saved_elements(&self) -> usize {
        self.chunks * self.sizes.address * self.sizes.entity()
    }

    fn addresses_bytes(&self) -> usize {
        256 * (self.sizes.address + 4) + 512 + 3 * TILE_BYTES
    }
    fn scan_grid(&self) -> Grid {
        let width = self.scan_width();
        let state = TILE * self.sizes.address.div_ceil(TILE) * (4 * width + 16);
        let blocks = self.sizes.batch * self.sizes.heads * self.slices(width);
        Grid { blocks, threads: THREADS, shared_bytes: state + 4 * TILE_BYTES }
    }
    fn grid(blocks: usize, shared_bytes: usize) -> Grid {
        Grid { blocks, threads: THREADS, shared_bytes }
    }

    /// Launches with the sizes after the other arguments, as every kernel here takes them.
    fn launch<const N: usize>(
        &self,
        stream: &Stream,
        kernel: Kernel,
        grid: Grid,
        arguments: [Arg<'_>; N],
    ) -> Result<()> {
        let Sizes { batch, tokens, heads, address, key, value, rank, .. } = *self.sizes;
        let sizes = [batch, tokens, heads, address, key, value, rank].map(|size| Arg::from(Int(size)));
        let arguments: Vec<Arg<'_>> = arguments.into_iter().chain(sizes).collect();
        stream.launch(kernel, grid, &arguments)
    }
}

/// The inputs in device memory.
struct Given {
    x: Buffer<f32>,
    controls: Buffer<f32>,
    a_key: Buffer<f32>,
    a_value: Buffer<f32>,
    c: Buffer<f32>,
    starts: Buffer<u8>,
}

impl Given {
    fn new(stream: &Stream, inputs: &Inputs<'_>) -> Result<Self> {
        let Transport { a_key, a_value, c } = inputs.transport;
        let tensors = [inputs.x, inputs.controls, a_key, a_value, c];
        let [x, controls, a_key, a_value, c] = stream.read_all(OP, tensors)?;
        let starts = stream.upload(&inputs.segments.flags())?;
        Ok(Self { x, controls, a_key, a_value, c, starts })
    }
}

/// What both passes begin with: addresses, and the chunks' prepared matrices.
struct Scratch {
    s: Buffer<f32>,
    q: Buffer<f32>,
    d: Buffer<f32>,
    w: Buffer<f32>,
    b: Buffer<f32>,
    norms: Buffer<f32>,
    gamma_tail: Buffer<f32>,
}

impl Scratch {
    /// `u0` is for forward, `m` and `n` are for backward.
    fn fill(
        stream: &Stream,
        plan: &Plan<'_>,
        given: &Given,
        u0: Option<&mut Buffer<f32>>,
        m: Option<&mut Buffer<f32>>,
        n: Option<&mut Buffer<f32>>,
    ) -> Result<Self> {
        let addresses = plan.rows * plan.sizes.address;
        let mut scratch = Self {
            s: stream.unset::<f32>(addresses)?,
            q: stream.unset::<f32>(addresses)?,
            d: stream.unset::<f32>(addresses)?,
            w: stream.unset::<f32>(2 * addresses)?,
            b: stream.unset::<f32>(plan.chunks * SQUARE)?,
            norms: stream.unset::<f32>(plan.chunks)?,
            gamma_tail: stream.unset::<f32>(2 * plan.rows)?,
        };
        let Self { s, q, d, w, b, norms, gamma_tail } = &mut scratch;
        let Given { x, controls, a_key, a_value, c, starts } = given;
        let arguments =
            args![x, controls, a_key, a_value, c, &mut *s, &mut *q, &mut *d, norms, plan.sizes.query_norm];
        plan.launch(stream, ADDRESSES, Plan::grid(plan.chunks, plan.addresses_bytes()), arguments)?;
        let arguments = args![x, controls, starts, &*s, &*q, &*d, w, u0, b, m, n, gamma_tail];
        plan.launch(stream, PREPARE, Plan::grid(plan.chunks, 18_432 + 4 * TILE_BYTES), arguments)?;
        Ok(scratch)
    }
}

pub(super) fn forward(
    stream: &Stream,
    sizes: &Sizes,
    inputs: &Inputs<'_>,
    save: bool,
) -> Result<(Outputs, Option<Saved>)> {
    let plan = Plan::new(sizes)?;
    let Sizes { batch, tokens, heads, address, .. } = *sizes;
    let entity = sizes.entity();
    let given = Given::new(stream, inputs)?;
    let initial = stream.read_optional(OP, inputs.state)?;
    let mut u0 = stream.unset::<f32>(plan.rows * entity)?;
    let mut scratch = Scratch::fill(stream, &plan, &given, Some(&mut u0), None, None)?;
    let (mut y, mut state) =
        (stream.unset::<f32>(batch * tokens * heads * entity)?, stream.unset::<f32>(plan.state_elements())?);
    let mut chunk_states = if save { Some(stream.unset::<f32>(plan.saved_elements())?) } else { None };
    let mut address_norm = stream.unset::<f32>(batch * heads)?;
    let Scratch { q, d, w, b, norms, gamma_tail, .. } = &mut scratch;
    let arguments = args![
        &*q,
        &*d,
        w,
        &mut u0,
        b,
        gamma_tail,
        &*norms,
        initial.as_ref(),
        &mut y,
        &mut state,
        chunk_states.as_mut(),
        &mut address_norm,
        Int(plan.scan_width()),
    ];
    plan.launch(stream, SCAN, plan.scan_grid(), arguments)?;
    let outputs = Outputs {
        y: stream.tensor(y, (batch, tokens, heads * entity))?,
        state: stream.tensor(state, &states_shape(sizes))?,
        address_norm: stream.tensor(address_norm, (batch, heads))?,
    };
    let shape = (batch, heads, sizes.chunks(), address, entity);
    let saved = chunk_states.map(|states| stream.tensor(states, shape)).transpose()?;
    Ok((outputs, saved.map(|chunk_states| Saved { chunk_states })))
}

pub(super) fn backward(
    stream: &Stream,
    sizes: &Sizes,
    inputs: &Inputs<'_>,
    saved: &Saved,
    dy: &Tensor,
    dstate: Option<&Tensor>,
    dtransport: &Transport,
) -> Result<Gradients> {
    let plan = Plan::new(sizes)?;
    let (entity, slices) = (sizes.entity(), plan.slices(TILE));
    let given = Given::new(stream, inputs)?;
    let [chunk_states, dy] = stream.read_all(OP, [&saved.chunk_states, dy])?;
    let dfinal = stream.read_optional(OP, dstate)?;
    let (mut m, mut n) =
        (stream.unset::<f32>(plan.chunks * SQUARE)?, stream.unset::<f32>(2 * plan.chunks * SQUARE)?);
    let mut scratch = Scratch::fill(stream, &plan, &given, None, Some(&mut m), Some(&mut n))?;
    let Scratch { s, q, d, w, b, gamma_tail, .. } = &mut scratch;
    let Given { x, controls, starts, .. } = &given;

    let mut chunk_gradients = stream.unset::<f32>(plan.saved_elements())?;
    let mut dinitial = stream.unset::<f32>(plan.state_elements())?;
    let arguments = args![
        &*q,
        &*d,
        w,
        &mut *b,
        &mut *gamma_tail,
        &dy,
        dfinal.as_ref(),
        &mut chunk_gradients,
        &mut dinitial,
        Int(plan.scan_width()),
    ];
    plan.launch(stream, SCAN_BACKWARD, plan.scan_grid(), arguments)?;

    let (mut dr, mut u) =
        (stream.unset::<f32>(plan.rows * entity)?, stream.unset::<f32>(plan.rows * entity)?);
    let mut per_token = stream.unset::<f32>(plan.rows * slices * 2)?;
    let (states, gradients) = (&chunk_states, &chunk_gradients);
    let arguments = args![
        x,
        controls,
        starts,
        &*s,
        &*q,
        &*d,
        &mut *b,
        &mut m,
        &mut n,
        &mut *gamma_tail,
        states,
        gradients,
        &dy,
        &mut dr,
        &mut u,
        &mut per_token,
    ];
    plan.launch(stream, ENTITY_BACKWARD, Plan::grid(plan.chunks * slices, 1280 + 5 * TILE_BYTES), arguments)?;

    let addresses = plan.rows * sizes.address;
    let (mut ds, mut dq, mut dd) =
        (stream.unset::<f32>(addresses)?, stream.unset::<f32>(addresses)?, stream.unset::<f32>(addresses)?);
    let mut dcontrols = stream.unset::<f32>(inputs.controls.elem_count())?;
    let arguments = args![
        controls,
        starts,
        &*s,
        &*q,
        &*d,
        b,
        &mut m,
        gamma_tail,
        states,
        gradients,
        &dy,
        &mut dr,
        &mut u,
        &mut per_token,
        &mut ds,
        &mut dq,
        &mut dd,
        &mut dcontrols,
    ];
    plan.launch(stream, ADDRESS_BACKWARD, Plan::grid(plan.chunks, 7 * TILE_BYTES), arguments)?;

    let mut inner = InnerGradients { ds, dq, dd, dr, dcontrols };
    let dx = projections_backward(stream, &plan, &given, &mut inner, dtransport)?;
    Ok(Gradients {
        x: stream.tensor(dx, inputs.x.dims())?,
        controls: stream.tensor(inner.dcontrols, inputs.controls.dims())?,
        state: stream.tensor(dinitial, &states_shape(sizes))?,
    })
}

/// Gradients of addresses and entity, `[B,H,N,64,·]`, and of the controls, of which ρ and λ are still to be written.
struct InnerGradients {
    ds: Buffer<f32>,
    dq: Buffer<f32>,
    dd: Buffer<f32>,
    dr: Buffer<f32>,
    dcontrols: Buffer<f32>,
}

/// The last step of backward: `dx`; the gradients of ρ and λ; adds to `dtransport`.
fn projections_backward(
    stream: &Stream,
    plan: &Plan<'_>,
    given: &Given,
    inner: &mut InnerGradients,
    dtransport: &Transport,
) -> Result<Buffer<f32>> {
    let Given { x, controls, a_key, a_value, c, .. } = given;
    let InnerGradients { ds, dq, dd, dr, dcontrols } = inner;
    let transport = plan.sizes.rank * (plan.sizes.entity() + plan.sizes.address);
    let (mut dx, mut partials) = (
        stream
            .unset::<f32>(plan.sizes.batch * plan.sizes.tokens * plan.sizes.heads * plan.sizes.channels())?,
        stream.unset::<f32>(plan.groups * transport)?,
    );
    let arguments = args![
        x,
        controls,
        a_key,
        a_value,
        c,
        &*ds,
        &*dq,
        &*dd,
        &*dr,
        &mut dx,
        dcontrols,
        &mut partials,
        plan.sizes.query_norm,
    ];
    let grid = Plan::grid(plan.groups, plan.addresses_bytes() + 2 * TILE_BYTES);
    plan.launch(stream, ADDRESSES_BACKWARD, grid, arguments)?;

    let Transport { a_key, a_value, c } = dtransport;
    let (mut da_key, mut da_value) = (stream.in_place(OP, a_key)?, stream.in_place(OP, a_value)?);
    let mut dc = stream.in_place(OP, c)?;
    let grid = Grid::new((plan.sizes.heads * transport).div_ceil(128), THREADS);
    let arguments = args![&partials, &mut da_key, &mut da_value, &mut dc];
    plan.launch(stream, TRANSPORT_GRADIENTS, grid, arguments)?;
    Ok(dx)
}
