//! Launches of `kernels/adamw.cu`, for all tensors at once.

use candle_core::Tensor;
use half::bf16;

use super::{Config, Constants, Member, OP};
use crate::Result;
use crate::cuda::{Buffer, Grid, Kernel, Stream, args};

const UPDATE: Kernel = Kernel { file: "adamw", name: "adamw_update" };
const SQUARED_NORM: Kernel = Kernel { file: "adamw", name: "squared_norm" };

const THREADS: i32 = 256;
/// Elements of one block.
const PART_ELEMENTS: usize = 8192;

/// The tensors in the kernels' words.
#[derive(Default)]
struct Table {
    /// Rows of the struct `AdamwTensor`.
    tensors: Vec<u64>,
    /// Rows of `AdamwPart`: a tensor's number and the part's first element.
    parts: Vec<u64>,
    count: u64,
}

impl Table {
    /// Adds a tensor: addresses of parameter, m, v, gradient and bf16 copy, null where the kernel does not look.
    fn push(&mut self, addresses: [u64; 5], elements: usize, decay: f32) {
        self.tensors.extend(addresses);
        self.tensors.extend([elements as u64, decay.to_bits().into()]);
        let first = (0..elements as u64).step_by(PART_ELEMENTS);
        self.parts.extend(first.flat_map(|first| [self.count, first]));
        self.count += 1;
    }

    fn grid(&self) -> Grid {
        Grid::new(self.parts.len() / 2, THREADS)
    }
}

pub(super) fn update(stream: &Stream, config: &Config, members: &[Member<'_>]) -> Result<()> {
    let c = Constants::new(config);
    let mut table = Table::default();
    // Written through their addresses in the table, and alive until the launch is given.
    let mut buffers = Vec::with_capacity(members.len());
    for &Member { parameter, m, v, gradient, decays, rounded } in members {
        let elements = parameter.elem_count();
        let in_place = |tensor| stream.in_place::<f32>(OP, tensor);
        let written = [in_place(parameter)?, in_place(m)?, in_place(v)?];
        let rounded = rounded.map(|rounded| stream.in_place::<bf16>(OP, rounded)).transpose()?;
        let gradient = stream.read::<f32>(OP, gradient)?;
        let [parameter, m, v] = written.each_ref().map(Buffer::address);
        let copy = rounded.as_ref().map_or(0, Buffer::address);
        let decay = if decays { c.decay } else { 0.0 };
        table.push([parameter, m, v, gradient.address(), copy], elements, decay);
        buffers.push((written, rounded, gradient));
    }
    let (tensors, parts) = (stream.upload(&table.tensors)?, stream.upload(&table.parts)?);
    let scale = stream.upload(&[c.grad_scale])?;
    let constants = [c.beta1, c.one_minus_beta1, c.beta2, c.one_minus_beta2, c.eps, c.rate, c.correction2];
    stream.launch(UPDATE, table.grid(), &args![&tensors, &parts, &scale, constants])
}

pub(super) fn squared_norm(stream: &Stream, gradients: &[&Tensor]) -> Result<f64> {
    let mut table = Table::default();
    let mut buffers = Vec::with_capacity(gradients.len());
    for gradient in gradients {
        let buffer = stream.read::<f32>(OP, gradient)?;
        table.push([0, 0, 0, buffer.address(), 0], gradient.elem_count(), 0.0);
        buffers.push(buffer);
    }
    let (tensors, parts) = (stream.upload(&table.tensors)?, stream.upload(&table.parts)?);
    let mut sums = stream.unset::<f64>(table.grid().blocks)?;
    stream.launch(SQUARED_NORM, table.grid(), &args![&tensors, &parts, &mut sums])?;
    Ok(stream.download(&sums)?.iter().sum())
}
