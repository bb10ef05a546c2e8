//! Launches of `kernels/cross_entropy.cu` between matrix products, a block of tokens at a time.

use candle_core::Tensor;

use super::cpu::TOKENS_PER_BLOCK;
use super::{OP, Options, Sizes};
use crate::Result;
use crate::cuda::{
    Activation, Buffer, Grid, Int, Kernel, Operand, Product, Stream, Target, Twins, args, twins,
};
use crate::elements::read;
use crate::vector::Precision;

const LOSS: Kernel = Kernel { file: "cross_entropy", name: "cross_entropy_loss" };
const GRADIENT: Twins = twins!("cross_entropy", "cross_entropy_gradient");

const THREADS: i32 = 256;

/// What both passes read, and the logits of one block, which are f32 whatever `T` is.
struct Blocks<T: Activation> {
    x: Buffer<T>,
    weight: Buffer<T>,
    targets: Buffer<u32>,
    logits: Buffer<f32>,
    sizes: Sizes,
    precision: Precision,
}

impl<T: Activation> Blocks<T> {
    fn new(
        stream: &Stream,
        [x, weight, targets]: [&Tensor; 3],
        sizes: Sizes,
        precision: Precision,
    ) -> Result<Self> {
        let targets = read(OP, targets, |targets: &[u32]| stream.upload(targets))?;
        let logits = stream.unset(sizes.tokens.min(TOKENS_PER_BLOCK) * sizes.vocabulary)?;
        let (x, weight) = (stream.read::<T>(OP, x)?, stream.read_as::<T>(OP, weight)?);
        Ok(Self { x, weight, targets, logits, sizes, precision })
    }

    /// Makes the block's logits, `x Wᵀ`.
    fn project(&mut self, stream: &Stream, first: usize, tokens: usize) -> Result<()> {
        let Sizes { width, vocabulary, .. } = self.sizes;
        let (a, b) = (Operand::from(&self.x, first * width), Operand::of(&self.weight).t());
        let (c, precision) = (Target::of(&mut self.logits), self.precision);
        stream.product(Product {
            rows: tokens,
            inner: width,
            columns: vocabulary,
            a,
            b,
            c,
            keep: 0.0,
            precision,
        })
    }

    /// The gradient `[tokens, V]` that the kernel left in the logits' place.
    fn gradient(&self) -> Operand<'_> {
        let rounded = Operand::rounded_in_place(&self.logits, self.sizes.vocabulary);
        T::choose(Operand::of(&self.logits), rounded)
    }
}

/// The first token of each block, and how many it has.
fn blocks(sizes: Sizes) -> impl Iterator<Item = (usize, usize)> {
    let first = (0..sizes.tokens).step_by(TOKENS_PER_BLOCK);
    first.map(move |first| (first, TOKENS_PER_BLOCK.min(sizes.tokens - first)))
}

/// `inputs`: `x`, `weight`, `targets`; `T`: what `x` is stored in.
pub(super) fn forward<T: Activation>(
    stream: &Stream,
    inputs: [&Tensor; 3],
    sizes: Sizes,
    precision: Precision,
) -> Result<Tensor> {
    let mut losses = stream.unset::<f32>(sizes.tokens)?;
    let mut block = Blocks::<T>::new(stream, inputs, sizes, precision)?;
    for (first, tokens) in blocks(sizes) {
        block.project(stream, first, tokens)?;
        let Blocks { logits, targets, .. } = &block;
        let arguments = args![logits, (targets, first), (&mut losses, first), Int(sizes.vocabulary)];
        stream.launch(LOSS, Grid::new(tokens, THREADS), &arguments)?;
    }
    stream.tensor(losses, sizes.tokens)
}

/// `inputs`: `x`, `weight`, `targets`; `T`: what `x` and its gradient are stored in.
pub(super) fn forward_backward<T: Activation>(
    stream: &Stream,
    inputs: [&Tensor; 3],
    sizes: Sizes,
    Options { precision, z_loss }: Options,
    scale: f64,
    dweight: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let Sizes { width, vocabulary, .. } = sizes;
    let (mut losses, mut dx) = (stream.unset::<f32>(sizes.tokens)?, stream.unset::<T>(sizes.tokens * width)?);
    let mut dweight = stream.in_place::<f32>(OP, dweight)?;
    let mut block = Blocks::<T>::new(stream, inputs, sizes, precision)?;
    for (first, tokens) in blocks(sizes) {
        block.project(stream, first, tokens)?;
        let Blocks { logits, targets, .. } = &mut block;
        let arguments = args![
            logits,
            (&*targets, first),
            scale as f32,
            z_loss as f32,
            (&mut losses, first),
            Int(vocabulary),
        ];
        stream.launch(GRADIENT.of::<T>(), Grid::new(tokens, THREADS), &arguments)?;
        stream.product(Product {
            rows: tokens,
            inner: vocabulary,
            columns: width,
            a: block.gradient(),
            b: Operand::of(&block.weight),
            c: Target::from(&mut dx, first * width),
            keep: 0.0,
            precision,
        })?;
        stream.product(Product {
            rows: vocabulary,
            inner: tokens,
            columns: width,
            a: block.gradient().t(),
            b: Operand::from(&block.x, first * width),
            c: Target::of(&mut dweight),
            keep: 1.0,
            precision,
        })?;
    }
    Ok((stream.tensor(losses, sizes.tokens)?, stream.tensor(dx, inputs[0].shape())?))
}
