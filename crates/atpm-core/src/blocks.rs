//! How rows are dealt to threads, and how their partial sums come back together.
//!
//! Blocks depend on the sizes alone, never on the number of threads, and partial sums are added in
//! the order of their blocks: the same input gives the same bits on any machine.

use rayon::prelude::*;

use crate::vector::{Real, vectorize};

/// Elements a block aims at: 128 KiB of f32, so that a block's rows stay in the second-level cache.
const BLOCK_ELEMENTS: usize = 32_768;

/// Rows of one block, for rows of `width` elements.
pub(crate) fn rows_per_block(width: usize) -> usize {
    (BLOCK_ELEMENTS / width.max(1)).clamp(16, 512)
}

/// Adds partial sums, `[blocks, sums.len()]`, into `sums`: each element in the order of the blocks.
pub(crate) fn add_partials<T: Real>(partials: &[T], sums: &mut [T]) {
    const COLUMNS: usize = 1024;
    let width = sums.len();
    sums.par_chunks_mut(COLUMNS).enumerate().for_each(|(block, sums)| {
        let first = block * COLUMNS;
        vectorize!({
            for partial in partials.chunks_exact(width) {
                add(&partial[first..first + sums.len()], sums);
            }
        });
    });
}

/// `sum += term`, element by element. Call inside `vectorize!`.
#[inline(always)]
pub(crate) fn add<T: Real>(term: &[T], sum: &mut [T]) {
    for (sum, &term) in sum.iter_mut().zip(term) {
        *sum = *sum + term;
    }
}
