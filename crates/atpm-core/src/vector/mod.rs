//! Vectors and matrices on the CPU: run-time dispatch and matrix products.
//!
//! The build targets plain x86-64; what the processor can do beyond it is detected once, at run
//! time. Loops become vector code by running inside `vectorize!`. Matrix products, by [`matmul`]:
//!
//! | rows | right operand | where |
//! |---|---|---|
//! | few (decoding) | a weight along its rows | `dots` |
//! | others, on AVX-512 | any | `packed` |
//! | others | any | the `gemm` crate |
//!
//! Small ones in a core's cache (the mixer's) are [`product`]. Beside these and `cuda`, nothing in this crate may be `unsafe`.

use std::array;
use std::sync::LazyLock;

pub mod bands;
mod block;
mod dots;
mod exp;
mod matrix;
mod memory;
#[cfg(target_arch = "x86_64")]
mod packed;

pub use block::{product, transpose};
pub use exp::{exp, exp_f32, log1p_exp, sigmoid};
pub use matrix::{Mat, MatMut, Precision, matmul};
pub(crate) use memory::{prefetch, unset};
pub use pulp::Arch;

/// The two element types that ops compute in. f64 exists to check f32's written gradients.
pub trait Real: num_traits::Float + Send + Sync + std::iter::Sum + std::fmt::Debug + 'static {
    /// `e^self`; for f32 a polynomial that vectorises (1.02 ulp), for f64 the standard library's.
    #[must_use]
    fn fast_exp(self) -> Self;
    /// Rounds an f64 constant to this type.
    fn of(value: f64) -> Self;
    /// Widens to f64.
    fn wide(self) -> f64;
    /// The kernel behind [`matmul`], whose shapes were checked.
    fn matmul(c: &mut MatMut<'_, Self>, keep: Self, a: Mat<'_, Self>, b: Mat<'_, Self>, precision: Precision);
    /// The kernel behind [`product`], whose shapes were checked.
    fn block_product(c: &mut MatMut<'_, Self>, keep: Self, a: Mat<'_, Self>, b: Mat<'_, Self>);
}

impl Real for f32 {
    #[inline(always)]
    fn fast_exp(self) -> Self {
        exp_f32(self)
    }
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is what `of` is for")]
    fn of(value: f64) -> Self {
        value as f32
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn matmul(c: &mut MatMut<'_, f32>, keep: f32, a: Mat<'_, f32>, b: Mat<'_, f32>, precision: Precision) {
        #[cfg(target_arch = "x86_64")]
        if let Some(kernel) = packed::bf16().filter(|_| precision == Precision::Bf16 && c.rows >= PACKED_ROWS)
        {
            packed::product(kernel, c, keep, a, b);
            return;
        }
        if c.rows <= DOTS_ROWS && dots::fits(&a, &b) {
            dots::product(c, keep, a, b);
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(kernel) = packed::single().filter(|_| c.rows >= PACKED_ROWS) {
            packed::product(kernel, c, keep, a, b);
            return;
        }
        matrix::general(c, keep, a, b);
    }
    fn block_product(c: &mut MatMut<'_, Self>, keep: Self, a: Mat<'_, Self>, b: Mat<'_, Self>) {
        block::product_f32(c, keep, a, b);
    }
}

impl Real for f64 {
    #[inline(always)]
    fn fast_exp(self) -> Self {
        self.exp()
    }
    #[inline(always)]
    fn of(value: f64) -> Self {
        value
    }
    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
    fn matmul(c: &mut MatMut<'_, f64>, keep: f64, a: Mat<'_, f64>, b: Mat<'_, f64>, _: Precision) {
        matrix::general(c, keep, a, b);
    }
    fn block_product(c: &mut MatMut<'_, Self>, keep: Self, a: Mat<'_, Self>, b: Mat<'_, Self>) {
        block::product_plain(c, keep, a, b);
    }
}

/// Whether this processor multiplies bf16 with f32 sums.
pub(crate) fn bf16_products() -> bool {
    #[cfg(target_arch = "x86_64")]
    return packed::bf16().is_some();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Rows up to which an f32 product is faster with its right operand read as it lies than packed.
const DOTS_ROWS: usize = 12;

/// Rows below which packing the right operand costs more than the product.
#[cfg(target_arch = "x86_64")]
const PACKED_ROWS: usize = 8;

/// Evaluates an expression compiled for the best instruction set this processor has (AVX-512, AVX2
/// or plain x86-64). What it calls must be `#[inline(always)]` to take part; `mul_add` becomes one
/// instruction in it. Results do not depend on which set is chosen, since neither fused
/// multiply-add nor an explicit order of summation does.
///
/// A macro, because each instruction set needs a closure of its own: a closure shared by all of them
/// is too large to be inlined into each, and code that is not inlined stays scalar.
#[macro_export]
macro_rules! vectorize {
    ($body:expr) => {
        match $crate::vector::arch() {
            #[cfg(target_arch = "x86_64")]
            $crate::vector::Arch::V4(avx512) => avx512.vectorize(|| $body),
            #[cfg(target_arch = "x86_64")]
            $crate::vector::Arch::V3(avx2) => avx2.vectorize(|| $body),
            _ => $body,
        }
    };
}
pub use crate::vectorize;

/// The best instruction set of this processor, detected once; what [`vectorize!`] asks.
#[inline(always)]
pub fn arch() -> Arch {
    static ARCH: LazyLock<Arch> = LazyLock::new(Arch::new);
    *ARCH
}

/// The vector instructions that ops use on this processor, by name.
pub fn instructions() -> &'static str {
    match arch() {
        #[cfg(target_arch = "x86_64")]
        Arch::V4(_) => "AVX-512",
        #[cfg(target_arch = "x86_64")]
        Arch::V3(_) => "AVX2",
        _ => "those of the build's target alone",
    }
}

/// Lanes of the explicit partial sums in reductions: one AVX-512 register of f32.
pub const LANES: usize = 16;

/// `Σ aᵢ·bᵢ` in a fixed order (sixteen partial sums, then pairwise). Call inside `vectorize!`.
#[inline(always)]
pub fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    let mut sums = [T::zero(); LANES];
    let (a_blocks, b_blocks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let tail: T = a_blocks.remainder().iter().zip(b_blocks.remainder()).map(|(&x, &y)| x * y).sum();
    for (x, y) in a_blocks.zip(b_blocks) {
        for lane in 0..LANES {
            sums[lane] = x[lane].mul_add(y[lane], sums[lane]);
        }
    }
    fold(sums) + tail
}

/// Adds the lanes of a partial sum pairwise, in a fixed order.
#[inline(always)]
pub fn fold<T: Real>(sums: [T; LANES]) -> T {
    // Arrays of constant length, which stay in registers.
    let eight: [T; 8] = array::from_fn(|lane| sums[lane] + sums[lane + 8]);
    let four: [T; 4] = array::from_fn(|lane| eight[lane] + eight[lane + 4]);
    (four[0] + four[2]) + (four[1] + four[3])
}
