//! The learning rate as a pure function of the step, so that a resumed run cannot differ.

use crate::run::config::{Schedule, ScheduleKind};

/// The learning rate of one step (counted from 1) of `steps`.
///
/// Linear warm-up reaches `peak` at step `warmup`; from there the rate falls to `peak · final_ratio` at the last step, along
/// a cosine or over the last `decay_steps` steps. Without steps of decay, or with a warm-up over all steps, it does not fall.
pub fn learning_rate(schedule: &Schedule, peak: f64, steps: u64, step: u64) -> f64 {
    if step <= schedule.warmup {
        return peak * step as f64 / schedule.warmup as f64;
    }
    let share = match schedule.kind {
        ScheduleKind::Cosine => {
            let progress = (step - schedule.warmup) as f64 / (steps - schedule.warmup) as f64;
            0.5 * (1.0 + (std::f64::consts::PI * progress.min(1.0)).cos())
        }
        ScheduleKind::Wsd => {
            let left = steps.saturating_sub(step);
            if left >= schedule.decay_steps { 1.0 } else { left as f64 / schedule.decay_steps as f64 }
        }
    };
    peak * (schedule.final_ratio + (1.0 - schedule.final_ratio) * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(kind: ScheduleKind, warmup: u64, decay_steps: u64) -> Schedule {
        Schedule { kind, warmup, final_ratio: 0.1, decay_steps }
    }

    // T5: the rate at warm-up, peak and decay, as a table.
    #[test]
    fn rates_at_the_corners() {
        use ScheduleKind::{Cosine, Wsd};
        let table = [
            (schedule(Cosine, 10, 0), 100, 1, 0.1),
            (schedule(Cosine, 10, 0), 100, 5, 0.5),
            (schedule(Cosine, 10, 0), 100, 10, 1.0),
            (schedule(Cosine, 10, 0), 100, 55, 0.55),
            (schedule(Cosine, 10, 0), 100, 100, 0.1),
            (schedule(Cosine, 0, 0), 1, 1, 0.1),
            (schedule(Cosine, 200, 0), 100, 100, 0.5),
            (schedule(Wsd, 10, 20), 100, 10, 1.0),
            (schedule(Wsd, 10, 20), 100, 80, 1.0),
            (schedule(Wsd, 10, 20), 100, 90, 0.55),
            (schedule(Wsd, 10, 20), 100, 100, 0.1),
            (schedule(Wsd, 0, 0), 100, 100, 1.0),
        ];
        for (schedule, steps, step, expected) in table {
            let rate = learning_rate(&schedule, 1.0, steps, step);
            assert!(
                (rate - expected).abs() < 1e-12,
                "{schedule:?}, step {step}: {rate}, expected {expected}"
            );
        }
    }

    #[test]
    fn never_rises_after_the_warm_up() {
        for kind in [ScheduleKind::Cosine, ScheduleKind::Wsd] {
            let schedule = schedule(kind, 7, 13);
            let rates: Vec<_> = (7..=40).map(|step| learning_rate(&schedule, 3e-4, 40, step)).collect();
            assert!(rates.windows(2).all(|pair| pair[1] <= pair[0]), "{kind:?}: {rates:?}");
        }
    }
}
