//! Ctrl-C and SIGTERM: a flag that the trainer looks at, so that a run ends at a step boundary with its
//! checkpoint saved. A second signal, be it the same or the other, ends the process at once with the same exit code
//! (128 + signal) and nothing saved.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::Context;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether somebody asked the run to stop.
#[derive(Debug, Clone, Default)]
pub struct StopFlag {
    signal: Arc<AtomicUsize>,
}

impl StopFlag {
    /// A flag that SIGINT and SIGTERM set.
    ///
    /// # Errors
    /// An operating system that refuses signal handlers.
    pub fn on_signals() -> anyhow::Result<Self> {
        let stop = Self::default();
        // One for both: the second signal may be the other one.
        let seen = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            let number = usize::try_from(signal)?;
            // In this order the first signal finds the condition false and the second one true.
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&seen))
                .and_then(|_| flag::register(signal, Arc::clone(&seen)))
                .and_then(|_| flag::register_usize(signal, Arc::clone(&stop.signal), number))
                .context("cannot listen for signals")?;
        }
        Ok(stop)
    }

    /// Asks the run to stop, as the signal of this number does.
    pub fn raise(&self, signal: i32) {
        self.signal.store(usize::try_from(signal).unwrap_or(1), Ordering::Relaxed);
    }

    /// The signal that asked, if one did.
    pub fn raised(&self) -> Option<i32> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }
}
