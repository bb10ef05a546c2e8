//! Launches of `kernels/elements.cu`: what is done to whole f32 tensors element by element.

use candle_core::Tensor;

use super::{Buffer, Grid, Kernel, Long, Stream, args, rows};
use crate::Result;

const ADD: Kernel = kernel("elements_add");
const COPY: Kernel = kernel("elements_copy");
const CLEAR: Kernel = kernel("elements_clear");

const fn kernel(name: &'static str) -> Kernel {
    Kernel { file: "elements", name }
}

fn grid(count: usize) -> Grid {
    Grid::new(count.div_ceil(rows::THREADS.cast_unsigned() as usize), rows::THREADS)
}

/// `a + b`, of one shape.
pub(crate) fn add(stream: &Stream, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let count = a.elem_count();
    let mut out = stream.unset(count)?;
    let [left, right] = stream.read_all("add", [a, b])?;
    stream.launch(ADD, grid(count), &args![&left, &right, &mut out, Long(count)])?;
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
    let mut to = stream.in_place("overwrite", tensor)?;
    stream.launch(COPY, grid(elements.len()), &args![&from, &mut to, Long(elements.len())])
}

/// `tensor = 0`.
pub(crate) fn clear(stream: &Stream, tensor: &Tensor) -> Result<()> {
    let count = tensor.elem_count();
    let mut out = stream.in_place("clear", tensor)?;
    stream.launch(CLEAR, grid(count), &args![&mut out, Long(count)])
}
