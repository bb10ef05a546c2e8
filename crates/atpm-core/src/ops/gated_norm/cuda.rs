//! Launches of `kernels/gated_norm.cu`. A row is one head of one token.

use candle_core::Tensor;

use super::OP;
use crate::Result;
use crate::cuda::{Int, Kernel, Long, Stream, args, rows};

const FORWARD: Kernel = Kernel { file: "gated_norm", name: "gated_norm_forward_f32" };
const BACKWARD: Kernel = Kernel { file: "gated_norm", name: "gated_norm_backward_f32" };

pub(super) fn forward(
    stream: &Stream,
    y: &Tensor,
    gate: &Tensor,
    weight: &Tensor,
    eps: f64,
) -> Result<Tensor> {
    let (count, width) = rows::split(OP, y, weight)?;
    let mut out = stream.unset(y.elem_count())?;
    let [input, gate, weight] = stream.read_all(OP, [y, gate, weight])?;
    let arguments = args![&input, &gate, &weight, eps as f32, &mut out, Long(count), Int(width)];
    stream.launch(FORWARD, rows::forward_grid(count), &arguments)?;
    stream.tensor(out, y.shape())
}

/// `inputs`: `y`, `gate`, `weight`, `dout`.
pub(super) fn backward(
    stream: &Stream,
    inputs: [&Tensor; 4],
    eps: f64,
    dweight: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let shape = inputs[0].shape();
    let (count, width) = rows::split(OP, inputs[0], inputs[2])?;
    let grid = rows::backward_grid(count, width);
    let (mut dy, mut dgate) = (stream.unset(shape.elem_count())?, stream.unset(shape.elem_count())?);
    let mut partials = stream.unset(grid.blocks * width)?;
    let [y, gate, weight, dout] = stream.read_all(OP, inputs)?;
    let arguments = args![
        &y,
        &gate,
        &weight,
        eps as f32,
        &dout,
        &mut dy,
        &mut dgate,
        &mut partials,
        Long(count),
        Int(width),
    ];
    stream.launch(BACKWARD, grid, &arguments)?;
    let mut dweight = stream.in_place(OP, dweight)?;
    rows::add_partials(stream, &partials, grid.blocks, width, &mut dweight)?;
    Ok((stream.tensor(dy, shape)?, stream.tensor(dgate, shape)?))
}
