//! The inner loops of a packed product, for AVX-512: packing of panels, and a tile of `C` in registers.
//!
//! Panels hold 32-bit words: an f32, or two bf16 that are neighbours along `k`. Either way one
//! instruction multiplies the words of 16 columns by the word of one row and adds to f32 sums, so
//! packing and tile are the same code for both; only [`Word`] differs.
//!
//! ```text
//! left panel    [rows, words] or [words, rows], as its source lies in memory; the tile broadcasts words
//! right panel   [strips, words, 32]: the 32 columns of a strip side by side, zeros beyond the matrix
//! ```
//!
//! What makes all of it safe is the caller's part: the instruction sets of the [`Word`] are there (every function
//! is inlined into one that enables them), a source's lines lie inside their slice, and a panel or output has
//! room for all that the arguments say.
#![expect(
    unsafe_op_in_unsafe_fn,
    reason = "nearly every line is an intrinsic or a pointer; the contract is the module's"
)]

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, __mmask16, _MM_HINT_T0, _MM_HINT_T1, _mm_prefetch, _mm512_castps_si512,
    _mm512_castsi512_ps, _mm512_cvtne2ps_pbh, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_loadu_si512,
    _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps, _mm512_permutexvar_epi16, _mm512_set1_epi32,
    _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_shuffle_i32x4, _mm512_storeu_si512,
    _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};
use std::mem::transmute;

/// Columns of a strip: two vectors.
pub(super) const STRIP: usize = 32;

/// Rows of a full tile: with two vectors each, 24 of the 32 registers hold sums.
pub(super) const TILE_ROWS: usize = 12;

/// Words of a vector.
pub(super) const LANES: usize = 16;

/// What a 32-bit word of a panel holds. All methods need the instruction sets of the implementation.
trait Word {
    /// Elements along `k` in one word.
    const DEPTH: usize;
    /// 16 words from `16·DEPTH` neighbours along `k`; where `DEPTH` is 1 there is no `second` half.
    unsafe fn along(first: __m512, second: __m512) -> __m512i;
    /// The words of 16 rows or columns from their elements at `k` and, where `DEPTH` is 2, at `k + 1`.
    unsafe fn across(this: __m512, next: __m512) -> __m512i;
    /// `sum + a·b`, lane by lane.
    unsafe fn multiply_add(sum: __m512, a: __m512i, b: __m512i) -> __m512;
}

/// One f32 a word; needs AVX-512F.
struct Single;

impl Word for Single {
    const DEPTH: usize = 1;
    #[inline(always)]
    unsafe fn along(first: __m512, _second: __m512) -> __m512i {
        _mm512_castps_si512(first)
    }
    #[inline(always)]
    unsafe fn across(this: __m512, _next: __m512) -> __m512i {
        _mm512_castps_si512(this)
    }
    #[inline(always)]
    unsafe fn multiply_add(sum: __m512, a: __m512i, b: __m512i) -> __m512 {
        _mm512_fmadd_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum)
    }
}

/// Two bf16 a word, rounded to nearest even from f32; needs AVX-512F, BW and BF16.
struct Bf16Pair;

/// `[0, 16, 1, 17, …]`: interleaves the halves of a vector of 16-bit lanes.
const INTERLEAVE: [i16; 32] = [
    0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14,
    30, 15, 31,
];

impl Word for Bf16Pair {
    const DEPTH: usize = 2;
    #[inline(always)]
    unsafe fn along(first: __m512, second: __m512) -> __m512i {
        transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(second, first))
    }
    #[inline(always)]
    unsafe fn across(this: __m512, next: __m512) -> __m512i {
        let order = _mm512_loadu_si512(INTERLEAVE.as_ptr().cast());
        _mm512_permutexvar_epi16(order, Self::along(this, next))
    }
    #[inline(always)]
    unsafe fn multiply_add(sum: __m512, a: __m512i, b: __m512i) -> __m512 {
        _mm512_dpbf16_ps(sum, transmute::<__m512i, __m512bh>(a), transmute::<__m512i, __m512bh>(b))
    }
}

/// Where a panel's source elements lie: `(line, position)` at `line·stride + position`.
#[derive(Clone, Copy)]
pub(super) struct Lines {
    pub(super) start: *const f32,
    pub(super) stride: usize,
    pub(super) count: usize,
    pub(super) length: usize,
}

impl Lines {
    /// 16 elements of a line from `position` on, zeros past its end and for lines that are not there.
    #[inline(always)]
    unsafe fn load(&self, line: usize, position: usize) -> __m512 {
        if line >= self.count || position >= self.length {
            return _mm512_setzero_ps();
        }
        let from = self.start.add(line * self.stride + position);
        _mm512_maskz_loadu_ps(first_lanes(self.length - position), from)
    }

    /// Asks for an element that will be loaded soon, if there is one; the processor guesses what follows within
    /// a line, but not where the next line begins.
    #[inline(always)]
    unsafe fn prefetch<const HINT: i32>(&self, line: usize, position: usize) {
        _mm_prefetch::<HINT>(self.start.wrapping_add(line * self.stride + position).cast());
    }
}

/// Lines across `k` that are asked for before they are packed.
const LINES_AHEAD: usize = 16;

/// A mask of the first `count` lanes, all 16 if there are more.
#[inline(always)]
fn first_lanes(count: usize) -> __mmask16 {
    if count >= LANES { !0 } else { (1 << count) - 1 }
}

/// Packs lines that run along `k`, one after another: `out [lines, words]`, `words` a multiple of 16.
#[inline(always)]
unsafe fn pack_along<W: Word>(source: Lines, words: usize, out: *mut i32) {
    for line in 0..source.count {
        for word in (0..words).step_by(LANES) {
            let position = word * W::DEPTH;
            let packed = W::along(source.load(line, position), source.load(line, position + LANES));
            source.prefetch::<_MM_HINT_T0>(line + 1, position);
            if W::DEPTH == 2 {
                source.prefetch::<_MM_HINT_T0>(line + 1, position + LANES);
            }
            _mm512_storeu_si512(out.add(line * words + word).cast(), packed);
        }
    }
}

/// Packs lines that run across `k` (one line a `k`): `out [words, width]` with rows `out_stride` words
/// apart, `width` a multiple of 16.
#[inline(always)]
unsafe fn pack_across<W: Word>(source: Lines, words: usize, width: usize, out: *mut i32, out_stride: usize) {
    for word in 0..words {
        for first in (0..width).step_by(LANES) {
            let line = word * W::DEPTH;
            let packed = W::across(source.load(line, first), source.load(line + 1, first));
            for ahead in 0..W::DEPTH {
                source.prefetch::<_MM_HINT_T0>(line + LINES_AHEAD + ahead, first);
            }
            _mm512_storeu_si512(out.add(word * out_stride + first).cast(), packed);
        }
    }
}

/// Packs lines that run along `k`, side by side: `out [words, STRIP]`, at most `STRIP` lines.
#[inline(always)]
unsafe fn pack_strip<W: Word>(source: Lines, words: usize, out: *mut i32) {
    for first in (0..STRIP).step_by(LANES) {
        for word in (0..words).step_by(LANES) {
            let position = word * W::DEPTH;
            let mut block = [_mm512_setzero_si512(); LANES];
            for (lane, packed) in block.iter_mut().enumerate() {
                let line = first + lane;
                *packed = W::along(source.load(line, position), source.load(line, position + LANES));
            }
            for (row, packed) in transposed(block).into_iter().enumerate().take(words - word) {
                _mm512_storeu_si512(out.add((word + row) * STRIP + first).cast(), packed);
            }
        }
    }
}

/// The transpose of 16 × 16 words.
#[inline(always)]
unsafe fn transposed(rows: [__m512i; LANES]) -> [__m512i; LANES] {
    let mut a = rows;
    let mut b = rows;
    // Within 128-bit lanes: pairs of rows, then pairs of pairs.
    for i in 0..8 {
        b[2 * i] = _mm512_unpacklo_epi32(a[2 * i], a[2 * i + 1]);
        b[2 * i + 1] = _mm512_unpackhi_epi32(a[2 * i], a[2 * i + 1]);
    }
    for i in 0..4 {
        a[4 * i] = _mm512_unpacklo_epi64(b[4 * i], b[4 * i + 2]);
        a[4 * i + 1] = _mm512_unpackhi_epi64(b[4 * i], b[4 * i + 2]);
        a[4 * i + 2] = _mm512_unpacklo_epi64(b[4 * i + 1], b[4 * i + 3]);
        a[4 * i + 3] = _mm512_unpackhi_epi64(b[4 * i + 1], b[4 * i + 3]);
    }
    // a[4q + j] holds column j of rows 4q.. in lane 0, column 4 + j in lane 1, and so on: gather
    // lane l of the four quads into row 4l + j.
    for j in 0..4 {
        let low = _mm512_shuffle_i32x4::<0x88>(a[j], a[4 + j]);
        let high = _mm512_shuffle_i32x4::<0x88>(a[8 + j], a[12 + j]);
        b[j] = _mm512_shuffle_i32x4::<0x88>(low, high);
        b[8 + j] = _mm512_shuffle_i32x4::<0xdd>(low, high);
        let low = _mm512_shuffle_i32x4::<0xdd>(a[j], a[4 + j]);
        let high = _mm512_shuffle_i32x4::<0xdd>(a[8 + j], a[12 + j]);
        b[4 + j] = _mm512_shuffle_i32x4::<0x88>(low, high);
        b[12 + j] = _mm512_shuffle_i32x4::<0xdd>(low, high);
    }
    b
}

/// The left panel of a tile: word `w` of row `r` at `start + r·row_stride + w·word_stride`.
#[derive(Clone, Copy)]
pub(super) struct Left {
    pub(super) start: *const i32,
    pub(super) row_stride: usize,
    pub(super) word_stride: usize,
}

/// Where a tile is written: row-major, `columns` of at most `STRIP`.
#[derive(Clone, Copy)]
pub(super) struct Out {
    pub(super) start: *mut f32,
    pub(super) stride: usize,
    pub(super) columns: usize,
    /// `C ← keep·C + A·B`; with `keep = 0` what `C` held is not read.
    pub(super) keep: f32,
}

/// The lines that this thread will probably pack next. They are asked for a few at a time while it multiplies, which
/// leaves memory idle; packing alone would wait for them.
pub(super) struct Ahead {
    lines: Lines,
    line: usize,
    position: usize,
}

impl Ahead {
    pub(super) fn new(lines: Lines) -> Self {
        Self { lines, line: 0, position: 0 }
    }

    /// Asks for the next [`LINES_A_TIME`] cache lines, as long as there are any.
    #[inline(always)]
    fn step(&mut self) {
        for _ in 0..LINES_A_TIME {
            if self.line >= self.lines.count {
                return;
            }
            // SAFETY: a prefetch reads nothing, and SSE is part of x86-64.
            unsafe { self.lines.prefetch::<_MM_HINT_T1>(self.line, self.position) };
            self.position += LANES;
            if self.position >= self.lines.length {
                (self.line, self.position) = (self.line + 1, 0);
            }
        }
    }
}

/// Words of a tile between two steps of [`Ahead`], about 1500 cycles.
const WORDS_A_STEP: usize = 64;

/// Cache lines of a step. A task of 512 columns, the fewest here, then just gets through all lines of the next.
const LINES_A_TIME: usize = 8;

/// All rows of one strip.
#[inline(always)]
unsafe fn rows_times_strip<W: Word>(
    rows: usize,
    words: usize,
    left: Left,
    right: *const i32,
    out: Out,
    ahead: &mut Ahead,
) {
    let mut row = 0;
    let from = |row: usize| {
        let left = Left { start: left.start.add(row * left.row_stride), ..left };
        (left, Out { start: out.start.add(row * out.stride), ..out })
    };
    while row + TILE_ROWS <= rows {
        let (left, out) = from(row);
        tile::<W, TILE_ROWS>(words, left, right, out, ahead);
        row += TILE_ROWS;
    }
    while row + 4 <= rows {
        let (left, out) = from(row);
        tile::<W, 4>(words, left, right, out, ahead);
        row += 4;
    }
    while row < rows {
        let (left, out) = from(row);
        tile::<W, 1>(words, left, right, out, ahead);
        row += 1;
    }
}

/// `M` rows of one strip, in registers.
#[inline(always)]
unsafe fn tile<W: Word, const M: usize>(
    words: usize,
    left: Left,
    right: *const i32,
    out: Out,
    ahead: &mut Ahead,
) {
    // The tile's own lines of `C` are needed last, and are rarely in the cache before.
    for row in 0..M {
        let line = out.start.wrapping_add(row * out.stride);
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
        _mm_prefetch::<_MM_HINT_T0>(line.wrapping_add(LANES).cast());
    }
    let mut sums = [[_mm512_setzero_ps(); 2]; M];
    for first in (0..words).step_by(WORDS_A_STEP) {
        ahead.step();
        for word in first..(first + WORDS_A_STEP).min(words) {
            let b = right.add(word * STRIP);
            let b = [_mm512_loadu_si512(b.cast()), _mm512_loadu_si512(b.add(LANES).cast())];
            let a = left.start.add(word * left.word_stride);
            for (row, sums) in sums.iter_mut().enumerate() {
                let a = _mm512_set1_epi32(*a.add(row * left.row_stride));
                sums[0] = W::multiply_add(sums[0], a, b[0]);
                sums[1] = W::multiply_add(sums[1], a, b[1]);
            }
        }
    }
    let keep = _mm512_set1_ps(out.keep);
    for (row, sums) in sums.into_iter().enumerate() {
        for (half, sum) in sums.into_iter().enumerate() {
            let first = half * LANES;
            if first < out.columns {
                let lanes = first_lanes(out.columns - first);
                let at = out.start.add(row * out.stride + first);
                let value = if out.keep == 0.0 {
                    sum
                } else {
                    _mm512_fmadd_ps(keep, _mm512_maskz_loadu_ps(lanes, at), sum)
                };
                _mm512_mask_storeu_ps(at, lanes, value);
            }
        }
    }
}

/// The inner loops for one kind of word, compiled with the instruction sets they need.
pub(in crate::vector) struct Kernel {
    /// Elements along `k` in one word.
    pub(super) depth: usize,
    /// Packs at most `STRIP` columns from source lines along `k`.
    pub(super) pack_strip_along: unsafe fn(Lines, usize, *mut i32),
    /// Packs at most `STRIP` columns from source lines across `k`.
    pub(super) pack_strip_across: unsafe fn(Lines, usize, *mut i32),
    /// Packs rows from source lines along `k`: `[rows, words]`.
    pub(super) pack_rows_along: unsafe fn(Lines, usize, *mut i32),
    /// Packs rows from source lines across `k`: `[words, rows]`, rows rounded up to a vector.
    pub(super) pack_rows_across: unsafe fn(Lines, usize, *mut i32),
    /// Rows, words: multiplies a left panel with one strip.
    pub(super) strip: unsafe fn(usize, usize, Left, *const i32, Out, &mut Ahead),
}

/// A [`Kernel`] of the generic loops, with the instruction sets enabled.
macro_rules! kernel {
    ($word:ty, $features:literal) => {{
        #[target_feature(enable = $features)]
        unsafe fn pack_strip_along(source: Lines, words: usize, out: *mut i32) {
            pack_strip::<$word>(source, words, out)
        }
        #[target_feature(enable = $features)]
        unsafe fn pack_strip_across(source: Lines, words: usize, out: *mut i32) {
            pack_across::<$word>(source, words, STRIP, out, STRIP)
        }
        #[target_feature(enable = $features)]
        unsafe fn pack_rows_along(source: Lines, words: usize, out: *mut i32) {
            pack_along::<$word>(source, words, out)
        }
        #[target_feature(enable = $features)]
        unsafe fn pack_rows_across(source: Lines, words: usize, out: *mut i32) {
            let width = source.length.next_multiple_of(LANES);
            pack_across::<$word>(source, words, width, out, width)
        }
        #[target_feature(enable = $features)]
        unsafe fn strip(
            rows: usize,
            words: usize,
            left: Left,
            right: *const i32,
            out: Out,
            ahead: &mut Ahead,
        ) {
            rows_times_strip::<$word>(rows, words, left, right, out, ahead)
        }
        let depth = <$word as Word>::DEPTH;
        Kernel { depth, pack_strip_along, pack_strip_across, pack_rows_along, pack_rows_across, strip }
    }};
}

/// f32; needs AVX-512F.
pub(super) static SINGLE: Kernel = kernel!(Single, "avx512f");

/// Operands rounded to bf16; needs AVX-512F, BW and BF16.
pub(super) static BF16: Kernel = kernel!(Bf16Pair, "avx512f,avx512bw,avx512bf16");
