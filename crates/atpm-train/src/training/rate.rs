//! Tokens per second and time to go.
//!
//! Only the time of training steps counts: evaluation, saving and the session's first step (which warms up
//! caches and allocators) are left out, so a resumed run shows the same rate as before.

use std::collections::VecDeque;
use std::time::Duration;

/// Steps that the rate is a mean of.
const WINDOW: usize = 20;

/// Times the steps of one session.
#[derive(Debug, Clone, Default)]
pub struct RateMeter {
    first_seen: bool,
    window: VecDeque<Lap>,
    total: Lap,
}

/// One step, or the sum of some.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Lap {
    /// Input tokens.
    pub tokens: u64,
    /// Time of the step: waiting for data, forward, backward, update.
    pub time: Duration,
    /// The part of it that waited for data.
    pub data_wait: Duration,
    /// Steps in the sum.
    pub steps: u32,
}

impl RateMeter {
    /// Counts one finished step.
    pub fn add(&mut self, tokens: u64, time: Duration, data_wait: Duration) {
        if !self.first_seen {
            self.first_seen = true;
            return;
        }
        let lap = Lap { tokens, time, data_wait, steps: 1 };
        self.total = sum([self.total, lap]);
        self.window.push_back(lap);
        if self.window.len() > WINDOW {
            self.window.pop_front();
        }
    }

    /// The last steps together; `None` until there is one to count.
    pub fn recent(&self) -> Option<Lap> {
        (!self.window.is_empty()).then(|| sum(self.window.iter().copied()))
    }

    /// All counted steps of the session together.
    pub fn session(&self) -> Option<Lap> {
        (self.total.steps > 0).then_some(self.total)
    }

    /// Time that `steps` more steps take at the recent rate.
    pub fn time_for(&self, steps: u64) -> Option<Duration> {
        let recent = self.recent()?;
        Some(recent.time.div_f64(f64::from(recent.steps)).mul_f64(steps as f64))
    }
}

impl Lap {
    /// Input tokens a second.
    pub fn tokens_per_s(&self) -> f64 {
        self.tokens as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Share of the time that waited for data, in [0, 1].
    pub fn data_wait_share(&self) -> f64 {
        (self.data_wait.as_secs_f64() / self.time.as_secs_f64().max(f64::MIN_POSITIVE)).min(1.0)
    }
}

fn sum(laps: impl IntoIterator<Item = Lap>) -> Lap {
    laps.into_iter().fold(Lap::default(), |total, lap| Lap {
        tokens: total.tokens + lap.tokens,
        time: total.time + lap.time,
        data_wait: total.data_wait + lap.data_wait,
        steps: total.steps + lap.steps,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    // O6: the rate after a resume is the rate before it, whatever the run's total of tokens.
    #[test]
    fn a_new_session_shows_the_same_rate() {
        let mut rates = Vec::new();
        for _session in 0..2 {
            let mut meter = RateMeter::default();
            meter.add(1000, 30 * SECOND, SECOND);
            assert_eq!(meter.recent(), None, "the first step is not counted");
            for _ in 0..50 {
                meter.add(1000, 2 * SECOND, SECOND / 2);
            }
            let recent = meter.recent().unwrap();
            assert_eq!(recent.steps, 20);
            assert!((recent.data_wait_share() - 0.25).abs() < 1e-12);
            assert_eq!(meter.session().unwrap().steps, 50);
            rates.push(recent.tokens_per_s());
        }
        assert_eq!(rates, [500.0, 500.0]);
    }

    #[test]
    fn time_to_go_counts_remaining_steps() {
        let mut meter = RateMeter::default();
        assert_eq!(meter.time_for(10), None);
        meter.add(1, SECOND, Duration::ZERO);
        meter.add(1, 3 * SECOND, Duration::ZERO);
        meter.add(1, SECOND, Duration::ZERO);
        assert_eq!(meter.time_for(10), Some(20 * SECOND));
        assert_eq!(meter.time_for(0), Some(Duration::ZERO));
    }
}
