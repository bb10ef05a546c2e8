//! Launches of `kernels/gates.cu`.

use candle_core::Tensor;

use super::{OP, Pins};
use crate::Result;
use crate::cuda::{Grid, Int, Kernel, Long, Stream, args, rows};

const FORWARD: Kernel = Kernel { file: "gates", name: "gates_forward" };
const BACKWARD: Kernel = Kernel { file: "gates", name: "gates_backward" };

const THREADS: i32 = 128;
const TOKENS_PER_BLOCK: usize = 64;

/// Tokens of `logits [B,T,5,H]`, `H`, and the grid for them.
fn split(logits: &Tensor) -> (usize, usize, Grid) {
    let heads = logits.dims().last().copied().unwrap_or(0);
    let tokens = logits.elem_count() / (5 * heads).max(1);
    (tokens, heads, Grid::new(tokens.div_ceil(TOKENS_PER_BLOCK), THREADS))
}

/// The kernels' word for a pin: NaN is none.
fn pin(value: Option<f64>) -> f32 {
    value.map_or(f32::NAN, |value| value as f32)
}

/// `inputs`: `logits`, `a_log`, `dt_bias`, `bias`.
pub(super) fn forward(stream: &Stream, inputs: [&Tensor; 4], pins: Pins) -> Result<Tensor> {
    let shape = inputs[0].shape();
    let (tokens, heads, grid) = split(inputs[0]);
    let mut controls = stream.unset::<f32>(shape.elem_count())?;
    let [logits, a_log, dt_bias, bias] = stream.read_all::<f32, _>(OP, inputs)?;
    let arguments = args![
        &logits,
        &a_log,
        &dt_bias,
        &bias,
        pin(pins.rho),
        pin(pins.lambda),
        pins.tie_beta,
        &mut controls,
        Long(tokens),
        Int(heads),
    ];
    stream.launch(FORWARD, grid, &arguments)?;
    stream.tensor(controls, shape)
}

/// `inputs`: the same, and `dcontrols`; `sums`: gradients of `a_log`, `dt_bias` and `bias`.
pub(super) fn backward(
    stream: &Stream,
    inputs: [&Tensor; 5],
    pins: Pins,
    sums: [&Tensor; 3],
) -> Result<Tensor> {
    let shape = inputs[0].shape();
    let (tokens, heads, grid) = split(inputs[0]);
    let mut dlogits = stream.unset::<f32>(shape.elem_count())?;
    let mut partials = stream.unset::<f32>(grid.blocks * 6 * heads)?;
    let [logits, a_log, dt_bias, bias, dcontrols] = stream.read_all::<f32, _>(OP, inputs)?;
    let arguments = args![
        &logits,
        &a_log,
        &dt_bias,
        &bias,
        pin(pins.rho),
        pin(pins.lambda),
        pins.tie_beta,
        &dcontrols,
        &mut dlogits,
        &mut partials,
        Long(tokens),
        Int(heads),
    ];
    stream.launch(BACKWARD, grid, &arguments)?;
    // The kernel's sums lie side by side, [6,H]; the three gradients do not.
    let mut gradients = stream.upload(&vec![0.0; 6 * heads])?;
    rows::add_partials(stream, &partials, grid.blocks, 6 * heads, &mut gradients)?;
    let mut first = 0;
    for sum in sums {
        let mut sum_buffer = stream.in_place::<f32>(OP, sum)?;
        rows::add(stream, (&gradients, first), sum.elem_count(), &mut sum_buffer)?;
        first += sum.elem_count();
    }
    stream.tensor(dlogits, shape)
}
