//! Launches of `kernels/swiglu.cu`.

use candle_core::Tensor;

use super::{OP, last};
use crate::Result;
use crate::cuda::{Grid, Int, Kernel, Stream, args, rows};

const FORWARD: Kernel = Kernel { file: "swiglu", name: "swiglu_forward_f32" };
const BACKWARD: Kernel = Kernel { file: "swiglu", name: "swiglu_backward_f32" };

/// Columns of the output that one block computes: a pair a thread.
const COLUMNS_PER_BLOCK: usize = 512;

pub(super) fn forward(stream: &Stream, x: &Tensor, shape: Vec<usize>) -> Result<Tensor> {
    let width = last(&shape);
    let grid = grid(x, width)?;
    let mut out = stream.unset(x.elem_count() / 2)?;
    let x = stream.read::<f32>(OP, x)?;
    stream.launch(FORWARD, grid, &args![&x, &mut out, Int(width)])?;
    stream.tensor(out, shape)
}

pub(super) fn backward(stream: &Stream, x: &Tensor, dout: &Tensor, width: usize) -> Result<Tensor> {
    let grid = grid(x, width)?;
    let mut dx = stream.unset(x.elem_count())?;
    let (input, dout) = (stream.read::<f32>(OP, x)?, stream.read::<f32>(OP, dout)?);
    stream.launch(BACKWARD, grid, &args![&input, &dout, &mut dx, Int(width)])?;
    stream.tensor(dx, x.shape())
}

fn grid(x: &Tensor, width: usize) -> Result<Grid> {
    rows::expect_even(OP, "F", width)?;
    let rows = x.elem_count() / (2 * width).max(1);
    Ok(Grid::new(rows * width.div_ceil(COLUMNS_PER_BLOCK), rows::THREADS))
}
