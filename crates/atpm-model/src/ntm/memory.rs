//! One row's memory in one step: every head's address, reading, erasing and adding, and their backward.

use std::ops::Range;

use atpm_core::vector::{Real, dot, sigmoid, vectorize};

use super::addressing::{Controls, FOCUS_PARTS, Focus, Scratch, address, address_backward, inverse_norms};
use super::controller::tanh;
use super::layout::{KEPT_CONTROLS, Layout, Parts};

/// What a row keeps of a step for backward, in one array.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Kept {
    /// `[heads, W]`.
    keys: Range<usize>,
    /// `[heads, KEPT_CONTROLS]`.
    controls: Range<usize>,
    /// `[heads, 4, N]`, see [`Focus`].
    focus: Range<usize>,
    /// Erase and add of the write heads, `[writes, 2, W]`.
    contents: Range<usize>,
    /// `ŵ [writes, N]`.
    written: Range<usize>,
    /// `[N]`.
    norms: Range<usize>,
    /// `f'`.
    free: Range<usize>,
    /// `M' [W, N]`.
    memory: Range<usize>,
}

impl Kept {
    pub(super) fn new(layout: &Layout) -> Self {
        let mut end = 0;
        let mut part = |len: usize| {
            end += len;
            end - len..end
        };
        let Layout { heads, width, slots, writes, .. } = *layout;
        Self {
            keys: part(heads * width),
            controls: part(heads * KEPT_CONTROLS),
            focus: part(heads * FOCUS_PARTS * slots),
            contents: part(writes * 2 * width),
            written: part(writes * slots),
            norms: part(slots),
            free: part(slots),
            memory: part(width * slots),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.memory.end
    }

    /// The weights `[N]` of a head, in what a row kept.
    pub(super) fn weights_of<'a, T>(&self, layout: &Layout, kept: &'a [T], head: usize) -> &'a [T] {
        let slots = layout.slots;
        Focus::of(&kept[self.focus.clone()][head * FOCUS_PARTS * slots..], slots).weights
    }
}

/// Scratch of a row's step, used by one thread.
pub(super) struct Work<T> {
    line: Vec<T>,
    other: Vec<T>,
    scratch: Scratch<T>,
    /// `[heads, N]`.
    d_products: Vec<T>,
    /// `[N]`.
    d_norms: Vec<T>,
    /// `[writes, N]`.
    d_written: Vec<T>,
    /// `[heads, W]`.
    d_keys: Vec<T>,
    /// `[writes, 2, W]`.
    d_contents: Vec<T>,
}

impl<T: Real> Work<T> {
    pub(super) fn new(layout: &Layout) -> Self {
        let zeros = |len: usize| vec![T::zero(); len];
        let Layout { heads, width, slots, writes, .. } = *layout;
        Self {
            line: zeros(slots),
            other: zeros(slots),
            scratch: Scratch::new(slots),
            d_products: zeros(heads * slots),
            d_norms: zeros(slots),
            d_written: zeros(writes * slots),
            d_keys: zeros(heads * width),
            d_contents: zeros(writes * 2 * width),
        }
    }
}

/// What a step of a row needs to know besides its state.
#[derive(Clone, Copy)]
pub(super) struct Setting<'a, T> {
    pub(super) layout: &'a Layout,
    pub(super) kept: &'a Kept,
    /// The factor on `β`.
    pub(super) anneal: T,
}

impl<T: Real> Setting<'_, T> {
    /// One step: `state` moves on, `kept` is filled. `raw` is what the controller told the heads.
    pub(super) fn step(&self, raw: &[T], state: &mut [T], kept: &mut [T], work: &mut Work<T>) {
        vectorize!(self.step_row(raw, state, kept, work));
    }

    #[inline(always)]
    fn step_row(&self, raw: &[T], state: &mut [T], kept: &mut [T], work: &mut Work<T>) {
        let (layout, places) = (self.layout, self.kept);
        let (slots, width) = (layout.slots, layout.width);
        let Parts { read, weights, free, memory, .. } = Parts::of(layout, state);
        kept[places.memory.clone()].copy_from_slice(memory);
        kept[places.free.clone()].copy_from_slice(free);
        inverse_norms(memory, &mut kept[places.norms.clone()]);

        for head in 0..layout.heads {
            let (before_norms, norms) = kept.split_at_mut(places.norms.start);
            let (before_focus, focus) = before_norms.split_at_mut(places.focus.start);
            let key = &mut before_focus[places.keys.clone()][head * width..(head + 1) * width];
            let controls = Controls::activate(&raw[layout.address_of(head)], self.anneal, key);
            let focus = &mut focus[head * FOCUS_PARTS * slots..(head + 1) * FOCUS_PARTS * slots];
            let weights = &mut weights[head * slots..(head + 1) * slots];
            address(&controls, key, memory, &norms[..slots], weights, focus, &mut work.line);
            kept[places.controls.clone()][head * KEPT_CONTROLS..(head + 1) * KEPT_CONTROLS]
                .copy_from_slice(&controls.kept());
        }
        for (read, weights) in read.chunks_exact_mut(width).zip(weights.chunks_exact(slots)) {
            for (read, line) in read.iter_mut().zip(memory.chunks_exact(slots)) {
                *read = dot(weights, line);
            }
        }
        for write in 0..layout.writes {
            let contents = &mut kept[places.contents.clone()][write * 2 * width..(write + 1) * 2 * width];
            let (erase, add) = contents.split_at_mut(width);
            let (raw_erase, raw_add) = raw[layout.write_of(write)].split_at(width);
            for (erase, &raw) in erase.iter_mut().zip(raw_erase) {
                *erase = sigmoid(raw);
            }
            for (add, &raw) in add.iter_mut().zip(raw_add) {
                *add = tanh(raw);
            }
            let head = layout.reads + write;
            let written = &mut kept[places.written.clone()][write * slots..(write + 1) * slots];
            written.copy_from_slice(&weights[head * slots..(head + 1) * slots]);
        }
        if layout.suppression > 0.0 {
            self.suppress(&mut kept[places.written.clone()], free);
        }
        self.write(&kept[places.contents.clone()], &kept[places.written.clone()], memory);
    }

    /// `w → ŵ`, and `f' → f`.
    #[inline(always)]
    fn suppress(&self, written: &mut [T], free: &mut [T]) {
        let strength = T::of(self.layout.suppression);
        for weights in written.chunks_exact_mut(free.len()) {
            for (weight, &free) in weights.iter_mut().zip(free.iter()) {
                *weight = *weight * (T::one() - strength * (T::one() - free));
            }
        }
        for weights in written.chunks_exact(free.len()) {
            for (free, &weight) in free.iter_mut().zip(weights) {
                *free = *free * (T::one() - weight);
            }
        }
    }

    #[inline(always)]
    fn write(&self, contents: &[T], written: &[T], memory: &mut [T]) {
        let (slots, width) = (self.layout.slots, self.layout.width);
        for (at, line) in memory.chunks_exact_mut(slots).enumerate() {
            for (contents, weights) in contents.chunks_exact(2 * width).zip(written.chunks_exact(slots)) {
                let erase = contents[at];
                for (m, &w) in line.iter_mut().zip(weights) {
                    *m = *m * (T::one() - w * erase);
                }
            }
            for (contents, weights) in contents.chunks_exact(2 * width).zip(written.chunks_exact(slots)) {
                let add = contents[width + at];
                for (m, &w) in line.iter_mut().zip(weights) {
                    *m = w.mul_add(add, *m);
                }
            }
        }
    }

    /// Backward of [`Self::step`]. `d_state` holds the gradient of the state after the step, `d_read` included, and gets
    /// that of `w'`, `f'` and `M'`; the other parts are the controller's affair. `d_raw` is written.
    pub(super) fn step_backward(
        &self,
        raw: &[T],
        kept: &[T],
        before: &[T],
        d_state: &mut [T],
        d_raw: &mut [T],
        work: &mut Work<T>,
    ) {
        vectorize!(self.step_row_backward(raw, kept, before, d_state, d_raw, work));
    }

    #[inline(always)]
    fn step_row_backward(
        &self,
        raw: &[T],
        kept: &[T],
        before: &[T],
        d_state: &mut [T],
        d_raw: &mut [T],
        work: &mut Work<T>,
    ) {
        let (layout, places) = (self.layout, self.kept);
        let (slots, width) = (layout.slots, layout.width);
        let Parts { read: d_read, weights: d_weights, free: d_free, memory: d_memory, .. } =
            Parts::of(layout, d_state);
        let memory = &kept[places.memory.clone()];

        self.write_and_read_backward(kept, d_read, d_weights, d_memory, work);
        if layout.suppression > 0.0 {
            self.suppress_backward(kept, d_free, &mut work.d_written);
        } else {
            d_free.fill(T::zero());
        }
        let d_written = work.d_written.chunks_exact(slots);
        let d_writing = d_weights[layout.reads * slots..].chunks_exact_mut(slots);
        if layout.suppression > 0.0 {
            let (strength, free) = (T::of(layout.suppression), &kept[places.free.clone()]);
            for (d_weights, d_written) in d_writing.zip(d_written) {
                for ((d, &more), &free) in d_weights.iter_mut().zip(d_written).zip(free) {
                    *d = *d + more * (T::one() - strength * (T::one() - free));
                }
            }
        } else {
            for (d_weights, d_written) in d_writing.zip(d_written) {
                for (d, &more) in d_weights.iter_mut().zip(d_written) {
                    *d = *d + more;
                }
            }
        }

        work.d_norms.fill(T::zero());
        d_raw.fill(T::zero());
        for head in 0..layout.heads {
            let all = &kept[places.controls.clone()][head * KEPT_CONTROLS..(head + 1) * KEPT_CONTROLS];
            let focus = Focus::of(&kept[places.focus.clone()][head * FOCUS_PARTS * slots..], slots);
            let key = &kept[places.keys.clone()][head * width..(head + 1) * width];
            let gradients = address_backward(
                &Controls::of(all),
                &raw[layout.address_of(head)],
                self.anneal,
                &focus,
                &kept[places.norms.clone()],
                &before[head * slots..(head + 1) * slots],
                &mut d_weights[head * slots..(head + 1) * slots],
                &mut work.d_products[head * slots..(head + 1) * slots],
                &mut work.d_norms,
                &mut work.scratch,
            );
            let (d_key, d_controls) = d_raw[layout.address_of(head)].split_at_mut(width);
            d_controls.copy_from_slice(&gradients.raw);
            // Through the key's norm; the rest follows below, with the memory.
            for (d, &k) in d_key.iter_mut().zip(key) {
                *d = gradients.key_scale * k;
            }
        }
        self.similarity_backward(kept, memory, d_memory, work);
        for head in 0..layout.heads {
            let key = &kept[places.keys.clone()][head * width..(head + 1) * width];
            let d_key = &mut d_raw[layout.address_of(head)][..width];
            for ((d, &more), &k) in d_key.iter_mut().zip(&work.d_keys[head * width..]).zip(key) {
                *d = (*d + more) * (T::one() - k * k);
            }
        }
        for write in 0..layout.writes {
            let part = write * 2 * width..(write + 1) * 2 * width;
            let (erase, add) = kept[places.contents.clone()][part.clone()].split_at(width);
            let (d_erase, d_add) = work.d_contents[part].split_at(width);
            let (out_erase, out_add) = d_raw[layout.write_of(write)].split_at_mut(width);
            for ((out, &d), &e) in out_erase.iter_mut().zip(d_erase).zip(erase) {
                *out = d * e * (T::one() - e);
            }
            for ((out, &d), &a) in out_add.iter_mut().zip(d_add).zip(add) {
                *out = d * (T::one() - a * a);
            }
        }
    }

    /// Through `M = M' Π(1 − ŵ e) + Σ ŵ a` and `r = Σ w M'`: fills `d_written` and `d_contents`, adds to the read heads'
    /// weights, and turns `d_memory` from the gradient of `M` into that of `M'` (as far as these two go).
    #[inline(always)]
    fn write_and_read_backward(
        &self,
        kept: &[T],
        d_read: &[T],
        d_weights: &mut [T],
        d_memory: &mut [T],
        work: &mut Work<T>,
    ) {
        let (layout, places) = (self.layout, self.kept);
        let (slots, width, one) = (layout.slots, layout.width, T::one());
        let (contents, written) = (&kept[places.contents.clone()], &kept[places.written.clone()]);
        let Work { line, other, d_written, d_contents, .. } = work;
        d_written.fill(T::zero());
        let weights_of = |write: usize| &written[write * slots..(write + 1) * slots];
        let lines = d_memory.chunks_exact_mut(slots).zip(kept[places.memory.clone()].chunks_exact(slots));
        for (at, (d_line, m_line)) in lines.enumerate() {
            for ((product, &d), &m) in line.iter_mut().zip(d_line.iter()).zip(m_line) {
                *product = d * m;
            }
            for write in 0..layout.writes {
                let weights = weights_of(write);
                let (erase, add) = (contents[write * 2 * width + at], contents[(write * 2 + 1) * width + at]);
                let kept_by_others = if layout.writes == 1 {
                    &*line
                } else {
                    other.copy_from_slice(line);
                    for others in (0..layout.writes).filter(|&others| others != write) {
                        let erase = contents[others * 2 * width + at];
                        for (value, &w) in other.iter_mut().zip(weights_of(others)) {
                            *value = *value * (one - w * erase);
                        }
                    }
                    &*other
                };
                d_contents[write * 2 * width + at] = -dot(kept_by_others, weights);
                d_contents[(write * 2 + 1) * width + at] = dot(d_line, weights);
                let d_written = &mut d_written[write * slots..(write + 1) * slots];
                for ((out, &d), &product) in d_written.iter_mut().zip(d_line.iter()).zip(kept_by_others) {
                    *out = *out + add * d - erase * product;
                }
            }
            for write in 0..layout.writes {
                let erase = contents[write * 2 * width + at];
                for (d, &w) in d_line.iter_mut().zip(weights_of(write)) {
                    *d = *d * (one - w * erase);
                }
            }
            for read in 0..layout.reads {
                let d_read = d_read[read * width + at];
                let weights = self.kept.weights_of(layout, kept, read);
                let d_weights = &mut d_weights[read * slots..(read + 1) * slots];
                for (((d, d_weight), &w), &m) in
                    d_line.iter_mut().zip(d_weights.iter_mut()).zip(weights).zip(m_line)
                {
                    *d = w.mul_add(d_read, *d);
                    *d_weight = m.mul_add(d_read, *d_weight);
                }
            }
        }
    }

    /// Through `f = f' Π(1 − ŵ)`, `ŵ = w (1 − ς(1 − f'))`: adds to `d_written` and turns `d_free` into the gradient of `f'`.
    #[inline(always)]
    fn suppress_backward(&self, kept: &[T], d_free: &mut [T], d_written: &mut [T]) {
        let (layout, places, one) = (self.layout, self.kept, T::one());
        let (slots, strength) = (layout.slots, T::of(layout.suppression));
        let (written, free) = (&kept[places.written.clone()], &kept[places.free.clone()]);
        for slot in 0..slots {
            let weight = |write: usize| written[write * slots + slot];
            let left_by = |except: Option<usize>| {
                let others = (0..layout.writes).filter(|&write| Some(write) != except);
                others.fold(one, |left, write| left * (one - weight(write)))
            };
            let d = d_free[slot];
            let mut d_before = d * left_by(None);
            for write in 0..layout.writes {
                let d_weight = &mut d_written[write * slots + slot];
                *d_weight = *d_weight - d * free[slot] * left_by(Some(write));
                let head_weights = self.kept.weights_of(layout, kept, layout.reads + write);
                d_before = d_before + strength * head_weights[slot] * *d_weight;
            }
            d_free[slot] = d_before;
        }
    }

    /// Through `k·M'_i` and the slots' norms: fills `d_keys`, adds to `d_memory`.
    #[inline(always)]
    fn similarity_backward(&self, kept: &[T], memory: &[T], d_memory: &mut [T], work: &mut Work<T>) {
        let (layout, places) = (self.layout, self.kept);
        let (slots, width) = (layout.slots, layout.width);
        let keys = &kept[places.keys.clone()];
        let lines = d_memory.chunks_exact_mut(slots).zip(memory.chunks_exact(slots));
        for (at, (d_line, m_line)) in lines.enumerate() {
            for ((d, &m), &norm) in d_line.iter_mut().zip(m_line).zip(&work.d_norms) {
                *d = m.mul_add(norm, *d);
            }
            for head in 0..layout.heads {
                let d_products = &work.d_products[head * slots..(head + 1) * slots];
                work.d_keys[head * width + at] = dot(d_products, m_line);
                let key = keys[head * width + at];
                for (d, &product) in d_line.iter_mut().zip(d_products) {
                    *d = product.mul_add(key, *d);
                }
            }
        }
    }
}
