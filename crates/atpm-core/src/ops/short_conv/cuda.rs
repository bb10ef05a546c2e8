//! Launches of `kernels/short_conv.cu`.

use candle_core::Tensor;

use super::{OP, Sizes};
use crate::cuda::{Grid, Int, Kernel, Stream, args, rows};
use crate::{Error, Result, Segments};

const FORWARD: Kernel = Kernel { file: "short_conv", name: "short_conv_forward_f32" };
const BACKWARD: Kernel = Kernel { file: "short_conv", name: "short_conv_backward_f32" };

/// Threads of a block, each with a channel of its own.
const THREADS: i32 = 128;
const CHANNELS_PER_BLOCK: usize = 128;
const TOKENS_PER_BLOCK: usize = 64;

impl Sizes {
    /// Refuses rows without tokens, which no block would look at, so that the states would stay unwritten.
    fn expect_tokens(&self) -> Result<()> {
        if self.tokens > 0 {
            return Ok(());
        }
        Err(Error::Argument { op: OP, problem: "on CUDA a row has at least one token".into() })
    }
    /// Blocks of tokens in all rows: the number of partial sums of the weight's gradient.
    fn token_blocks(&self) -> usize {
        self.batch * self.tokens.div_ceil(TOKENS_PER_BLOCK)
    }
    fn grid(&self) -> Grid {
        Grid::new(self.token_blocks() * self.channels.div_ceil(CHANNELS_PER_BLOCK), THREADS)
    }
}

/// What both passes read: `x`, `weight` and the state, if there is one.
pub(super) type Inputs<'a> = (&'a Tensor, &'a Tensor, Option<&'a Tensor>);

pub(super) fn forward(
    stream: &Stream,
    (x, weight, state): Inputs<'_>,
    segments: &Segments,
    sizes: Sizes,
) -> Result<(Tensor, Tensor)> {
    sizes.expect_tokens()?;
    let (mut y, mut last) = (stream.unset(x.elem_count())?, stream.unset(sizes.state_elements())?);
    let [input, weight] = stream.read_all(OP, [x, weight])?;
    let (state, starts) = (stream.read_optional(OP, state)?, stream.upload(&segments.flags())?);
    let Sizes { tokens, channels, width, .. } = sizes;
    let arguments = args![
        &input,
        &weight,
        state.as_ref(),
        &starts,
        &mut y,
        &mut last,
        Int(tokens),
        Int(channels),
        Int(width),
    ];
    stream.launch(FORWARD, sizes.grid(), &arguments)?;
    Ok((stream.tensor(y, x.shape())?, stream.tensor(last, &sizes.state_shape())?))
}

pub(super) fn backward(
    stream: &Stream,
    (x, weight, state): Inputs<'_>,
    segments: &Segments,
    sizes: Sizes,
    dy: &Tensor,
    dfinal: Option<&Tensor>,
    dweight: &Tensor,
) -> Result<(Tensor, Tensor)> {
    sizes.expect_tokens()?;
    let Sizes { tokens, channels, width, .. } = sizes;
    let (mut dx, mut dstate) = (stream.unset(x.elem_count())?, stream.unset(sizes.state_elements())?);
    let mut partials = stream.unset(sizes.token_blocks() * channels * width)?;
    let [input, weight, dy] = stream.read_all(OP, [x, weight, dy])?;
    let (state, dfinal) = (stream.read_optional(OP, state)?, stream.read_optional(OP, dfinal)?);
    let starts = stream.upload(&segments.flags())?;
    let arguments = args![
        &input,
        &weight,
        state.as_ref(),
        &starts,
        &dy,
        dfinal.as_ref(),
        &mut dx,
        &mut dstate,
        &mut partials,
        Int(tokens),
        Int(channels),
        Int(width),
    ];
    stream.launch(BACKWARD, sizes.grid(), &arguments)?;
    let mut dweight = stream.in_place(OP, dweight)?;
    rows::add_partials(stream, &partials, sizes.token_blocks(), channels * width, &mut dweight)?;
    Ok((stream.tensor(dx, x.shape())?, stream.tensor(dstate, &sizes.state_shape())?))
}
