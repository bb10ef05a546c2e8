//! Launches of `kernels/embedding.cu`. Ids are on the host, where they come from: they are checked and sorted there.

use candle_core::Tensor;

use super::{OP, with_width};
use crate::Result;
use crate::cuda::{Activation, Grid, Int, Stream, Twins, args, rows, twins};
use crate::elements::read;

const FORWARD: Twins = twins!("embedding", "embedding_forward");
const BACKWARD: Twins = twins!("embedding", "embedding_backward");

const THREADS: i32 = 128;
/// Columns of a row that one block copies or sums: a pair a thread.
const COLUMNS_PER_BLOCK: usize = 256;

pub(super) fn forward<T: Activation>(
    stream: &Stream,
    ids: &Tensor,
    table: &Tensor,
    width: usize,
) -> Result<Tensor> {
    rows::expect_even(OP, "D", width)?;
    let mut y = stream.unset::<T>(ids.elem_count() * width)?;
    let id_buffer = read(OP, ids, |ids: &[u32]| stream.upload(ids))?;
    let table = stream.read::<f32>(OP, table)?;
    let arguments = args![&id_buffer, &table, &mut y, Int(width)];
    stream.launch(FORWARD.of::<T>(), grid(ids.elem_count(), width), &arguments)?;
    stream.tensor(y, with_width(ids, width))
}

pub(super) fn backward<T: Activation>(
    stream: &Stream,
    ids: &Tensor,
    dy: &Tensor,
    dtable: &Tensor,
    width: usize,
) -> Result<()> {
    rows::expect_even(OP, "D", width)?;
    let uses = read(OP, ids, |ids: &[u32]| Ok(Uses::new(ids)))?;
    let id_buffer = read(OP, ids, |ids: &[u32]| stream.upload(ids))?;
    let (order, segments) = (stream.upload(&uses.order)?, stream.upload(&uses.segments)?);
    let (dy, mut dtable) = (stream.read::<T>(OP, dy)?, stream.in_place::<f32>(OP, dtable)?);
    let arguments = args![&id_buffer, &order, &segments, &dy, &mut dtable, Int(width)];
    stream.launch(BACKWARD.of::<T>(), grid(uses.segments.len() - 1, width), &arguments)
}

fn grid(rows: usize, width: usize) -> Grid {
    Grid::new(rows * width.div_ceil(COLUMNS_PER_BLOCK), THREADS)
}

/// Positions by id and then by place.
struct Uses {
    /// `[N]`.
    order: Vec<u32>,
    /// `[U + 1]`: where each of the `U` ids that occur begins in `order`, and its end.
    segments: Vec<u32>,
}

impl Uses {
    fn new(ids: &[u32]) -> Self {
        let id = |position: u32| ids[position as usize];
        let mut order: Vec<u32> = (0..ids.len() as u32).collect();
        order.sort_by_key(|&position| id(position));
        let begins = |&place: &usize| place == 0 || id(order[place - 1]) != id(order[place]);
        let mut segments: Vec<u32> = (0..order.len()).filter(begins).map(|place| place as u32).collect();
        segments.push(order.len() as u32);
        Self { order, segments }
    }
}
