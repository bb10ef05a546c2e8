//! Launches of `kernels/rms_norm.cu`.

use candle_core::Tensor;

use super::OP;
use crate::Result;
use crate::cuda::{Int, Kernel, Long, Stream, args, rows};

const FORWARD: Kernel = Kernel { file: "rms_norm", name: "rms_norm_forward_f32" };
const BACKWARD: Kernel = Kernel { file: "rms_norm", name: "rms_norm_backward_f32" };

pub(super) fn forward(stream: &Stream, x: &Tensor, weight: &Tensor, eps: f64) -> Result<Tensor> {
    let (count, width) = rows::split(OP, x, weight)?;
    let mut y = stream.unset(x.elem_count())?;
    let [input, weight] = stream.read_all(OP, [x, weight])?;
    let arguments = args![&input, &weight, eps as f32, &mut y, Long(count), Int(width)];
    stream.launch(FORWARD, rows::forward_grid(count), &arguments)?;
    stream.tensor(y, x.shape())
}

pub(super) fn backward(
    stream: &Stream,
    x: &Tensor,
    weight: &Tensor,
    eps: f64,
    dy: &Tensor,
    residual: Option<&Tensor>,
    dweight: &Tensor,
) -> Result<Tensor> {
    let (count, width) = rows::split(OP, x, weight)?;
    let grid = rows::backward_grid(count, width);
    let (mut dx, mut partials) = (stream.unset(x.elem_count())?, stream.unset(grid.blocks * width)?);
    let [input, weight, dy] = stream.read_all(OP, [x, weight, dy])?;
    let residual = stream.read_optional(OP, residual)?;
    let arguments = args![
        &input,
        &weight,
        eps as f32,
        &dy,
        residual.as_ref(),
        &mut dx,
        &mut partials,
        Long(count),
        Int(width),
    ];
    stream.launch(BACKWARD, grid, &arguments)?;
    let mut dweight = stream.in_place(OP, dweight)?;
    rows::add_partials(stream, &partials, grid.blocks, width, &mut dweight)?;
    stream.tensor(dx, x.shape())
}
