//! Forward and backward through time of a few rows, on one thread.
//!
//! A batch is cut into groups of [`ROWS`] rows, whatever the number of threads; the parameters' gradients are products over
//! all steps of a group, added group by group in order. So no bit depends on the number of threads.

use atpm_core::Precision;
use atpm_core::vector::{Mat, MatMut, Real, dot, matmul, product, vectorize};

use super::controller;
use super::layout::{Layout, Parts};
use super::memory::{Kept, Setting, Work};
use super::weights::{Gradients, Weights};

/// Rows that one task computes together: enough to share a weight among rows, few enough for many tasks.
pub(super) const ROWS: usize = 4;

/// What is the same for every group.
pub(super) struct Machine<'a, T> {
    pub(super) layout: &'a Layout,
    pub(super) kept: &'a Kept,
    pub(super) weights: &'a Weights<T>,
    /// The factor on `β`.
    pub(super) anneal: T,
}

/// What a group of rows kept for backward, `[T, rows, …]` each.
pub(super) struct Trace<T> {
    rows: usize,
    steps: usize,
    /// The state that the first step found, `[rows, state]`.
    first: Vec<T>,
    /// Whether a sequence starts at this step: what the state was does not count, `[T, rows]`.
    starts: Vec<bool>,
    /// `[x; r'; h']`, padded.
    seen: Vec<T>,
    /// Units after their activations.
    units: Vec<T>,
    /// `c`; empty for a feed-forward controller.
    cells: Vec<T>,
    /// What the heads were told, padded.
    raw: Vec<T>,
    /// `[h; r]`.
    shown: Vec<T>,
    /// What the memory kept, see [`Kept`].
    pub(super) kept: Vec<T>,
}

impl<T> Trace<T> {
    pub(super) fn bytes(&self) -> usize {
        let lengths = [&self.first, &self.seen, &self.units, &self.cells, &self.raw, &self.shown, &self.kept];
        lengths.iter().map(|part| part.len() * size_of::<T>()).sum()
    }
}

/// Gradients that a group leaves behind, for the products over all of its steps.
pub(super) struct Deltas<T> {
    units: Vec<T>,
    raw: Vec<T>,
    /// `[rows, T, I]`.
    pub(super) inputs: Vec<T>,
}

impl<T: Real> Machine<'_, T> {
    fn setting(&self) -> Setting<'_, T> {
        Setting { layout: self.layout, kept: self.kept, anneal: self.anneal }
    }

    /// Runs `x [rows, T, I]` from `state [rows, state]`, which moves on; `y [rows, T, O]` is written.
    pub(super) fn forward(
        &self,
        steps: usize,
        x: &[T],
        starts: Vec<bool>,
        state: &mut [T],
        y: &mut [T],
    ) -> Trace<T> {
        let layout = self.layout;
        let rows = state.len() / layout.state_len();
        let with_room = |width: usize| Vec::with_capacity(steps * rows * width);
        let mut trace = Trace {
            rows,
            steps,
            first: state.to_vec(),
            starts,
            seen: with_room(layout.seen_padded),
            units: with_room(layout.units),
            cells: with_room(if layout.recurrent { layout.hidden } else { 0 }),
            raw: with_room(layout.raw_padded),
            shown: with_room(layout.shown),
            kept: with_room(self.kept.len()),
        };
        let mut work = Work::new(layout);
        for step in 0..steps {
            self.step(step, x, state, &mut trace, &mut work);
            self.output(step, &trace, y);
        }
        trace
    }

    fn step(&self, step: usize, x: &[T], state: &mut [T], trace: &mut Trace<T>, work: &mut Work<T>) {
        let (layout, weights) = (self.layout, self.weights);
        let (rows, steps) = (trace.rows, trace.steps);
        for (row, state) in state.chunks_exact_mut(layout.state_len()).enumerate() {
            if trace.starts[step * rows + row] {
                layout.start(state);
            }
            let end = trace.seen.len() + layout.seen_padded;
            let x = &x[(row * steps + step) * layout.inputs..][..layout.inputs];
            trace.seen.extend_from_slice(x);
            trace.seen.extend_from_slice(&state[layout.read()]);
            if layout.recurrent {
                trace.seen.extend_from_slice(&state[layout.hidden_state()]);
            }
            trace.seen.resize(end, T::zero());
        }
        let seen = Mat::dense(last(&trace.seen, rows * layout.seen_padded), rows, layout.seen_padded);
        let controller_t = Mat::dense(&weights.controller_t, layout.seen_padded, layout.units);
        repeat(&mut trace.units, &weights.controller_bias, rows);
        let units = last_mut(&mut trace.units, rows * layout.units);
        product(MatMut::dense(units, rows, layout.units), T::one(), seen, controller_t);
        let states = state.chunks_exact_mut(layout.state_len());
        for (units, state) in units.chunks_exact_mut(layout.units).zip(states) {
            let Parts { hidden, cell, .. } = Parts::of(layout, state);
            if layout.recurrent {
                controller::lstm(units, cell, hidden);
                trace.cells.extend_from_slice(cell);
            } else {
                controller::feed_forward(units, hidden);
            }
            trace.shown.extend_from_slice(hidden);
            trace.shown.resize(trace.shown.len() + layout.shown - layout.hidden, T::zero());
        }
        repeat(&mut trace.raw, &weights.heads_bias, rows);
        let shown = last_mut(&mut trace.shown, rows * layout.shown);
        let raw = last_mut(&mut trace.raw, rows * layout.raw_padded);
        let heads_t = Mat::dense(&weights.heads_t, layout.hidden, layout.raw_padded);
        let hidden = Mat::rows(shown, rows, layout.hidden, layout.shown);
        product(MatMut::dense(raw, rows, layout.raw_padded), T::one(), hidden, heads_t);
        trace.kept.resize(trace.kept.len() + rows * self.kept.len(), T::zero());
        let kept = last_mut(&mut trace.kept, rows * self.kept.len()).chunks_exact_mut(self.kept.len());
        let states = state.chunks_exact_mut(layout.state_len());
        let lines = raw.chunks_exact(layout.raw_padded).zip(shown.chunks_exact_mut(layout.shown));
        for ((state, kept), (raw, shown)) in states.zip(kept).zip(lines) {
            self.setting().step(&raw[..layout.raw], state, kept, work);
            shown[layout.hidden..].copy_from_slice(&state[layout.read()]);
        }
    }

    /// The outputs of a step, to `y [rows, T, O]`.
    fn output(&self, step: usize, trace: &Trace<T>, y: &mut [T]) {
        let (layout, weights) = (self.layout, self.weights);
        let shown = last(&trace.shown, trace.rows * layout.shown);
        vectorize!(for (row, shown) in shown.chunks_exact(layout.shown).enumerate() {
            let y = &mut y[(row * trace.steps + step) * layout.outputs..][..layout.outputs];
            let lines = weights.output.chunks_exact(layout.shown).zip(&weights.output_bias);
            for (y, (line, &bias)) in y.iter_mut().zip(lines) {
                *y = bias + dot(shown, line);
            }
        });
    }

    /// From `dy [T, rows, O]` back to the first step.
    pub(super) fn backward(&self, trace: &Trace<T>, dy: &[T]) -> Deltas<T> {
        let layout = self.layout;
        let (rows, steps) = (trace.rows, trace.steps);
        let mut deltas = Deltas {
            units: vec![T::zero(); trace.units.len()],
            raw: vec![T::zero(); trace.raw.len()],
            inputs: vec![T::zero(); steps * rows * layout.inputs],
        };
        let mut d_shown = vec![T::zero(); rows * layout.shown];
        let mut d_seen = vec![T::zero(); rows * layout.seen_padded];
        let mut d_state = vec![T::zero(); rows * layout.state_len()];
        let mut work = Work::new(layout);
        let output = Mat::dense(&self.weights.output, layout.outputs, layout.shown);
        for step in (0..steps).rev() {
            let dy = Mat::dense(part(dy, step, rows * layout.outputs), rows, layout.outputs);
            product(MatMut::dense(&mut d_shown, rows, layout.shown), T::zero(), dy, output);
            self.heads_backward(step, trace, &mut d_shown, &mut d_state, &mut deltas, &mut work);
            self.controller_backward(step, trace, &d_shown, &mut d_state, &mut deltas, &mut d_seen);
            for (row, d_seen) in d_seen.chunks_exact(layout.seen_padded).enumerate() {
                let d_state = &mut d_state[row * layout.state_len()..][..layout.state_len()];
                let (d_x, d_rest) = d_seen.split_at(layout.inputs);
                deltas.inputs[(row * steps + step) * layout.inputs..][..layout.inputs].copy_from_slice(d_x);
                if trace.starts[step * rows + row] {
                    d_state.fill(T::zero());
                    continue;
                }
                let (d_read, d_hidden) = d_rest.split_at(layout.read().len());
                d_state[layout.read()].copy_from_slice(d_read);
                if layout.recurrent {
                    d_state[layout.hidden_state()].copy_from_slice(&d_hidden[..layout.hidden]);
                }
            }
        }
        deltas
    }

    /// Through the heads: the hidden state's gradient in `d_shown` gets what comes through them.
    fn heads_backward(
        &self,
        step: usize,
        trace: &Trace<T>,
        d_shown: &mut [T],
        d_state: &mut [T],
        deltas: &mut Deltas<T>,
        work: &mut Work<T>,
    ) {
        let (layout, rows) = (self.layout, trace.rows);
        let d_raw = part_mut(&mut deltas.raw, step, rows * layout.raw_padded);
        let mut at_start = vec![T::zero(); layout.state_len()];
        layout.start(&mut at_start);
        for row in 0..rows {
            let d_state = &mut d_state[row * layout.state_len()..][..layout.state_len()];
            for (d, &more) in
                d_state[layout.read()].iter_mut().zip(&d_shown[row * layout.shown + layout.hidden..])
            {
                *d = *d + more;
            }
            let raw = &part(&trace.raw, step * rows + row, layout.raw_padded)[..layout.raw];
            let kept = part(&trace.kept, step * rows + row, self.kept.len());
            let mut before = vec![T::zero(); layout.heads * layout.slots];
            if trace.starts[step * rows + row] {
                before.copy_from_slice(&at_start[layout.weights()]);
            } else if step == 0 {
                before.copy_from_slice(&part(&trace.first, row, layout.state_len())[layout.weights()]);
            } else {
                let kept = part(&trace.kept, (step - 1) * rows + row, self.kept.len());
                for (head, before) in before.chunks_exact_mut(layout.slots).enumerate() {
                    before.copy_from_slice(self.kept.weights_of(layout, kept, head));
                }
            }
            let d_raw = &mut d_raw[row * layout.raw_padded..][..layout.raw];
            self.setting().step_backward(raw, kept, &before, d_state, d_raw, work);
        }
        let d_raw = Mat::dense(d_raw, rows, layout.raw_padded);
        let heads = Mat::dense(&self.weights.heads, layout.raw_padded, layout.hidden);
        product(MatMut::rows(d_shown, rows, layout.hidden, layout.shown), T::one(), d_raw, heads);
    }

    /// Through the controller, from the hidden state's gradient (in `d_shown`, and in `d_state` from the step after).
    fn controller_backward(
        &self,
        step: usize,
        trace: &Trace<T>,
        d_shown: &[T],
        d_state: &mut [T],
        deltas: &mut Deltas<T>,
        d_seen: &mut [T],
    ) {
        let (layout, rows) = (self.layout, trace.rows);
        let d_units = part_mut(&mut deltas.units, step, rows * layout.units);
        let zeros = vec![T::zero(); layout.hidden];
        for row in 0..rows {
            let at = step * rows + row;
            let units = part(&trace.units, at, layout.units);
            let d_units = &mut d_units[row * layout.units..][..layout.units];
            let Parts { hidden: d_hidden, cell: d_cell, .. } =
                Parts::of(layout, &mut d_state[row * layout.state_len()..][..layout.state_len()]);
            for (d, &more) in d_hidden.iter_mut().zip(&d_shown[row * layout.shown..]) {
                *d = *d + more;
            }
            if !layout.recurrent {
                controller::feed_forward_backward(units, d_hidden, d_units);
                d_hidden.fill(T::zero());
                continue;
            }
            let before = if trace.starts[at] {
                &zeros
            } else if step == 0 {
                &part(&trace.first, row, layout.state_len())[layout.cell()]
            } else {
                part(&trace.cells, at - rows, layout.hidden)
            };
            let cell = part(&trace.cells, at, layout.hidden);
            controller::lstm_backward(units, before, cell, d_hidden, d_cell, d_units);
        }
        let d_units = Mat::dense(d_units, rows, layout.units);
        let weights = Mat::dense(&self.weights.controller, layout.units, layout.seen_padded);
        product(MatMut::dense(d_seen, rows, layout.seen_padded), T::zero(), d_units, weights);
    }

    /// Adds the parameters' gradients of a group: products over all of its steps, on the whole pool.
    pub(super) fn add_gradients(
        &self,
        trace: &Trace<T>,
        deltas: &Deltas<T>,
        dy: &[T],
        Gradients(gradients): &mut Gradients<T>,
    ) {
        let layout = self.layout;
        let lines = trace.steps * trace.rows;
        let [controller, controller_bias, heads, heads_bias, output, output_bias] = gradients;
        let units = Mat::dense(&deltas.units, lines, layout.units);
        let seen = Mat::rows(&trace.seen, lines, layout.seen, layout.seen_padded);
        let one = T::one();
        let f32 = Precision::F32;
        matmul(MatMut::dense(controller, layout.units, layout.seen), one, units.t(), seen, f32);
        let raw = Mat::rows(&deltas.raw, lines, layout.raw, layout.raw_padded);
        let hidden = Mat::rows(&trace.shown, lines, layout.hidden, layout.shown);
        matmul(MatMut::dense(heads, layout.raw, layout.hidden), one, raw.t(), hidden, f32);
        let shown = Mat::dense(&trace.shown, lines, layout.shown);
        let dy_all = Mat::dense(dy, lines, layout.outputs);
        matmul(MatMut::dense(output, layout.outputs, layout.shown), one, dy_all.t(), shown, f32);
        add_columns(&deltas.units, layout.units, controller_bias);
        add_columns(&deltas.raw, layout.raw_padded, heads_bias);
        add_columns(dy, layout.outputs, output_bias);
    }
}

/// Adds rows of `width` columns, the first `sums.len()` of them, in order.
fn add_columns<T: Real>(matrix: &[T], width: usize, sums: &mut [T]) {
    vectorize!(for row in matrix.chunks_exact(width) {
        for (sum, &term) in sums.iter_mut().zip(row) {
            *sum = *sum + term;
        }
    });
}

fn part<T>(all: &[T], index: usize, len: usize) -> &[T] {
    &all[index * len..(index + 1) * len]
}

fn part_mut<T>(all: &mut [T], index: usize, len: usize) -> &mut [T] {
    &mut all[index * len..(index + 1) * len]
}

fn last<T>(all: &[T], len: usize) -> &[T] {
    &all[all.len() - len..]
}

fn last_mut<T>(all: &mut [T], len: usize) -> &mut [T] {
    let start = all.len() - len;
    &mut all[start..]
}

fn repeat<T: Copy>(all: &mut Vec<T>, line: &[T], count: usize) {
    for _ in 0..count {
        all.extend_from_slice(line);
    }
}
