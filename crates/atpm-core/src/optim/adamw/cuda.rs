//! Launches of `kernels/adamw.cu`, a tensor at a time.

use candle_core::Tensor;

use super::{Config, Constants, OP};
use crate::Result;
use crate::cuda::{Buffer, Grid, Kernel, Stream, args};

const UPDATE: Kernel = Kernel { file: "adamw", name: "adamw_update" };
const SQUARED_NORM: Kernel = Kernel { file: "adamw", name: "squared_norm" };

const THREADS: i32 = 256;
/// Elements of one block.
const PART_ELEMENTS: usize = 8192;

/// A tensor in the kernels' words: the struct `AdamwTensor`.
struct Table {
    tensor: Buffer<u64>,
    /// `AdamwPart`: the tensor's number and the part's first element.
    parts: Buffer<u64>,
    grid: Grid,
}

impl Table {
    /// `addresses` of parameter, m, v and gradient, null where the kernel does not look.
    fn new(stream: &Stream, addresses: [u64; 4], elements: usize, decay: f32) -> Result<Self> {
        let [parameter, m, v, gradient] = addresses;
        let no_copy = 0;
        let tensor = [parameter, m, v, gradient, no_copy, elements as u64, decay.to_bits().into()];
        let parts: Vec<u64> =
            (0..elements as u64).step_by(PART_ELEMENTS).flat_map(|first| [0, first]).collect();
        let grid = Grid::new(parts.len() / 2, THREADS);
        Ok(Self { tensor: stream.upload(&tensor)?, parts: stream.upload(&parts)?, grid })
    }
}

pub(super) fn update(
    stream: &Stream,
    config: &Config,
    parameter: &Tensor,
    m: &Tensor,
    v: &Tensor,
    gradient: &Tensor,
) -> Result<()> {
    let c = Constants::new(config);
    let elements = parameter.elem_count();
    let gradient = stream.read::<f32>(OP, gradient)?;
    // Written through their addresses in the table, and alive until the launch is given.
    let in_place = |tensor| stream.in_place::<f32>(OP, tensor);
    let written = [in_place(parameter)?, in_place(m)?, in_place(v)?];
    let [parameter, m, v] = written.each_ref().map(Buffer::address);
    let table = Table::new(stream, [parameter, m, v, gradient.address()], elements, c.decay)?;
    let scale = stream.upload(&[c.grad_scale])?;
    let constants = [c.beta1, c.one_minus_beta1, c.beta2, c.one_minus_beta2, c.eps, c.rate, c.correction2];
    stream.launch(UPDATE, table.grid, &args![&table.tensor, &table.parts, &scale, constants])
}

pub(super) fn squared_norm(stream: &Stream, gradient: &Tensor) -> Result<f64> {
    let elements = gradient.elem_count();
    let gradient = stream.read::<f32>(OP, gradient)?;
    let table = Table::new(stream, [0, 0, 0, gradient.address()], elements, 0.0)?;
    let mut sums = stream.unset::<f64>(table.grid.blocks)?;
    stream.launch(SQUARED_NORM, table.grid, &args![&table.tensor, &table.parts, &mut sums])?;
    Ok(stream.download(&sums)?.iter().sum())
}
