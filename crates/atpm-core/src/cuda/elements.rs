//! Launches of `kernels/elements.cu`: what is done to whole tensors element by element.

use candle_core::Tensor;

use super::{Activation, Buffer, Grid, Kernel, Long, Stream, Twins, args, rows, twins};
use crate::Result;

const ADD: Twins = twins!("elements", "elements_add");
const COPY: Kernel = kernel("elements_copy");
const CLEAR: Kernel = kernel("elements_clear");

const fn kernel(name: &'static str) -> Kernel {
    Kernel { file: "elements", name }
}

fn grid(count: usize) -> Grid {
    Grid::new(count.div_ceil(rows::THREADS.cast_unsigned() as usize), rows::THREADS)
}

/// `a + b`, of one shape.
pub(crate) fn add<T: Activation>(stream: &Stream, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let count = a.elem_count();
    let mut out = stream.unset::<T>(count)?;
    let [left, right] = stream.read_all::<T, 2>("add", [a, b])?;
    stream.launch(ADD.of::<T>(), grid(count), &args![&left, &right, &mut out, Long(count)])?;
    stream.tensor(out, a.shape())
}

/// `gradient += delta`, of one shape.
pub(crate) fn accumulate(stream: &Stream, gradient: &Tensor, delta: &Tensor) -> Result<()> {
    let (count, op) = (gradient.elem_count(), "accumulate");
    let term: Buffer<f32> = stream.read(op, delta)?;
    rows::add(stream, (&term, 0), count, &mut stream.in_place(op, gradient)?)
}

/// `tensor = elements`, of which there are as many.
pub(crate) fn overwrite(stream: &Stream, tensor: &Tensor, elements: &[f32]) -> Result<()> {
    let from = stream.upload(elements)?;
    let mut to = stream.in_place::<f32>("overwrite", tensor)?;
    stream.launch(COPY, grid(elements.len()), &args![&from, &mut to, Long(elements.len())])
}

/// `tensor = 0`.
pub(crate) fn clear(stream: &Stream, tensor: &Tensor) -> Result<()> {
    let count = tensor.elem_count();
    let mut out = stream.in_place::<f32>("clear", tensor)?;
    stream.launch(CLEAR, grid(count), &args![&mut out, Long(count)])
}
