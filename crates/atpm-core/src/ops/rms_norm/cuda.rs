//! Launches of `kernels/rms_norm.cu`.

use candle_core::Tensor;

use super::OP;
use crate::Result;
use crate::cuda::{Activation, Int, Long, Stream, Twins, args, rows, twins};

const FORWARD: Twins = twins!("rms_norm", "rms_norm_forward");
const BACKWARD: Twins = twins!("rms_norm", "rms_norm_backward");

pub(super) fn forward<T: Activation>(
    stream: &Stream,
    x: &Tensor,
    weight: &Tensor,
    eps: f64,
) -> Result<Tensor> {
    let (count, width) = rows::split(OP, x, weight)?;
    let mut y = stream.unset::<T>(x.elem_count())?;
    let (input, weight) = (stream.read::<T>(OP, x)?, stream.read::<f32>(OP, weight)?);
    let arguments = args![&input, &weight, eps as f32, &mut y, Long(count), Int(width)];
    stream.launch(FORWARD.of::<T>(), rows::forward_grid(count), &arguments)?;
    stream.tensor(y, x.shape())
}

pub(super) fn backward<T: Activation>(
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
    let mut dx = stream.unset::<T>(x.elem_count())?;
    let mut partials = stream.unset::<f32>(grid.blocks * width)?;
    let [input, dy] = stream.read_all::<T, 2>(OP, [x, dy])?;
    let weight = stream.read::<f32>(OP, weight)?;
    let residual = stream.read_optional::<T>(OP, residual)?;
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
    stream.launch(BACKWARD.of::<T>(), grid, &arguments)?;
    let mut dweight = stream.in_place(OP, dweight)?;
    rows::add_partials(stream, &partials, grid.blocks, width, &mut dweight)?;
    stream.tensor(dx, x.shape())
}
