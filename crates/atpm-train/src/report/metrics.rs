//! What is recorded of a step, and where it goes. docs/metrics.md describes every field.

use atpm_model::LayerTelemetry;
use serde::{Deserialize, Serialize};

/// Where records go: one call a step, from one writer, in ascending order of steps.
pub trait Sink {
    /// Takes one step's record.
    ///
    /// # Errors
    /// A sink that cannot be written.
    fn record(&mut self, record: &Record) -> anyhow::Result<()>;
}

/// All that is recorded of one step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The step's number, from 1.
    pub step: u64,
    /// Mean loss over the step's target tokens, in nats; absent if it is not finite or there were none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Learning rate.
    pub lr: f64,
    /// Global gradient norm before clipping; absent if it is not finite or there is no gradient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grad_norm_preclip: Option<f64>,
    /// Whether the gradient was clipped.
    pub clipped: bool,
    /// Why the step changed nothing, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<Skip>,
    /// Steps skipped so far in the run.
    pub skipped_steps: u64,
    /// Input tokens read so far in the run.
    pub tokens: u64,
    /// Target tokens of this step.
    pub target_tokens: u64,
    /// Input tokens a second over the last steps (no evaluation, no saving, no first step).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_s: Option<f64>,
    /// Arithmetic done, in 10⁹ operations a second, by the model's own count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gflop_per_s: Option<f64>,
    /// Share of step time that waited for data, in [0, 1].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_wait_share: Option<f64>,
    /// Seconds since the session began.
    pub session_s: f64,
    /// The checkpoint's step, on the first record after a resume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed_from: Option<u64>,
    /// Evaluation after this step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval: Option<Evaluation>,
    /// State of the mixers, layer by layer; written for people and plots, not read back.
    #[serde(skip_serializing_if = "Option::is_none", skip_deserializing)]
    pub layers: Option<Vec<LayerTelemetry>>,
}

/// Why a step was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Skip {
    /// The loss or the gradient was not finite.
    NonFinite,
    /// No target token counted.
    NoTargets,
}

/// Loss on the validation shards.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Mean over target tokens, in nats.
    pub loss: f64,
    /// `e^loss`.
    pub perplexity: f64,
    /// Bits for each byte of text that the targets stand for.
    pub bits_per_byte: f64,
    /// Target tokens.
    pub target_tokens: u64,
    /// Bytes of text that they stand for.
    pub target_bytes: u64,
    /// Loss by the target's place in its document.
    pub by_position: Vec<PositionLoss>,
    /// Time it took, in seconds.
    pub seconds: f64,
}

/// Loss of the targets in one range of places in the document.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PositionLoss {
    /// First place of the range: how many tokens of the document the model has read before the input.
    pub from: u32,
    /// Last place of the range; absent if it has no end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    /// Mean, in nats.
    pub loss: f64,
    /// Target tokens.
    pub target_tokens: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field_names(value: &serde_json::Value, names: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    names.push(name.clone());
                    field_names(value, names);
                }
            }
            serde_json::Value::Array(values) => values.iter().for_each(|value| field_names(value, names)),
            _ => {}
        }
    }

    #[test]
    fn the_documentation_has_every_field() {
        let page = include_str!("../../../../docs/metrics.md");
        let memory = atpm_model::MemoryHealth {
            half_life: 0.0,
            half_life_min: 0.0,
            half_life_max: 0.0,
            rho: 0.0,
            lambda: 0.0,
            beta_key: 0.0,
            beta_value: 0.0,
            address_norm: 0.0,
            address_norm_max: 0.0,
            address_rank: 0.0,
            state_norm: 0.0,
            state_norm_max: 0.0,
        };
        let by_position = vec![PositionLoss { to: Some(0), ..PositionLoss::default() }];
        let record = Record {
            loss: Some(0.0),
            grad_norm_preclip: Some(0.0),
            skipped: Some(Skip::NoTargets),
            tokens_per_s: Some(0.0),
            gflop_per_s: Some(0.0),
            data_wait_share: Some(0.0),
            resumed_from: Some(0),
            eval: Some(Evaluation { by_position, ..Evaluation::default() }),
            layers: Some(vec![LayerTelemetry { layer: 0, memory }]),
            ..Record::default()
        };
        let mut names = Vec::new();
        field_names(&serde_json::to_value(record).unwrap(), &mut names);
        assert!(names.len() > 30, "{names:?}");
        for name in names {
            let is_there =
                [format!("`{name}`"), format!("[].{name}`")].iter().any(|cell| page.contains(cell));
            assert!(is_there, "docs/metrics.md lacks `{name}`");
        }
    }
}
