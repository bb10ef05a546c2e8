//! The controller's cell, without its matrix product.
//!
//! Units of the LSTM stand in the order input gate, forget gate, output gate, candidate; each block has `H`.

use atpm_core::vector::{Real, sigmoid, vectorize};

/// `tanh x`, from the exponential that vectorises.
#[inline(always)]
pub(super) fn tanh<T: Real>(x: T) -> T {
    let two = T::of(2.0);
    two.mul_add(sigmoid(two * x), -T::one())
}

/// One row of the LSTM: `units [4H]` become their activations, `cell` and `hidden` move on.
pub(super) fn lstm<T: Real>(units: &mut [T], cell: &mut [T], hidden: &mut [T]) {
    vectorize!(lstm_row(units, cell, hidden));
}

#[inline(always)]
fn lstm_row<T: Real>(units: &mut [T], cell: &mut [T], hidden: &mut [T]) {
    let size = hidden.len();
    let (gates, candidates) = units.split_at_mut(3 * size);
    for gate in gates.iter_mut() {
        *gate = sigmoid(*gate);
    }
    for candidate in candidates.iter_mut() {
        *candidate = tanh(*candidate);
    }
    let (input, forget, output) = (&gates[..size], &gates[size..2 * size], &gates[2 * size..]);
    let (cell, candidates) = (&mut cell[..size], &candidates[..size]);
    for unit in 0..size {
        cell[unit] = forget[unit].mul_add(cell[unit], input[unit] * candidates[unit]);
        hidden[unit] = output[unit] * tanh(cell[unit]);
    }
}

/// Backward of [`lstm`]: `d_cell` holds the gradient of the new cell and gets that of the cell before;
/// `d_units` gets the gradient before the activations.
pub(super) fn lstm_backward<T: Real>(
    units: &[T],
    cell_before: &[T],
    cell: &[T],
    d_hidden: &[T],
    d_cell: &mut [T],
    d_units: &mut [T],
) {
    vectorize!(lstm_row_backward(units, cell_before, cell, d_hidden, d_cell, d_units));
}

#[inline(always)]
fn lstm_row_backward<T: Real>(
    units: &[T],
    cell_before: &[T],
    cell: &[T],
    d_hidden: &[T],
    d_cell: &mut [T],
    d_units: &mut [T],
) {
    let (one, size) = (T::one(), d_hidden.len());
    let block = |n: usize| &units[n * size..(n + 1) * size];
    let (input, forget, output, candidate) = (block(0), block(1), block(2), block(3));
    let (d_input, rest) = d_units.split_at_mut(size);
    let (d_forget, rest) = rest.split_at_mut(size);
    let (d_output, d_candidate) = rest.split_at_mut(size);
    let (cell, cell_before, d_cell) = (&cell[..size], &cell_before[..size], &mut d_cell[..size]);
    let d_candidate = &mut d_candidate[..size];
    for unit in 0..size {
        let (i, f, o, g) = (input[unit], forget[unit], output[unit], candidate[unit]);
        let shown = tanh(cell[unit]);
        let d = d_cell[unit] + d_hidden[unit] * o * (one - shown * shown);
        d_output[unit] = d_hidden[unit] * shown * o * (one - o);
        d_input[unit] = d * g * i * (one - i);
        d_forget[unit] = d * cell_before[unit] * f * (one - f);
        d_candidate[unit] = d * i * (one - g * g);
        d_cell[unit] = d * f;
    }
}

/// One row of the feed-forward controller: `units [H]` become their activations, which are `hidden`.
pub(super) fn feed_forward<T: Real>(units: &mut [T], hidden: &mut [T]) {
    vectorize!(for (unit, hidden) in units.iter_mut().zip(hidden.iter_mut()) {
        *unit = tanh(*unit);
        *hidden = *unit;
    });
}

/// Backward of [`feed_forward`].
pub(super) fn feed_forward_backward<T: Real>(units: &[T], d_hidden: &[T], d_units: &mut [T]) {
    vectorize!(for ((&unit, &d), out) in units.iter().zip(d_hidden).zip(d_units.iter_mut()) {
        *out = d * (T::one() - unit * unit);
    });
}
