//! Launches of `kernels/gated_norm.cu`. A row is one head of one token.

use candle_core::Tensor;

use super::OP;
use crate::Result;
use crate::cuda::{Activation, Int, Long, Stream, Twins, args, rows, twins};

const FORWARD: Twins = twins!("gated_norm", "gated_norm_forward");
const BACKWARD: Twins = twins!("gated_norm", "gated_norm_backward");

pub(super) fn forward<T: Activation>(
    stream: &Stream,
    y: &Tensor,
    gate: &Tensor,
    weight: &Tensor,
    eps: f64,
) -> Result<Tensor> {
    let (count, width) = rows::split(OP, y, weight)?;
    let mut out = stream.unset::<T>(y.elem_count())?;
    let [input, gate] = stream.read_all::<T, 2>(OP, [y, gate])?;
    let weight = stream.read::<f32>(OP, weight)?;
    let arguments = args![&input, &gate, &weight, eps as f32, &mut out, Long(count), Int(width)];
    stream.launch(FORWARD.of::<T>(), rows::forward_grid(count), &arguments)?;
    stream.tensor(out, y.shape())
}

/// `inputs`: `y`, `gate`, `weight`, `dout`.
pub(super) fn backward<T: Activation>(
    stream: &Stream,
    [y, gate, weight, dout]: [&Tensor; 4],
    eps: f64,
    dweight: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let shape = y.shape();
    let (count, width) = rows::split(OP, y, weight)?;
    let grid = rows::backward_grid(count, width);
    let (mut dy, mut dgate) =
        (stream.unset::<T>(shape.elem_count())?, stream.unset::<T>(shape.elem_count())?);
    let mut partials = stream.unset::<f32>(grid.blocks * width)?;
    let [y, gate, dout] = stream.read_all::<T, 3>(OP, [y, gate, dout])?;
    let weight = stream.read::<f32>(OP, weight)?;
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
    stream.launch(BACKWARD.of::<T>(), grid, &arguments)?;
    let mut dweight = stream.in_place(OP, dweight)?;
    rows::add_partials(stream, &partials, grid.blocks, width, &mut dweight)?;
    Ok((stream.tensor(dy, shape)?, stream.tensor(dgate, shape)?))
}
