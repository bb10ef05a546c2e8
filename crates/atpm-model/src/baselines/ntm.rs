//! A Neural Turing machine that reads and gives `d` numbers a token: the machine of [`crate::ntm`] between embedding
//! and head, its products f32 in any case.

use crate::ntm::Ntm;
use crate::{MixerKind, ModelConfig, ParameterSpec, Result};

/// A Neural Turing machine as a mixer.
pub const NTM: MixerKind = MixerKind {
    specs,
    build: |config, prefix, parameters| Ok(Box::new(Ntm::of(&config.ntm(), prefix, parameters)?)),
    mlp: false,
};

fn specs(config: &ModelConfig, prefix: &str) -> Result<Vec<ParameterSpec>> {
    config.ntm().specs_of(prefix)
}
