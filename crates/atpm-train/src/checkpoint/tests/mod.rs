//! Tests of the checkpoint room: what is kept, what is refused, and what a killed or full machine leaves.

mod damage;
mod folders;
mod interrupted;
mod round_trip;

use std::path::{Path, PathBuf};

use atpm_model::Parameter;
use candle_core::{DType, Device, Tensor};

use super::{Contents, TrainState, save};

/// A small model's tensors with values that depend on `seed` and `step`, so that no two saves are equal.
pub(super) struct Model {
    pub(super) parameters: Vec<Parameter>,
    pub(super) m: Vec<Tensor>,
    pub(super) v: Vec<Tensor>,
}

impl Model {
    pub(super) fn new(seed: u64) -> Self {
        Self::with_shapes(
            seed,
            &[
                ("embedding.weight", &[16, 8]),
                ("blocks.0.mixer.transport.c", &[2, 4, 3]),
                ("norm.weight", &[8]),
                ("scale", &[]),
            ],
        )
    }

    pub(super) fn with_shapes(seed: u64, shapes: &[(&str, &[usize])]) -> Self {
        let tensor = |salt: u64, shape: &[usize]| {
            let count: usize = shape.iter().product();
            let values: Vec<f32> = (0..count as u64)
                .map(|at| {
                    let bits = (seed * 31 + salt * 7 + at).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
                    (bits as f32) * 1e-7 - 0.5
                })
                .collect();
            Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
        };
        let of = |salt: u64| shapes.iter().map(|(_, shape)| tensor(salt, shape)).collect::<Vec<_>>();
        let parameters = shapes
            .iter()
            .zip(of(1))
            .map(|((name, shape), value)| {
                let gradient = Tensor::zeros(*shape, DType::F32, &Device::Cpu).unwrap();
                Parameter::new(*name, value, gradient, true)
            })
            .collect();
        Self { parameters, m: of(2), v: of(3) }
    }

    /// Saves these tensors as the checkpoint of `step`.
    pub(super) fn save(&self, run_dir: &Path, step: u64) -> super::Result<PathBuf> {
        let state = state(step);
        let files = [("tokenizer.json".to_string(), b"{}".to_vec())];
        save(
            run_dir,
            &Contents { state: &state, parameters: &self.parameters, m: &self.m, v: &self.v, files: &files },
        )
    }

    /// One checksum over every bit of every tensor.
    pub(super) fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        let values = self.parameters.iter().map(|parameter| &parameter.value);
        for tensor in values.chain(&self.m).chain(&self.v) {
            for value in atpm_core::read_f32(tensor).unwrap() {
                hasher.update(&value.to_bits().to_le_bytes());
            }
        }
        hasher.finalize().to_hex().to_string()
    }
}

/// The state of `step`, every field set to something else than its default.
pub(super) fn state(step: u64) -> TrainState {
    TrainState {
        step,
        updates: step.saturating_sub(1),
        tokens_seen: 1 << 40,
        target_tokens: (1 << 40) - 3,
        skipped_steps: 1,
        data: serde_json::json!({"epoch": 2, "lanes": [1, 2, 3], "share": 0.1}),
        config: "seed = 1\n".into(),
        tokenizer: "tokenizer.json".into(),
        tokenizer_fingerprint: "abc".into(),
        model: serde_json::json!({"d_model": 8}),
    }
}

/// Names in the run's checkpoints folder, sorted.
pub(super) fn listing(run_dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(run_dir.join("checkpoints"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
