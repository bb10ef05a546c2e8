//! What a person sees while a run trains: a bar on a terminal, plain lines elsewhere.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::metrics::{Evaluation, Record};
use crate::run::logging::Console;

/// Shows the steps of one session.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    log_every: u64,
    last_step: u64,
}

impl Progress {
    /// For a session that goes on after step `done` and ends after step `last_step`; a plain line every
    /// `log_every` steps where standard error is no terminal.
    pub fn new(console: &Console, done: u64, last_step: u64, log_every: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
            let bar = ProgressBar::new(last_step).with_position(done);
            let bar = bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            console.bars().add(bar)
        });
        Self { bar, log_every, last_step }
    }

    /// Shows a finished step and the time to go.
    pub fn step(&self, record: &Record, to_go: Option<Duration>) {
        let text = describe(record, to_go);
        if let Some(bar) = &self.bar {
            bar.set_position(record.step);
            bar.set_message(text);
        } else if record.step.is_multiple_of(self.log_every) || record.step == self.last_step {
            tracing::info!("step {}/{} {text}", record.step, self.last_step);
        }
    }

    /// Shows an evaluation.
    pub fn evaluation(&self, step: u64, evaluation: &Evaluation) {
        tracing::info!(
            "step {step} validation: {:.4} nats, perplexity {:.2}, {:.4} bits/byte ({:.1} s)",
            evaluation.loss,
            evaluation.perplexity,
            evaluation.bits_per_byte,
            evaluation.seconds
        );
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}

fn describe(record: &Record, to_go: Option<Duration>) -> String {
    let number = |value: Option<f64>, digits| value.map_or("–".into(), |value| format!("{value:.digits$}"));
    let mut text = format!(
        "loss {} lr {:.2e} grad {} {} tokens/s",
        number(record.loss, 4),
        record.lr,
        number(record.grad_norm_preclip, 3),
        number(record.tokens_per_s, 0),
    );
    if let Some(time) = to_go {
        let _ = write!(text, " ETA {}", clock(time));
    }
    if record.skipped_steps > 0 {
        let _ = write!(text, " ({} skipped)", record.skipped_steps);
    }
    text
}

/// `1:02:03`, or `2:03` below an hour.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_matters() {
        let record = Record {
            step: 5,
            loss: Some(2.0),
            lr: 1e-3,
            grad_norm_preclip: Some(0.5),
            tokens_per_s: Some(1234.5),
            skipped_steps: 1,
            ..Record::default()
        };
        assert_eq!(
            describe(&record, Some(Duration::from_secs(3723))),
            "loss 2.0000 lr 1.00e-3 grad 0.500 1234 tokens/s ETA 1:02:03 (1 skipped)"
        );
        assert_eq!(describe(&Record::default(), None), "loss – lr 0.00e0 grad – – tokens/s");
    }
}
