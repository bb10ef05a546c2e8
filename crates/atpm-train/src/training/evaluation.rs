//! Loss on validation shards: nats, perplexity, bits per byte, and by place in the document.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use atpm_data::{Batch, EvalSource, IGNORE, TextConfig, Tokenizer};
use atpm_model::Decoder;

use super::inputs::Inputs;
use super::signals::StopFlag;
use crate::report::metrics::{Evaluation, PositionLoss};

/// First place of each range of places in the document; the last range has no end.
const RANGES: [u32; 8] = [0, 1, 4, 16, 64, 256, 1024, 4096];

/// Evaluates on `data.val`, at most `batches` batches (0 = all). Reads the model, changes nothing: training
/// goes on with the same bits. `each` is shown every batch with its token losses, in nats and in the order of
/// its targets. `None` if `stop` was raised meanwhile.
///
/// # Errors
/// Shards that cannot be read, or hold no token to predict.
pub fn evaluate(
    model: &Decoder,
    config: &TextConfig,
    tokenizer: &Arc<Tokenizer>,
    batches: u64,
    stop: &StopFlag,
    mut each: impl FnMut(&Batch, &[f32]),
) -> anyhow::Result<Option<Evaluation>> {
    let started = Instant::now();
    let mut source = EvalSource::open(config, Arc::clone(tokenizer))?;
    let mut tally = Tally::default();
    let mut done = 0;
    while batches == 0 || done < batches {
        if stop.raised().is_some() {
            return Ok(None);
        }
        let Some(batch) = source.next_batch()? else { break };
        let inputs = Inputs::of(&batch)?;
        let losses = model.evaluate(&inputs.ids, &inputs.targets, &inputs.segments)?;
        let losses = atpm_core::read_f32(&losses)?;
        tally.add(&batch, &losses);
        each(&batch, &losses);
        done += 1;
    }
    let read = source.counters();
    if read.bad_shards + read.bad_row_groups > 0 {
        tracing::warn!(
            "the evaluation went without {} unreadable shards and {} row groups",
            read.bad_shards,
            read.bad_row_groups
        );
    }
    tally
        .evaluation(started.elapsed().as_secs_f64())
        .context("the validation shards hold no token to predict")
        .map(Some)
}

/// Sums of token losses by place in the document.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    ranges: [(f64, u64); RANGES.len()],
    bytes: u64,
}

impl Tally {
    /// Adds a batch and its token losses, in nats and in the order of its targets.
    pub fn add(&mut self, batch: &Batch, losses: &[f32]) {
        for ((&target, &place), &loss) in batch.targets.iter().zip(&batch.positions).zip(losses) {
            if target != IGNORE {
                let range = RANGES.partition_point(|&from| from <= place) - 1;
                self.ranges[range].0 += f64::from(loss);
                self.ranges[range].1 += 1;
            }
        }
        self.bytes += batch.target_bytes;
    }

    /// The means; `None` if nothing counted. `seconds` is the time it took.
    pub fn evaluation(&self, seconds: f64) -> Option<Evaluation> {
        let (sum, target_tokens) =
            self.ranges.iter().fold((0.0, 0), |(sum, count), range| (sum + range.0, count + range.1));
        if target_tokens == 0 {
            return None;
        }
        let loss = sum / target_tokens as f64;
        let by_position = (0..RANGES.len()).filter(|&range| self.ranges[range].1 > 0).map(|range| {
            let (sum, target_tokens) = self.ranges[range];
            let to = RANGES.get(range + 1).map(|next| next - 1);
            PositionLoss { from: RANGES[range], to, loss: sum / target_tokens as f64, target_tokens }
        });
        Some(Evaluation {
            loss,
            perplexity: loss.exp(),
            bits_per_byte: sum / std::f64::consts::LN_2 / self.bytes as f64,
            target_tokens,
            target_bytes: self.bytes,
            by_position: by_position.collect(),
            seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_sorted_by_place() {
        let batch = Batch {
            rows: 1,
            tokens: 6,
            ids: vec![0; 6],
            targets: vec![1, 1, IGNORE, 1, 1, 1],
            starts: vec![vec![0]],
            positions: vec![0, 1, 2, 3, 4, 5000],
            target_bytes: 10,
        };
        let mut tally = Tally::default();
        assert!(tally.evaluation(0.0).is_none());
        tally.add(&batch, &[1.0, 2.0, 9.0, 4.0, 5.0, 8.0]);
        let evaluation = tally.evaluation(0.5).unwrap();
        let ranges: Vec<_> =
            evaluation.by_position.iter().map(|r| (r.from, r.to, r.loss, r.target_tokens)).collect();
        assert_eq!(
            ranges,
            [(0, Some(0), 1.0, 1), (1, Some(3), 3.0, 2), (4, Some(15), 5.0, 1), (4096, None, 8.0, 1)]
        );
        assert_eq!((evaluation.loss, evaluation.target_tokens), (4.0, 5));
        assert!((evaluation.bits_per_byte - 20.0 / std::f64::consts::LN_2 / 10.0).abs() < 1e-12);
        assert!((evaluation.perplexity - 4f64.exp()).abs() < 1e-9);
    }
}
