//! The outside of a run: command line, configuration, run folder, exit codes.

/// Entry point of the binary.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
