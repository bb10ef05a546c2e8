//! Memory that an op is about to write or read.
#![expect(
    unsafe_code,
    reason = "memory is handed out without a pass that clears it first, and asked for early"
)]

use super::Real;

/// `len` elements of no particular value, for a caller that writes every one of them before it reads
/// any. Clearing them first would cost a pass over memory, on one thread, for every output of every op.
///
/// With debug assertions, and so in tests, they are NaN: an element that was never written shows.
pub(crate) fn unset<T: Real>(len: usize) -> Vec<T> {
    if cfg!(debug_assertions) || !cfg!(target_arch = "x86_64") {
        return vec![T::nan(); len];
    }
    let mut elements = Vec::with_capacity(len);
    // SAFETY: the (empty) assembly is given the pointer and is not declared to leave memory alone, so for
    // the compiler it may have written the elements: they are initialised, with values it knows nothing
    // about, and every bit pattern is an f32 or f64.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("/* {0} */", in(reg) elements.as_mut_ptr(), options(nostack, preserves_flags));
        elements.set_len(len);
    }
    elements
}

/// Asks for elements that will be read or written soon, so that they are in the second-level cache by then.
/// For rows that lie far apart: what follows in memory, the processor asks for by itself.
#[inline(always)]
pub(crate) fn prefetch<T>(elements: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        const LINE: usize = 64;
        let start = elements.as_ptr().cast::<i8>();
        for offset in (0..size_of_val(elements)).step_by(LINE) {
            // SAFETY: a prefetch reads nothing, and SSE is part of x86-64.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(start.wrapping_add(offset)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = elements;
}
