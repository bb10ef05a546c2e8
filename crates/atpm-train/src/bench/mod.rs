//! Speed, measured side by side: whole steps, single ops, decoding, data.
//!
//! Every figure comes with what it is measured against in the same process: a step with the
//! machine's own matrix-product peak, its ops with that and with the speed of memory, an op with both and with its
//! reference in plain candle operations, decoding with itself after a longer past and with the speed of memory.
//!
//! Reading order: [`sizes`] (what is measured), [`clock`] (how), [`work`] (what an op cannot do without),
//! [`cases`] (the ops of a step), then
//! one file a command: [`step`] (with its [`op_table`]), [`ops`], [`decode`], [`ntm`], [`data`].

pub mod cases;
pub mod clock;
mod data;
mod decode;
mod ntm;
mod op_table;
mod ops;
pub mod sizes;
mod step;
pub mod work;

#[cfg(test)]
mod tests;

use crate::run::threads;

const EXAMPLES: &str = "\
Examples:
  atpm-train bench step --config configs/tiny.toml     tokens a second of a training step, op by op
  atpm-train bench ops --json                          each op beside its floors and its reference
  atpm-train bench ops --config configs/200m.toml --batch 32 --device cuda:0 --dtype bf16
  atpm-train bench decode                              the same speed and state, however much was read
  atpm-train bench decode --after 0 --rows 8           eight sequences decoded together";

/// Flags of `bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Threads (0 = all cores).
    #[arg(long, global = true, default_value_t = 0)]
    threads: usize,
    #[command(subcommand)]
    command: Command,
}

/// What to measure.
#[derive(Debug, clap::Subcommand)]
enum Command {
    /// A whole training step: tokens a second, share of the machine's matrix-product peak, a table of ops.
    Step(step::Args),
    /// Each op, forward and backward, beside the least time that the device needs for it, and on the CPU beside its
    /// reference in plain candle operations.
    Ops(ops::Args),
    /// Decoding: tokens a second and bytes of state after a short and a long past.
    Decode(decode::Args),
    /// A training step of the Neural Turing machine on copy.
    Ntm(ntm::Args),
    /// Reading, tokenizing and packing shards: tokens a second and memory over time.
    Data(data::Args),
}

/// Measures, and reports on standard output.
///
/// # Errors
/// Sizes that cannot be built, shards that cannot be read, or an op that refuses.
pub fn run(args: Args) -> anyhow::Result<()> {
    threads::build_pool(args.threads)?;
    match args.command {
        Command::Step(args) => step::run(&args),
        Command::Ops(args) => ops::run(&args),
        Command::Decode(args) => decode::run(&args),
        Command::Ntm(args) => ntm::run(&args),
        Command::Data(args) => data::run(&args),
    }
}
