//! Where messages go: standard error, and the run folder's train.log once there is one.
//!
//! `RUST_LOG` chooses what is logged (default `info`), as usual in the Rust world.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::mem;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use indicatif::MultiProgress;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt};

use super::exit;

/// The log's name in a run folder.
pub const LOG: &str = "train.log";

/// Bytes of early messages that are kept until there is a log; a command that never has one forgets the rest.
const EARLY_BYTES: usize = 1 << 20;

/// Standard error, the log file and the progress bars above which messages appear. Clones share all of it.
#[derive(Debug, Clone, Default)]
pub struct Console {
    log: Arc<Mutex<Log>>,
    bars: MultiProgress,
}

/// The log of a run, before and after its folder is there.
#[derive(Debug)]
enum Log {
    /// What was said so far.
    Early(Vec<u8>),
    Open(File),
}

impl Default for Log {
    fn default() -> Self {
        Self::Early(Vec::new())
    }
}

impl Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Open(file) => file.write(bytes),
            Self::Early(early) => {
                early.extend_from_slice(&bytes[..bytes.len().min(EARLY_BYTES - early.len())]);
                Ok(bytes.len())
            }
        }
    }
}

impl Console {
    /// A console that the whole process logs to.
    pub fn install() -> Self {
        let console = Self::default();
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
        let (terminal, file) = (console.clone(), console.clone());
        tracing_subscriber::registry()
            .with(filter)
            .with(
                fmt::layer()
                    .without_time()
                    .with_target(false)
                    .with_ansi(io::stderr().is_terminal())
                    .with_writer(move || Terminal(terminal.clone())),
            )
            .with(fmt::layer().with_ansi(false).with_target(false).with_writer(move || LogFile(file.clone())))
            .init();
        console
    }

    /// Copies everything from the program's start on to the run folder's train.log, after what it already holds.
    ///
    /// # Errors
    /// A file that cannot be opened or written.
    pub fn attach(&self, run_dir: &Path) -> anyhow::Result<()> {
        let path = run_dir.join(LOG);
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("cannot open the log {}", path.display()))?;
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Log::Early(early) = mem::take(&mut *log) {
            file.write_all(&early).with_context(|| format!("cannot write the log {}", path.display()))?;
        }
        *log = Log::Open(file);
        Ok(())
    }

    /// The progress bars of this terminal.
    pub fn bars(&self) -> &MultiProgress {
        &self.bars
    }

    /// Says why the program ends, whatever `RUST_LOG` is.
    pub fn error(&self, error: &anyhow::Error) {
        let message = format!("error: {}\n", exit::message(error));
        for writer in [&mut Terminal(self.clone()) as &mut dyn Write, &mut LogFile(self.clone())] {
            // Nothing is left to tell a failure to.
            drop(writer.write_all(message.as_bytes()));
        }
    }
}

/// Says that the program was built without optimisation, where its speed matters: a slow build looks like a slow
/// program.
pub fn warn_if_unoptimised() {
    if env!("ATPM_OPT_LEVEL") != "3" {
        tracing::warn!("this is a development build, which is slower; use `cargo build --release`");
    }
}

struct Terminal(Console);

impl Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.bars.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

struct LogFile(Console);

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.log.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
