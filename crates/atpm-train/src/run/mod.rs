//! The outside of a run: command line, configuration, run folder, exit codes.

pub mod cli;
pub mod config;
pub mod data;
pub mod device;
pub mod exit;
#[cfg(test)]
mod flags;
pub mod folder;
pub mod logging;
pub mod memory;
pub(crate) mod nearest;
pub mod program;
pub mod suite;
pub mod threads;
pub mod tokenizer;
pub mod whole;

use std::process::ExitCode;

use clap::Parser;

use crate::report::output::ReaderGone;

/// Entry point of the binary: parses the command line, runs it, and gives the exit code.
pub fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        Err(help_or_mistake) => {
            let code = if help_or_mistake.use_stderr() { 2 } else { 0 };
            // The terminal may be gone; the exit code still tells.
            drop(help_or_mistake.print());
            return ExitCode::from(code);
        }
    };
    let console = logging::Console::install();
    match cli::run(cli, &console) {
        Ok(()) => ExitCode::SUCCESS,
        // It has seen enough.
        Err(error) if error.is::<ReaderGone>() => ExitCode::SUCCESS,
        Err(error) => {
            let code = exit::exit_code(&error);
            console.error(&device::with_versions(error));
            code
        }
    }
}
