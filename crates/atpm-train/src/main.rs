//! `atpm-train`: see [`atpm_train::run::cli`] for the command line.

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    atpm_train::run::main()
}
