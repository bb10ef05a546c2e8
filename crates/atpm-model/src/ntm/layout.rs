//! Where things stand: in a row's state, and in what the controller tells the heads.

use std::ops::Range;

use atpm_core::vector::Real;

use super::config::{ControllerKind, NtmConfig};

/// Shifts that a head can make: −1, 0, +1.
pub(super) const SHIFTS: usize = 3;
/// What the controller tells a head besides its key: `β`, `g`, the shifts, `γ`.
pub(super) const CONTROLS: usize = 3 + SHIFTS;
/// What is kept of a head's controls: those, and the inverse of the key's norm.
pub(super) const KEPT_CONTROLS: usize = CONTROLS + 1;
/// Rows of products are padded to whole vectors of this many columns.
const LANES: usize = 16;

/// Sizes that follow from a [`NtmConfig`], and offsets.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Layout {
    pub(super) recurrent: bool,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) hidden: usize,
    pub(super) slots: usize,
    pub(super) width: usize,
    pub(super) reads: usize,
    pub(super) writes: usize,
    /// Read heads, then write heads.
    pub(super) heads: usize,
    /// Rows of the controller's weight: four a hidden unit, or one.
    pub(super) units: usize,
    /// What the controller sees: `[x; r]`, and `h` if it is recurrent.
    pub(super) seen: usize,
    /// [`Self::seen`] in whole vectors.
    pub(super) seen_padded: usize,
    /// What the heads are told: address and controls of each, then erase and add of the write heads.
    pub(super) raw: usize,
    /// [`Self::raw`] in whole vectors.
    pub(super) raw_padded: usize,
    /// What the output sees: `[h; r]`.
    pub(super) shown: usize,
    pub(super) suppression: f64,
}

impl Layout {
    pub(super) fn new(config: &NtmConfig) -> Self {
        let NtmConfig { inputs, outputs, hidden, slots, width, suppression, .. } = *config;
        let (reads, writes) = (config.read_heads, config.write_heads);
        let (heads, recurrent) = (reads + writes, config.controller == ControllerKind::Lstm);
        let read = reads * width;
        let (units, seen) =
            if recurrent { (4 * hidden, inputs + read + hidden) } else { (hidden, inputs + read) };
        let raw = heads * (width + CONTROLS) + writes * 2 * width;
        Self {
            recurrent,
            inputs,
            outputs,
            hidden,
            slots,
            width,
            reads,
            writes,
            heads,
            units,
            seen,
            seen_padded: seen.next_multiple_of(LANES),
            raw,
            raw_padded: raw.next_multiple_of(LANES),
            shown: hidden + read,
            suppression,
        }
    }

    /// What the controller tells a head about its address: key, then controls.
    pub(super) fn address_of(&self, head: usize) -> Range<usize> {
        let size = self.width + CONTROLS;
        head * size..(head + 1) * size
    }

    /// What the controller tells a write head about its content: erase, then add.
    pub(super) fn write_of(&self, write: usize) -> Range<usize> {
        let first = self.heads * (self.width + CONTROLS);
        first + write * 2 * self.width..first + (write + 1) * 2 * self.width
    }

    /// Numbers of a row's state.
    pub(super) fn state_len(&self) -> usize {
        self.memory().end
    }

    /// `h [H]` in a row's state.
    pub(super) fn hidden_state(&self) -> Range<usize> {
        0..self.hidden
    }

    /// `c [H]`.
    pub(super) fn cell(&self) -> Range<usize> {
        self.hidden..2 * self.hidden
    }

    /// `r [R, W]`.
    pub(super) fn read(&self) -> Range<usize> {
        let start = 2 * self.hidden;
        start..start + self.reads * self.width
    }

    /// `w [heads, N]`.
    pub(super) fn weights(&self) -> Range<usize> {
        let start = self.read().end;
        start..start + self.heads * self.slots
    }

    /// `f [N]`.
    pub(super) fn free(&self) -> Range<usize> {
        let start = self.weights().end;
        start..start + self.slots
    }

    /// `M [W, N]`.
    pub(super) fn memory(&self) -> Range<usize> {
        let start = self.free().end;
        start..start + self.width * self.slots
    }

    /// The state at the start of a sequence, written over a row.
    pub(super) fn start<T: Real>(&self, state: &mut [T]) {
        state.fill(T::zero());
        for head in state[self.weights()].chunks_exact_mut(self.slots) {
            head[0] = T::one();
        }
        state[self.free()].fill(T::one());
    }
}

/// A row's state in its parts.
pub(super) struct Parts<'a, T> {
    pub(super) hidden: &'a mut [T],
    pub(super) cell: &'a mut [T],
    pub(super) read: &'a mut [T],
    pub(super) weights: &'a mut [T],
    pub(super) free: &'a mut [T],
    pub(super) memory: &'a mut [T],
}

impl<'a, T> Parts<'a, T> {
    pub(super) fn of(layout: &Layout, state: &'a mut [T]) -> Self {
        let (hidden, rest) = state.split_at_mut(layout.hidden);
        let (cell, rest) = rest.split_at_mut(layout.hidden);
        let (read, rest) = rest.split_at_mut(layout.reads * layout.width);
        let (weights, rest) = rest.split_at_mut(layout.heads * layout.slots);
        let (free, memory) = rest.split_at_mut(layout.slots);
        Self { hidden, cell, read, weights, free, memory }
    }
}
