//! The memory allocator of the binary, told to keep what it was given.
//!
//! A training step allocates the same large buffers again and again. By default the allocator hands
//! freed memory back to the system after some milliseconds, and the next step takes a page fault for
//! every page of it: on the reference step that was nearly half of the time.
#![expect(unsafe_code, reason = "the one setting is reached through a foreign function")]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of mimalloc's C interface, which the bindings do not name.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

/// Keeps freed memory in the process instead of handing it back.
pub(crate) fn keep_memory() {
    // SAFETY: the function only stores a number in the allocator's table of options, and is called
    // before any other thread exists.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, -1) }
}
