//! Launches of `kernels/swiglu.cu`.

use candle_core::Tensor;

use super::{OP, last};
use crate::Result;
use crate::cuda::{Activation, Grid, Int, Stream, Twins, args, rows, twins};

const FORWARD: Twins = twins!("swiglu", "swiglu_forward");
const BACKWARD: Twins = twins!("swiglu", "swiglu_backward");

/// Columns of the output that one block computes: a pair a thread.
const COLUMNS_PER_BLOCK: usize = 512;

pub(super) fn forward<T: Activation>(stream: &Stream, x: &Tensor, shape: Vec<usize>) -> Result<Tensor> {
    let width = last(&shape);
    let grid = grid(x, width)?;
    let mut out = stream.unset::<T>(x.elem_count() / 2)?;
    let x = stream.read::<T>(OP, x)?;
    stream.launch(FORWARD.of::<T>(), grid, &args![&x, &mut out, Int(width)])?;
    stream.tensor(out, shape)
}

pub(super) fn backward<T: Activation>(
    stream: &Stream,
    x: &Tensor,
    dout: &Tensor,
    width: usize,
) -> Result<Tensor> {
    let grid = grid(x, width)?;
    let mut dx = stream.unset::<T>(x.elem_count())?;
    let [input, dout] = stream.read_all::<T, 2>(OP, [x, dout])?;
    stream.launch(BACKWARD.of::<T>(), grid, &args![&input, &dout, &mut dx, Int(width)])?;
    stream.tensor(dx, x.shape())
}

fn grid(x: &Tensor, width: usize) -> Result<Grid> {
    rows::expect_even(OP, "F", width)?;
    let rows = x.elem_count() / (2 * width).max(1);
    Ok(Grid::new(rows * width.div_ceil(COLUMNS_PER_BLOCK), rows::THREADS))
}
