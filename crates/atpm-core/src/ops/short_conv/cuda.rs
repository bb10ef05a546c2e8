//! Launches of `kernels/short_conv.cu`.

use candle_core::Tensor;

use super::{OP, Sizes};
use crate::cuda::{Activation, Grid, Int, Stream, Twins, args, rows, twins};
use crate::{Error, Result, Segments};

const FORWARD: Twins = twins!("short_conv", "short_conv_forward");
const BACKWARD: Twins = twins!("short_conv", "short_conv_backward");

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

pub(super) fn forward<T: Activation>(
    stream: &Stream,
    (x, weight, state): Inputs<'_>,
    segments: &Segments,
    sizes: Sizes,
) -> Result<(Tensor, Tensor)> {
    sizes.expect_tokens()?;
    let (mut y, mut last) = (stream.unset::<T>(x.elem_count())?, stream.unset::<T>(sizes.state_elements())?);
    let (input, weight) = (stream.read::<T>(OP, x)?, stream.read::<f32>(OP, weight)?);
    let (state, starts) = (stream.read_optional::<T>(OP, state)?, stream.upload(&segments.flags())?);
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
    stream.launch(FORWARD.of::<T>(), sizes.grid(), &arguments)?;
    Ok((stream.tensor(y, x.shape())?, stream.tensor(last, &sizes.state_shape())?))
}

pub(super) fn backward<T: Activation>(
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
    let (mut dx, mut dstate) =
        (stream.unset::<T>(x.elem_count())?, stream.unset::<T>(sizes.state_elements())?);
    let mut partials = stream.unset::<f32>(sizes.token_blocks() * channels * width)?;
    let [input, dy] = stream.read_all::<T, 2>(OP, [x, dy])?;
    let weight = stream.read::<f32>(OP, weight)?;
    let (state, dfinal) = (stream.read_optional::<T>(OP, state)?, stream.read_optional::<T>(OP, dfinal)?);
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
    stream.launch(BACKWARD.of::<T>(), sizes.grid(), &arguments)?;
    let mut dweight = stream.in_place(OP, dweight)?;
    rows::add_partials(stream, &partials, sizes.token_blocks(), channels * width, &mut dweight)?;
    Ok((stream.tensor(dx, x.shape())?, stream.tensor(dstate, &sizes.state_shape())?))
}
