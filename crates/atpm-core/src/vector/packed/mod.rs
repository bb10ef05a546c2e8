//! Large matrix products on AVX-512, in f32 or from operands rounded to bf16.
//!
//! Both operands are packed into panels that the inner loop reads from front to back, block by block:
//!
//! ```text
//! for block of columns, block of k:     pack the right operand, all threads           (shared)
//!     for task (rows × strips):         pack its rows of the left operand              (one core's cache)
//!         for strip of 32 columns:      C[rows, strip] += left · right, 12 rows at once (registers)
//! ```
//!
//! An element of `C` is a chain of fused multiply-adds in the order of `k`, with one rounding to
//! memory between blocks of `k`, whose size depends on `k` alone. A small `C` with a long `k` (the gradient of a
//! weight) has too few rows and strips for many threads: there runs of blocks have sums of their own, one thread
//! each, and these are added in the order of `k`; how many depends on the shape alone. So the number of threads
//! and the division into tasks change no bit.
#![expect(unsafe_code, reason = "panels are written and read through pointers whose extent is checked here")]

mod kernel;

use std::cell::Cell;
use std::sync::LazyLock;

use rayon::prelude::*;

use super::matrix::{Mat, MatMut};
use super::{unset, vectorize};
use kernel::{Ahead, Kernel, LANES, Left, Lines, Out, STRIP, TILE_ROWS};

/// Words along `k` of a block: a strip of the right panel is then 64 KiB, and stays in the second-level
/// cache beside the rows of a task.
const BLOCK_WORDS: usize = 512;

/// Rows of a task's left panel: eight tiles, 192 KiB in the second-level cache.
const TASK_ROWS: usize = 8 * TILE_ROWS;

/// Columns packed at once: with [`BLOCK_WORDS`], 8 MiB of right panel at most.
const BLOCK_COLUMNS: usize = 4096;

/// Tasks a thread at least, where there are enough strips: the last ones to finish then cost little.
const TASKS_PER_THREAD: usize = 8;

/// Elements up to which `C` is small: runs of blocks then have sums of their own.
const SMALL: usize = 1 << 16;

/// Runs of blocks with sums of their own, at most.
const RUNS: usize = 16;

/// The kernel for f32, if the processor has AVX-512.
pub(super) fn single() -> Option<&'static Kernel> {
    static HERE: LazyLock<bool> = LazyLock::new(|| is_x86_feature_detected!("avx512f"));
    HERE.then_some(&kernel::SINGLE)
}

/// The kernel for operands rounded to bf16, if the processor multiplies them.
pub(super) fn bf16() -> Option<&'static Kernel> {
    static HERE: LazyLock<bool> = LazyLock::new(|| {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512bf16")
    });
    HERE.then_some(&kernel::BF16)
}

/// 64 bytes of a panel; panels start at, and are made of, whole cache lines.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "read and written through pointers")] [i32; LANES]);

/// Panel memory of a thread, kept from product to product.
type Panel = Cell<Vec<Line>>;

thread_local! {
    static LEFT: Panel = const { Cell::new(Vec::new()) };
    static RIGHT: Panel = const { Cell::new(Vec::new()) };
}

/// Runs `body` with `words` words of the thread's panel memory. It is taken, not borrowed: should the
/// thread begin another product meanwhile, that one gets memory of its own.
fn with_panel(panel: &'static std::thread::LocalKey<Panel>, words: usize, body: impl FnOnce(&mut [Line])) {
    let mut memory = panel.take();
    let lines = words.div_ceil(LANES);
    if memory.len() < lines {
        memory.resize(lines, Line([0; LANES]));
    }
    body(&mut memory[..lines]);
    panel.set(memory);
}

/// A pointer that tasks share; each task's accesses are its own affair.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);
// SAFETY: tasks write disjoint parts and read only what was finished before they began.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// By method, so that closures capture the whole and not its (unshareable) field.
    fn get(self) -> *mut T {
        self.0
    }
}

/// `C ← keep·C + A·B`; shapes were checked. With `keep = 0` what `C` held is not read.
pub(super) fn product(kernel: &Kernel, c: &mut MatMut<'_, f32>, keep: f32, a: Mat<'_, f32>, b: Mat<'_, f32>) {
    let depth = a.columns;
    let blocks = depth.div_ceil(BLOCK_WORDS * kernel.depth).max(1);
    // Blocks of one size, in whole vectors of words: the last is not a sliver.
    let block = depth.div_ceil(blocks).next_multiple_of(LANES * kernel.depth).max(1);
    let all = Product { kernel, block, is_alone: false };
    if blocks == 1 || c.rows * c.columns > SMALL {
        all.add_to(c, keep, a, b);
        return;
    }
    let run = blocks.div_ceil(RUNS) * block;
    let size = c.rows * c.columns;
    let mut sums = unset::<f32>(depth.div_ceil(run) * size);
    let (rows, columns) = (c.rows, c.columns);
    sums.par_chunks_mut(size).with_max_len(1).enumerate().for_each(|(index, sums)| {
        let k = index * run..((index + 1) * run).min(depth);
        let (a, b) = (a.block(0..rows, k.clone()), b.block(k, 0..columns));
        let alone = Product { is_alone: true, ..all };
        alone.add_to(&mut MatMut::dense(sums, rows, columns), 0.0, a, b);
    });
    for row in 0..rows {
        let line = &mut c.data[row * c.row_stride..][..columns];
        for (index, sums) in sums.chunks_exact(size).enumerate() {
            let sums = &sums[row * columns..][..columns];
            let keep = if index == 0 { keep } else { 1.0 };
            vectorize!(add(line, keep, sums));
        }
    }
}

/// `line ← keep·line + sums`; with `keep = 0` what `line` held is not read.
#[inline(always)]
fn add(line: &mut [f32], keep: f32, sums: &[f32]) {
    for (element, &sum) in line.iter_mut().zip(sums) {
        *element = if keep == 0.0 { sum } else { keep.mul_add(*element, sum) };
    }
}

/// How a product is done.
#[derive(Clone, Copy)]
struct Product<'a> {
    kernel: &'a Kernel,
    /// Elements of a block along `k`, with padding.
    block: usize,
    /// Whether it is one thread's.
    is_alone: bool,
}

impl Product<'_> {
    /// Words of a block along `k`.
    fn words(&self) -> usize {
        self.block / self.kernel.depth
    }

    /// `C ← keep·C + A·B`, block by block.
    fn add_to(&self, c: &mut MatMut<'_, f32>, keep: f32, a: Mat<'_, f32>, b: Mat<'_, f32>) {
        let depth = a.columns;
        for first_column in (0..c.columns).step_by(BLOCK_COLUMNS) {
            let columns = first_column..(first_column + BLOCK_COLUMNS).min(c.columns);
            for first in (0..depth.max(1)).step_by(self.block) {
                let k = first..(first + self.block).min(depth);
                let (a, b) = (a.block(0..a.rows, k.clone()), b.block(k, columns.clone()));
                let keep = if first == 0 { keep } else { 1.0 };
                Block { product: *self, a, b, keep }.add_to(c, first_column);
            }
        }
    }

    /// Runs `body` for every index below `count`, on the whole pool unless the product is one thread's.
    fn for_each(&self, count: usize, body: impl Fn(usize) + Send + Sync) {
        if self.is_alone {
            (0..count).for_each(body);
        } else {
            (0..count).into_par_iter().with_max_len(1).for_each(body);
        }
    }
}

/// One block of `k` and of columns.
struct Block<'a> {
    product: Product<'a>,
    a: Mat<'a, f32>,
    b: Mat<'a, f32>,
    keep: f32,
}

impl Block<'_> {
    fn add_to(&self, c: &mut MatMut<'_, f32>, first_column: usize) {
        let Product { kernel, is_alone, .. } = self.product;
        let words = self.product.words();
        let threads = if is_alone { 1 } else { rayon::current_num_threads() };
        let strips = self.b.columns.div_ceil(STRIP);
        let row_tasks = self.a.rows.div_ceil(TASK_ROWS);
        let groups =
            (TASKS_PER_THREAD * threads).div_ceil(row_tasks.max(1)).clamp(1, strips.div_ceil(4).max(1));
        with_panel(&RIGHT, strips * words * STRIP, |right| {
            let right = Shared(right.as_mut_ptr().cast::<i32>());
            let strip_at = |strip: usize| {
                // SAFETY: the panel holds `strips` strips of `words · STRIP` words.
                unsafe { right.get().add(strip * words * STRIP) }
            };
            self.product.for_each(strips, |strip| self.pack_strip(strip, strip_at(strip)));
            let out = Shared(c.data.as_mut_ptr());
            let (stride, columns) = (c.row_stride, self.b.columns);
            self.product.for_each(row_tasks * groups, |task| {
                let (row_task, group) = (task / groups, task % groups);
                let rows_of = |task: usize| {
                    let end = |task: usize| (task * TASK_ROWS).min(self.a.rows);
                    end(task)..end(task + 1)
                };
                let rows = rows_of(row_task);
                let next = (task + 1) / groups;
                // The pool deals out tasks in runs, so the next is mostly this thread's as well.
                let mut ahead = Ahead::new(self.source(if next == row_task { 0..0 } else { rows_of(next) }));
                let strips = group * strips / groups..(group + 1) * strips / groups;
                self.with_left(rows.clone(), |left| {
                    for strip in strips {
                        let column = strip * STRIP;
                        let out = Out {
                            // SAFETY: `C` has the rows of `a` and holds these columns of `b`.
                            start: unsafe { out.get().add(rows.start * stride + first_column + column) },
                            stride,
                            columns: STRIP.min(columns - column),
                            keep: self.keep,
                        };
                        // SAFETY: `left` holds these rows and `right` this strip, `words` words each. `C`
                        // holds the rows and columns written, and no other task writes them: tasks
                        // differ in rows or in strips. The kernel's instruction sets were detected.
                        unsafe {
                            (kernel.strip)(rows.len(), words, left, strip_at(strip), out, &mut ahead);
                        }
                    }
                });
            });
        });
    }

    /// Packs one strip of the right operand to `out`, `words · STRIP` words that no one else touches.
    fn pack_strip(&self, strip: usize, out: *mut i32) {
        let first = strip * STRIP;
        let columns = first..(first + STRIP).min(self.b.columns);
        let b = self.b.block(0..self.b.rows, columns);
        let (kernel, words) = (self.product.kernel, self.product.words());
        // SAFETY: the lines are those of a checked view; the kernel's instruction sets were detected.
        unsafe {
            if b.column_stride == 1 {
                (kernel.pack_strip_across)(lines(b), words, out);
            } else {
                (kernel.pack_strip_along)(lines(b.t()), words, out);
            }
        }
    }

    /// Where rows of the left operand lie.
    fn source(&self, rows: std::ops::Range<usize>) -> Lines {
        let a = self.a.block(rows, 0..self.a.columns);
        lines(if a.column_stride == 1 { a } else { a.t() })
    }

    /// Packs rows of the left operand into this thread's panel, for `body`.
    fn with_left(&self, rows: std::ops::Range<usize>, body: impl FnOnce(Left)) {
        let a = self.a.block(rows, 0..self.a.columns);
        let width = a.rows.next_multiple_of(LANES);
        let (kernel, words) = (self.product.kernel, self.product.words());
        with_panel(&LEFT, width * words, |panel| {
            let out = panel.as_mut_ptr().cast::<i32>();
            // SAFETY: the lines are those of a checked view; the panel holds `words` words for every row
            // and for those that round them up; the kernel's instruction sets were detected.
            unsafe {
                if a.column_stride == 1 {
                    (kernel.pack_rows_along)(lines(a), words, out);
                    body(Left { start: out, row_stride: words, word_stride: 1 });
                } else {
                    (kernel.pack_rows_across)(lines(a.t()), words, out);
                    body(Left { start: out, row_stride: 1, word_stride: width });
                }
            }
        });
    }
}

/// The rows of a view whose rows are contiguous.
fn lines(view: Mat<'_, f32>) -> Lines {
    debug_assert_eq!(view.column_stride, 1, "lines are contiguous");
    Lines { start: view.data.as_ptr(), stride: view.row_stride, count: view.rows, length: view.columns }
}

#[cfg(test)]
mod tests;
