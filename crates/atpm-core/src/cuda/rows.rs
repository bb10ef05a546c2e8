//! Launches of ops whose rows are independent (`kernels/common/rows.cuh`), and sums of partial sums.

use candle_core::Tensor;

use super::limits::{MOST_ROW, ROW_STEP, WARPS, row_block_bytes};
use super::{Buffer, Grid, Kernel, Long, Stream, args};
use crate::{Error, Result};

/// Threads of a block.
pub(crate) const THREADS: i32 = 256;
/// Lanes of a warp.
const LANES: usize = 32;
/// Rows of one block in backward, and with it the number of partial sums.
const ROWS_PER_BLOCK: usize = 64;

const ADD_PARTIALS: Kernel = Kernel { file: "partials", name: "add_partials" };

/// The grid of a forward kernel.
pub(crate) fn forward_grid(rows: usize) -> Grid {
    Grid::new(rows.div_ceil(WARPS), THREADS)
}

/// The grid of a backward kernel; its blocks are the rows of `partials [blocks, width]`.
pub(crate) fn backward_grid(rows: usize, width: usize) -> Grid {
    Grid { blocks: rows.div_ceil(ROWS_PER_BLOCK), threads: THREADS, shared_bytes: row_block_bytes(width) }
}

/// `sum [width] += Σ partials [count, width]`, in order.
pub(crate) fn add_partials(
    stream: &Stream,
    partials: &Buffer<f32>,
    count: usize,
    width: usize,
    sum: &mut Buffer<f32>,
) -> Result<()> {
    stream.launch(ADD_PARTIALS, sum_grid(width), &args![partials, Long(count), Long(width), sum])
}

/// `sum += term`, of this many elements, the term's from one of its buffer's on.
pub(crate) fn add(
    stream: &Stream,
    term: (&Buffer<f32>, usize),
    elements: usize,
    sum: &mut Buffer<f32>,
) -> Result<()> {
    stream.launch(ADD_PARTIALS, sum_grid(elements), &args![term, Long(1), Long(elements), sum])
}

fn sum_grid(width: usize) -> Grid {
    Grid::new(width.div_ceil(WARPS * LANES), THREADS)
}

/// Refuses an odd width: kernels read pairs of columns.
pub(crate) fn expect_even(op: &'static str, what: &str, width: usize) -> Result<()> {
    if width.is_multiple_of(ROW_STEP) {
        return Ok(());
    }
    Err(Error::Argument { op, problem: format!("on CUDA {what} must be even, got {width}") })
}

/// The number of rows of `x`, which are as wide as `weight`, and their width. Refuses rows that are odd, or too wide
/// for the sums of backward in shared memory.
pub(crate) fn split(op: &'static str, x: &Tensor, weight: &Tensor) -> Result<(usize, usize)> {
    let width = weight.elem_count();
    expect_even(op, "the width of a row", width)?;
    if width <= MOST_ROW {
        return Ok((x.elem_count() / width.max(1), width));
    }
    Err(Error::Argument { op, problem: format!("on CUDA a row has at most {MOST_ROW} columns, got {width}") })
}
