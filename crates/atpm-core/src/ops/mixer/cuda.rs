//! Launches of `kernels/mixer.cu`, whose head says which kernel reads and writes what.

use candle_core::Tensor;

use super::cpu::{CHUNK, Sizes};
use super::{Gradients, Inputs, OP, Outputs, Saved, Shape, Transport, states_shape};
use crate::cuda::limits::{ADDRESS_STEP, ENTITY_STEP, MOST_HEAD, MOST_RANK};
use crate::cuda::{Activation, Arg, Buffer, Grid, Int, Kernel, Stream, Twins, args, twins};
use crate::{Error, Result};

const ADDRESSES: Twins = twins!("mixer", "mixer_addresses");
const PREPARE: Twins = twins!("mixer", "mixer_prepare");
const SCAN: Twins = twins!("mixer", "mixer_scan");
const SCAN_BACKWARD: Twins = twins!("mixer", "mixer_scan_backward");
const ENTITY_BACKWARD: Twins = twins!("mixer", "mixer_entity_backward");
const ADDRESS_BACKWARD: Twins = twins!("mixer", "mixer_address_backward");
const ADDRESSES_BACKWARD: Twins = twins!("mixer", "mixer_addresses_backward");
const TRANSPORT_GRADIENTS: Kernel = Kernel { file: "mixer", name: "mixer_transport_gradients" };

const THREADS: i32 = 128;
/// Columns of a slice of the entity, and rows and columns of a tile.
const TILE: usize = 64;
/// Elements of a chunk's square matrix.
const SQUARE: usize = TILE * TILE;
/// Chunks of one block of `addresses_backward`.
const CHUNKS_PER_GROUP: usize = 8;
/// Columns of the scans' narrowest slices.
const NARROWEST: usize = TILE / 4;
/// Multiprocessors of a large device (an H100): as many blocks run at once, each with one of its own. A constant, so that
/// what is launched depends on sizes alone.
const MULTIPROCESSORS: usize = 132;

/// Numbers of blocks, and sizes of scratch.
struct Plan<'a> {
    sizes: &'a Sizes,
    /// Chunks of all heads of all rows.
    chunks: usize,
    /// Rows of scratch: whole chunks of tokens.
    rows: usize,
    /// Blocks of `addresses_backward`.
    groups: usize,
    /// Numbers of which the factors of a chunk that need the digits are sums: bf16 takes two.
    parts: usize,
    /// Bytes of a tile in shared memory, whose rows are padded by 16 bytes.
    tile_bytes: usize,
}

impl<'a> Plan<'a> {
    fn new<T: Activation>(sizes: &'a Sizes) -> Result<Self> {
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
        Ok(Self {
            sizes,
            chunks,
            rows: chunks * CHUNK,
            groups: states * in_row.div_ceil(CHUNKS_PER_GROUP),
            parts: T::choose(1, 2),
            tile_bytes: TILE * (TILE * size_of::<T>() + 16),
        })
    }

    fn slices(&self, width: usize) -> usize {
        self.sizes.key.div_ceil(width) + self.sizes.value.div_ceil(width)
    }
    /// Columns of the scans' slices: the widest whose state fits in shared memory, narrowed while multiprocessors would
    /// have nothing to do. Every width gives the same bits.
    fn scan_width(&self) -> usize {
        let mut width = if self.sizes.address > 192 { TILE / 2 } else { TILE };
        while width > NARROWEST && self.scan_blocks(width / 2) <= MULTIPROCESSORS {
            width /= 2;
        }
        width
    }
    fn scan_blocks(&self, width: usize) -> usize {
        self.sizes.batch * self.sizes.heads * self.slices(width)
    }
    fn state_elements(&self) -> usize {
        self.sizes.batch * self.sizes.heads * self.sizes.address * self.sizes.entity()
    }
    fn saved_elements(&self) -> usize {
        self.chunks * self.sizes.address * self.sizes.entity()
    }

    fn addresses_bytes(&self) -> usize {
        256 * (self.sizes.address + 4) + 512 + self.tiles(3 * self.parts)
    }
    fn tiles(&self, count: usize) -> usize {
        count * self.tile_bytes
    }
    /// Elements of a square matrix of every chunk.
    fn squares(&self) -> usize {
        self.chunks * self.parts * SQUARE
    }
    fn scan_grid(&self) -> Grid {
        let width = self.scan_width();
        // The state in f32; with bf16 once more as an operand.
        let column = if self.parts == 2 { 6 * width + 32 } else { 4 * width + 16 };
        let state = TILE * self.sizes.address.div_ceil(TILE) * column;
        let shared_bytes = state + self.tiles(2 * self.parts + 2);
        Grid { blocks: self.scan_blocks(width), threads: THREADS, shared_bytes }
    }
    fn grid(blocks: usize, shared_bytes: usize) -> Grid {
        Grid { blocks, threads: THREADS, shared_bytes }
    }
    fn addresses_grid(&self) -> Grid {
        Self::grid(self.chunks, self.addresses_bytes())
    }
    fn prepare_grid(&self) -> Grid {
        Self::grid(self.chunks, 18_432 + self.tiles(3 * self.parts + 1))
    }
    fn entity_backward_grid(&self) -> Grid {
        Self::grid(self.chunks * self.slices(TILE), 1280 + self.tiles(3 * self.parts + 2))
    }
    fn address_backward_grid(&self) -> Grid {
        Self::grid(self.chunks, self.tiles(2 * self.parts + 5))
    }
    fn addresses_backward_grid(&self) -> Grid {
        Self::grid(self.groups, self.addresses_bytes() + self.tiles(self.parts + 1))
    }
    /// Shared memory of the largest block.
    fn shared_bytes(&self, backward: bool) -> usize {
        let forward = [self.addresses_grid(), self.prepare_grid(), self.scan_grid()];
        let behind =
            [self.entity_backward_grid(), self.address_backward_grid(), self.addresses_backward_grid()];
        let grids = forward.iter().chain(behind.iter().filter(|_| backward));
        grids.map(|grid| grid.shared_bytes).max().unwrap_or(0)
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
struct Given<T: Activation> {
    x: Buffer<T>,
    controls: Buffer<f32>,
    a_key: Buffer<f32>,
    a_value: Buffer<f32>,
    c: Buffer<f32>,
    starts: Buffer<u8>,
}

impl<T: Activation> Given<T> {
    fn new(stream: &Stream, inputs: &Inputs<'_>) -> Result<Self> {
        let Transport { a_key, a_value, c } = inputs.transport;
        let x = stream.read::<T>(OP, inputs.x)?;
        let [controls, a_key, a_value, c] =
            stream.read_all::<f32, 4>(OP, [inputs.controls, a_key, a_value, c])?;
        let starts = stream.upload(&inputs.segments.flags())?;
        Ok(Self { x, controls, a_key, a_value, c, starts })
    }
}

/// What both passes begin with: addresses, and the chunks' prepared matrices.
struct Scratch<T: Activation> {
    s: Buffer<T>,
    q: Buffer<T>,
    d: Buffer<T>,
    w: Buffer<T>,
    b: Buffer<T>,
    norms: Buffer<f32>,
    gamma_tail: Buffer<f32>,
}

impl<T: Activation> Scratch<T> {
    /// `u0` is for forward, `m` and `n` are for backward.
    fn fill(
        stream: &Stream,
        plan: &Plan<'_>,
        given: &Given<T>,
        u0: Option<&mut Buffer<T>>,
        m: Option<&mut Buffer<T>>,
        n: Option<&mut Buffer<T>>,
    ) -> Result<Self> {
        let addresses = plan.rows * plan.sizes.address;
        let mut scratch = Self {
            s: stream.unset(addresses)?,
            q: stream.unset(addresses)?,
            d: stream.unset(addresses)?,
            w: stream.unset(2 * addresses)?,
            b: stream.unset(plan.squares())?,
            norms: stream.unset(plan.chunks)?,
            gamma_tail: stream.unset(2 * plan.rows)?,
        };
        let Self { s, q, d, w, b, norms, gamma_tail } = &mut scratch;
        let Given { x, controls, a_key, a_value, c, starts } = given;
        let arguments =
            args![x, controls, a_key, a_value, c, &mut *s, &mut *q, &mut *d, norms, plan.sizes.query_norm];
        plan.launch(stream, ADDRESSES.of::<T>(), plan.addresses_grid(), arguments)?;
        let arguments = args![x, controls, starts, &*s, &*q, &*d, w, u0, b, m, n, gamma_tail];
        plan.launch(stream, PREPARE.of::<T>(), plan.prepare_grid(), arguments)?;
        Ok(scratch)
    }
}

/// Bytes of shared memory that the largest block needs, however many rows there are; `backward`: of both passes.
///
/// # Errors
/// Sizes that the kernels do not take.
pub(super) fn shared_bytes<T: Activation>(shape: &Shape, backward: bool) -> Result<usize> {
    let Shape { heads, address, key, value, rank, query_norm } = *shape;
    // With as many rows the scans have their widest slices.
    let (batch, tokens, chunk) = (MULTIPROCESSORS + 1, 1, 1);
    let sizes = Sizes { batch, tokens, heads, address, key, value, rank, query_norm, chunk };
    Ok(Plan::new::<T>(&sizes)?.shared_bytes(backward))
}

pub(super) fn forward<T: Activation>(
    stream: &Stream,
    sizes: &Sizes,
    inputs: &Inputs<'_>,
    save: bool,
) -> Result<(Outputs, Option<Saved>)> {
    let plan = Plan::new::<T>(sizes)?;
    let Sizes { batch, tokens, heads, address, .. } = *sizes;
    let entity = sizes.entity();
    let given = Given::<T>::new(stream, inputs)?;
    let initial = stream.read_optional::<f32>(OP, inputs.state)?;
    let mut u0 = stream.unset::<T>(plan.rows * plan.parts * entity)?;
    let mut scratch = Scratch::fill(stream, &plan, &given, Some(&mut u0), None, None)?;
    let (mut y, mut state) =
        (stream.unset::<T>(batch * tokens * heads * entity)?, stream.unset::<f32>(plan.state_elements())?);
    let mut chunk_states = if save { Some(stream.unset::<T>(plan.saved_elements())?) } else { None };
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
    plan.launch(stream, SCAN.of::<T>(), plan.scan_grid(), arguments)?;
    let outputs = Outputs {
        y: stream.tensor(y, (batch, tokens, heads * entity))?,
        state: stream.tensor(state, &states_shape(sizes))?,
        address_norm: stream.tensor(address_norm, (batch, heads))?,
    };
    let shape = (batch, heads, sizes.chunks(), address, entity);
    let saved = chunk_states.map(|states| stream.tensor(states, shape)).transpose()?;
    Ok((outputs, saved.map(|chunk_states| Saved { chunk_states })))
}

pub(super) fn backward<T: Activation>(
    stream: &Stream,
    sizes: &Sizes,
    inputs: &Inputs<'_>,
    saved: &Saved,
    dy: &Tensor,
    dstate: Option<&Tensor>,
    dtransport: &Transport,
) -> Result<Gradients> {
    let plan = Plan::new::<T>(sizes)?;
    let (entity, slices) = (sizes.entity(), plan.slices(TILE));
    let given = Given::<T>::new(stream, inputs)?;
    let [chunk_states, dy] = stream.read_all::<T, 2>(OP, [&saved.chunk_states, dy])?;
    let dfinal = stream.read_optional::<f32>(OP, dstate)?;
    let (mut m, mut n) = (stream.unset::<T>(plan.squares())?, stream.unset::<T>(2 * plan.squares())?);
    let mut scratch = Scratch::fill(stream, &plan, &given, None, Some(&mut m), Some(&mut n))?;
    let (chunk_gradients, dinitial) = scan_backward(stream, &plan, &mut scratch, &dy, dfinal.as_ref())?;
    let Scratch { s, q, d, b, gamma_tail, .. } = &mut scratch;
    let Given { x, controls, starts, .. } = &given;

    let (mut dr, mut u) = (stream.unset::<T>(plan.rows * entity)?, stream.unset::<T>(plan.rows * entity)?);
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
    plan.launch(stream, ENTITY_BACKWARD.of::<T>(), plan.entity_backward_grid(), arguments)?;

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
    plan.launch(stream, ADDRESS_BACKWARD.of::<T>(), plan.address_backward_grid(), arguments)?;

    let mut inner = InnerGradients { ds, dq, dd, dr, dcontrols };
    let dx = projections_backward(stream, &plan, &given, &mut inner, dtransport)?;
    Ok(Gradients {
        x: stream.tensor(dx, inputs.x.dims())?,
        controls: stream.tensor(inner.dcontrols, inputs.controls.dims())?,
        state: stream.tensor(dinitial, &states_shape(sizes))?,
    })
}

/// Gradients of the state after each chunk, `[B,H,N,S,D]`, and of the first state.
fn scan_backward<T: Activation>(
    stream: &Stream,
    plan: &Plan<'_>,
    Scratch { q, d, w, b, gamma_tail, .. }: &mut Scratch<T>,
    dy: &Buffer<T>,
    dfinal: Option<&Buffer<f32>>,
) -> Result<(Buffer<T>, Buffer<f32>)> {
    let mut chunk_gradients = stream.unset::<T>(plan.saved_elements())?;
    let mut dinitial = stream.unset::<f32>(plan.state_elements())?;
    let arguments = args![
        &*q,
        &*d,
        w,
        b,
        gamma_tail,
        dy,
        dfinal,
        &mut chunk_gradients,
        &mut dinitial,
        Int(plan.scan_width()),
    ];
    plan.launch(stream, SCAN_BACKWARD.of::<T>(), plan.scan_grid(), arguments)?;
    Ok((chunk_gradients, dinitial))
}

/// Gradients of addresses and entity, `[B,H,N,64,·]`, and of the controls, of which ρ and λ are still to be written.
struct InnerGradients<T: Activation> {
    ds: Buffer<f32>,
    dq: Buffer<f32>,
    dd: Buffer<f32>,
    dr: Buffer<T>,
    dcontrols: Buffer<f32>,
}

/// The last step of backward: `dx`; the gradients of ρ and λ; adds to `dtransport`.
fn projections_backward<T: Activation>(
    stream: &Stream,
    plan: &Plan<'_>,
    given: &Given<T>,
    inner: &mut InnerGradients<T>,
    dtransport: &Transport,
) -> Result<Buffer<T>> {
    let Given { x, controls, a_key, a_value, c, .. } = given;
    let InnerGradients { ds, dq, dd, dr, dcontrols } = inner;
    let transport = plan.sizes.rank * (plan.sizes.entity() + plan.sizes.address);
    let (mut dx, mut partials) = (
        stream.unset::<T>(plan.sizes.batch * plan.sizes.tokens * plan.sizes.heads * plan.sizes.channels())?,
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
    plan.launch(stream, ADDRESSES_BACKWARD.of::<T>(), plan.addresses_backward_grid(), arguments)?;

    let Transport { a_key, a_value, c } = dtransport;
    let (mut da_key, mut da_value) =
        (stream.in_place::<f32>(OP, a_key)?, stream.in_place::<f32>(OP, a_value)?);
    let mut dc = stream.in_place::<f32>(OP, c)?;
    let grid = Grid::new((plan.sizes.heads * transport).div_ceil(128), THREADS);
    let arguments = args![&partials, &mut da_key, &mut da_value, &mut dc];
    plan.launch(stream, TRANSPORT_GRADIENTS, grid, arguments)?;
    Ok(dx)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::limits::MOST_SHARED_BYTES;

    // S = 64 and S = 208, K = 24 and V = 72: 3, 4 or 7 slices of 64, 32 or 16 columns.
    #[test]
    fn few_rows_and_heads_have_narrow_slices() -> Result<()> {
        for (batch, address, width) in
            [(1, 64, 16), (9, 64, 16), (10, 64, 32), (16, 64, 32), (17, 64, 64), (9, 208, 16), (17, 208, 32)]
        {
            let sizes = Sizes {
                batch,
                tokens: 5,
                heads: 2,
                address,
                key: 24,
                value: 72,
                rank: 4,
                query_norm: true,
                chunk: 5,
            };
            let plan = Plan::new::<f32>(&sizes)?;
            assert_eq!(plan.scan_width(), width, "{batch} rows, S = {address}");
            assert_eq!(plan.scan_grid().blocks, batch * 2 * plan.slices(width));
        }
        Ok(())
    }

    // What the largest block of each instance needs, counted by hand from the kernels' heads; a GPU with 99 KiB
    // (sm_86, sm_89, sm_120) has enough for heads of 64 in bf16 alone.
    #[test]
    fn the_largest_block_is_known_before_a_launch() -> Result<()> {
        let shape = |address| Shape { heads: 2, address, key: 64, value: 64, rank: 16, query_norm: true };
        let tile = 64 * (4 * 64 + 16);
        assert_eq!(shared_bytes::<f32>(&shape(64), true)?, 7 * tile);
        assert_eq!(shared_bytes::<f32>(&shape(64), false)?, 18_432 + 4 * tile);
        assert_eq!(shared_bytes::<half::bf16>(&shape(64), true)?, 100_864);
        // The scan: two rows of tiles of the state, in f32 and as an operand, and six tiles.
        assert_eq!(
            shared_bytes::<half::bf16>(&shape(80), true)?,
            128 * (6 * 64 + 32) + 6 * 64 * (2 * 64 + 16)
        );
        for address in (16..=256).step_by(16) {
            assert!(shared_bytes::<f32>(&shape(address), true)? <= MOST_SHARED_BYTES, "S = {address}");
            assert!(shared_bytes::<half::bf16>(&shape(address), true)? <= MOST_SHARED_BYTES, "S = {address}");
        }
        assert!(shared_bytes::<f32>(&shape(24), true).is_err());
        Ok(())
    }
}
