//! `atpm-train`: see [`atpm_train::run::cli`] for the command line.

mod allocator;

fn main() -> std::process::ExitCode {
    allocator::keep_memory();
    atpm_train::run::main()
}
