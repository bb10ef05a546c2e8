//! The parameters as slices, laid out for the products of a step.

use atpm_core::vector::{Real, transpose};
use candle_core::WithDType;

use super::layout::Layout;
use crate::{Parameter, Result};

/// Parameters of a machine, in the order of its specs.
pub(super) const COUNT: usize = 6;

/// Weights as backward reads them (rows padded to whole vectors), and transposed as forward does.
pub(super) struct Weights<T> {
    /// `W_c [units, seen_padded]`.
    pub(super) controller: Vec<T>,
    /// `[seen_padded, units]`.
    pub(super) controller_t: Vec<T>,
    pub(super) controller_bias: Vec<T>,
    /// `W_h [raw_padded, H]`.
    pub(super) heads: Vec<T>,
    /// `[H, raw_padded]`.
    pub(super) heads_t: Vec<T>,
    /// `[raw_padded]`.
    pub(super) heads_bias: Vec<T>,
    /// `W_o [O, H + R·W]`.
    pub(super) output: Vec<T>,
    pub(super) output_bias: Vec<T>,
}

impl<T: Real + WithDType> Weights<T> {
    pub(super) fn read(layout: &Layout, parameters: &[Parameter; COUNT]) -> Result<Self> {
        let values =
            |at: usize| -> Result<Vec<T>> { Ok(parameters[at].value.flatten_all()?.to_vec1::<T>()?) };
        let controller = padded_rows(&values(0)?, layout.seen, layout.seen_padded);
        let mut heads = values(2)?;
        heads.resize(layout.raw_padded * layout.hidden, T::zero());
        let mut heads_bias = values(3)?;
        heads_bias.resize(layout.raw_padded, T::zero());
        Ok(Self {
            controller_t: transposed(&controller, layout.units, layout.seen_padded),
            controller,
            controller_bias: values(1)?,
            heads_t: transposed(&heads, layout.raw_padded, layout.hidden),
            heads,
            heads_bias,
            output: values(4)?,
            output_bias: values(5)?,
        })
    }
}

fn padded_rows<T: Real>(matrix: &[T], columns: usize, padded: usize) -> Vec<T> {
    let mut out = Vec::with_capacity(matrix.len() / columns * padded);
    for row in matrix.chunks_exact(columns) {
        out.extend_from_slice(row);
        out.resize(out.len() + padded - columns, T::zero());
    }
    out
}

fn transposed<T: Real>(matrix: &[T], rows: usize, columns: usize) -> Vec<T> {
    let mut out = vec![T::zero(); matrix.len()];
    transpose(matrix, rows, columns, &mut out);
    out
}

/// Gradients of the parameters, in their order and shapes.
pub(super) struct Gradients<T>(pub(super) [Vec<T>; COUNT]);

impl<T: Real> Gradients<T> {
    pub(super) fn zeros(layout: &Layout) -> Self {
        let Layout { units, seen, raw, hidden, outputs, shown, .. } = *layout;
        Self(
            [units * seen, units, raw * hidden, raw, outputs * shown, outputs]
                .map(|len| vec![T::zero(); len]),
        )
    }
}
