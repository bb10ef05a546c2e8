//! Memory that an op is about to write.
#![expect(unsafe_code, reason = "memory is handed out without a pass that clears it first")]

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
