//! `bench ntm`: a training step of the Neural Turing machine on copy.

use atpm_data::synthetic::vector::VectorTask;
use serde::Serialize;

use super::clock::{Resident, median, resident_bytes, seconds};
use crate::report::output;
use crate::run::exit::user;
use crate::suite::ntm::settings::Settings;
use crate::suite::ntm::trainer::Trainer;

/// Flags of `bench ntm`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Vectors to copy; a sequence has twice as many steps and one.
    #[arg(long, default_value_t = 20)]
    size: usize,
    /// Sequences of a step.
    #[arg(long, default_value_t = 16)]
    rows: usize,
    /// Hidden units of the LSTM.
    #[arg(long, default_value_t = 128)]
    hidden: usize,
    /// Slots of the memory.
    #[arg(long, default_value_t = 128)]
    slots: usize,
    /// Numbers in a slot.
    #[arg(long, default_value_t = 32)]
    width: usize,
    /// Steps that count, after three that do not.
    #[arg(long, default_value_t = 20)]
    steps: usize,
    /// One JSON object: params, rows, sequence_steps, threads, step_ms (median), loss (of the last step), peak_rss_bytes.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    params: usize,
    rows: usize,
    sequence_steps: usize,
    threads: usize,
    step_ms: f64,
    loss: f64,
    peak_rss_bytes: Option<u64>,
}

/// Measures and reports.
///
/// # Errors
/// Sizes that make no machine, or an op that refuses.
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let report = measure(args)?;
    if args.json {
        return output::json(&report);
    }
    output::line(format_args!(
        "{} parameters, {} sequences of {} steps, threads: {}: {:.2} ms a training step",
        report.params, report.rows, report.sequence_steps, report.threads, report.step_ms
    ))
}

fn measure(args: &Args) -> anyhow::Result<Report> {
    let mut settings = Settings::of(VectorTask::Copy);
    settings.model.hidden = args.hidden;
    settings.model.slots = args.slots;
    settings.model.width = args.width;
    settings.train.rows = args.rows;
    (settings.train.least, settings.train.most) = (args.size, args.size);
    if args.size == 0 || args.rows == 0 {
        return Err(user("--size and --rows must be at least 1"));
    }
    let mut trainer = Trainer::new(&settings)?;
    let mut loss = 0.0;
    let times = seconds(3, args.steps, || {
        loss = trainer.train_step()?.loss;
        Ok(())
    })?;
    Ok(Report {
        params: trainer.parameter_count(),
        rows: args.rows,
        sequence_steps: 2 * args.size + 1,
        threads: rayon::current_num_threads(),
        step_ms: 1e3 * median(times),
        loss,
        peak_rss_bytes: resident_bytes(Resident::Peak),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::exit;

    #[test]
    fn a_small_machine_is_timed_and_no_machine_is_refused() {
        let args = |size| Args { size, rows: 2, hidden: 8, slots: 8, width: 4, steps: 2, json: true };
        let report = measure(&args(3)).unwrap();
        // LSTM: 4·8·(9 + 4 + 8 + 1); heads: (2·(4 + 6) + 8)·(8 + 1); output: 8·(8 + 4 + 1).
        assert_eq!((report.params, report.rows, report.sequence_steps), (704 + 252 + 104, 2, 7));
        assert!(report.step_ms > 0.0 && report.loss.is_finite());
        assert_eq!(exit::code(&measure(&args(0)).unwrap_err()), 2);
    }
}
