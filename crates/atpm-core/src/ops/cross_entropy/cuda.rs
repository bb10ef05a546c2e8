//! Launches of `kernels/cross_entropy.cu` between matrix products, a block of tokens at a time.

use candle_core::Tensor;

use super::cpu::TOKENS_PER_BLOCK;
use super::{OP, Options, Sizes};
use crate::Result;
use crate::cuda::{Buffer, Grid, Int, Kernel, Operand, Product, Stream, args};
use crate::elements::read;
use crate::vector::Precision;

const LOSS: Kernel = Kernel { file: "cross_entropy", name: "cross_entropy_loss" };
const GRADIENT: Kernel = Kernel { file: "cross_entropy", name: "cross_entropy_gradient_f32" };

const THREADS: i32 = 256;

/// What both passes read, and the logits of one block.
struct Blocks {
    x: Buffer<f32>,
    weight: Buffer<f32>,
    targets: Buffer<u32>,
    logits: Buffer<f32>,
    sizes: Sizes,
    precision: Precision,
}

impl Blocks {
    fn new(
        stream: &Stream,
        [x, weight, targets]: [&Tensor; 3],
        sizes: Sizes,
        precision: Precision,
    ) -> Result<Self> {
        let targets = read(OP, targets, |targets: &[u32]| stream.upload(targets))?;
        let logits = stream.unset(sizes.tokens.min(TOKENS_PER_BLOCK) * sizes.vocabulary)?;
        let [x, weight] = stream.read_all(OP, [x, weight])?;
        Ok(Self { x, weight, targets, logits, sizes, precision })
    }

    /// The first token of each block, and how many it has.
    fn each(sizes: Sizes) -> impl Iterator<Item = (usize, usize)> {
        let first = (0..sizes.tokens).step_by(TOKENS_PER_BLOCK);
        first.map(move |first| (first, TOKENS_PER_BLOCK.min(sizes.tokens - first)))
    }

    /// Makes the block's logits, `x Wᵀ`.
    fn project(&mut self, stream: &Stream, first: usize, tokens: usize) -> Result<()> {
        let Sizes { width, vocabulary, .. } = self.sizes;
        let (a, b) = (Operand::of(&self.x).from(first * width), Operand::of(&self.weight).t());
        stream.product(Product {
            rows: tokens,
            inner: width,
            columns: vocabulary,
            a,
            b,
            c: &mut self.logits,
            c_first: 0,
            keep: 0.0,
            precision: self.precision,
        })
    }
}

pub(super) fn forward(
    stream: &Stream,
    x: &Tensor,
    weight: &Tensor,
    targets: &Tensor,
    sizes: Sizes,
    precision: Precision,
) -> Result<Tensor> {
    let mut losses = stream.unset(sizes.tokens)?;
    let mut blocks = Blocks::new(stream, [x, weight, targets], sizes, precision)?;
    for (first, tokens) in Blocks::each(sizes) {
        blocks.project(stream, first, tokens)?;
        let Blocks { logits, targets, .. } = &blocks;
        let arguments = args![logits, (targets, first), (&mut losses, first), Int(sizes.vocabulary)];
        stream.launch(LOSS, Grid::new(tokens, THREADS), &arguments)?;
    }
    stream.tensor(losses, sizes.tokens)
}

/// `inputs`: `x`, `weight`, `targets`.
pub(super) fn forward_backward(
    stream: &Stream,
    inputs: [&Tensor; 3],
    sizes: Sizes,
    Options { precision, z_loss }: Options,
    scale: f64,
    dweight: &Tensor,
) -> Result<(Tensor, Tensor)> {
    let Sizes { width, vocabulary, .. } = sizes;
    let (mut losses, mut dx) = (stream.unset(sizes.tokens)?, stream.unset(sizes.tokens * width)?);
    let mut dweight = stream.in_place(OP, dweight)?;
    let mut blocks = Blocks::new(stream, inputs, sizes, precision)?;
    for (first, tokens) in Blocks::each(sizes) {
        blocks.project(stream, first, tokens)?;
        let Blocks { x, weight, targets, logits, .. } = &mut blocks;
        let arguments = args![
            &mut *logits,
            (&*targets, first),
            scale as f32,
            z_loss as f32,
            (&mut losses, first),
            Int(vocabulary),
        ];
        stream.launch(GRADIENT, Grid::new(tokens, THREADS), &arguments)?;
        let gradient = Operand::of(logits);
        stream.product(Product {
            rows: tokens,
            inner: vocabulary,
            columns: width,
            a: gradient,
            b: Operand::of(weight),
            c: &mut dx,
            c_first: first * width,
            keep: 0.0,
            precision,
        })?;
        stream.product(Product {
            rows: vocabulary,
            inner: tokens,
            columns: width,
            a: gradient.t(),
            b: Operand::of(x).from(first * width),
            c: &mut dweight,
            c_first: 0,
            keep: 1.0,
            precision,
        })?;
    }
    Ok((stream.tensor(losses, sizes.tokens)?, stream.tensor(dx, inputs[0].shape())?))
}
