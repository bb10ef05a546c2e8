//! The one pool of threads that rows, heads and matrix blocks are spread over.

use anyhow::Context;

/// Builds the process's pool with this many threads (0 = all cores). Call once, before any work.
///
/// # Errors
/// A pool that exists already.
pub fn build_pool(threads: usize) -> anyhow::Result<()> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .context("the thread pool exists already")
}
