//! Memory tasks made of token ids: seeded, endless, and known to the last answer.
//!
//! A sample is a pure function of its task, split, seed and index: nothing is stored, and no sample depends on how
//! many were drawn before it or by whom. Sizes grow from split to split: training, validation and IID have the same,
//! OOD goes up to 1.5 times the largest of them, Stress up to 3 times and among many distractors.
//!
//! No prompt belongs to two splits, whatever the seeds: a digest of the prompt says which split may have it, and a
//! sample is drawn again until it is the split's own.

mod copy;
mod draw;
mod forgetting_mqar;
mod gated_write;
mod inverse_recall;
mod kv_recall;
mod mixed_all;
mod mqar;
mod overwrite;
mod pointer_chase;
mod rebind;
mod relocate;
mod sample;
mod score;
mod selective_copy;
mod sort;
mod source;
#[cfg(test)]
mod tests;
pub mod vector;
pub mod vocabulary;
mod writes;

use serde::{Deserialize, Serialize};

use draw::Draw;
pub use draw::Sizes;
pub use sample::Sample;
pub use score::Score;
pub use source::{SyntheticConfig, SyntheticPosition, SyntheticSource, batch};
pub use writes::{Write, WriteKind};

/// A task of the suite. Its place in this list is part of its samples and of the vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// Key → value.
    KvRecall,
    /// Value → key.
    InverseRecall,
    /// The last write wins.
    Overwrite,
    /// A value moves to another key.
    Rebind,
    /// Keys point to keys.
    PointerChase,
    /// Some writes must be ignored.
    GatedWrite,
    /// A list is repeated.
    Copy,
    /// A list is repeated without its noise.
    SelectiveCopy,
    /// Values in the order of their keys.
    Sort,
    /// Multi-query associative recall.
    Mqar,
    /// Multi-query associative recall with updates.
    ForgettingMqar,
    /// The first nine mixed.
    MixedAll,
    /// Values move from key to key again and again.
    Relocate,
}

/// A part of a task's samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Split {
    /// What models are trained on.
    Train,
    /// What settings are chosen by.
    Validation,
    /// Evaluation at the sizes of training.
    Iid,
    /// Evaluation at sizes up to 1.5 times those of training.
    Ood,
    /// Evaluation at sizes up to 3 times those of training, among many distractors.
    Stress,
}

/// What a task is made of; all but the mixture have one.
struct Definition {
    name: &'static str,
    /// What its size counts.
    unit: &'static str,
    sizes: Sizes,
    /// Draws a sample of this size.
    write: fn(&mut Draw, usize) -> Sample,
}

impl Task {
    /// Every task, in the order of the enum.
    pub const ALL: [Self; 13] = [
        Self::KvRecall,
        Self::InverseRecall,
        Self::Overwrite,
        Self::Rebind,
        Self::PointerChase,
        Self::GatedWrite,
        Self::Copy,
        Self::SelectiveCopy,
        Self::Sort,
        Self::Mqar,
        Self::ForgettingMqar,
        Self::MixedAll,
        Self::Relocate,
    ];

    /// Its definition; the mixture has none of its own.
    fn definition(self) -> Option<&'static Definition> {
        match self {
            Self::KvRecall => Some(&kv_recall::DEFINITION),
            Self::InverseRecall => Some(&inverse_recall::DEFINITION),
            Self::Overwrite => Some(&overwrite::DEFINITION),
            Self::Rebind => Some(&rebind::DEFINITION),
            Self::PointerChase => Some(&pointer_chase::DEFINITION),
            Self::GatedWrite => Some(&gated_write::DEFINITION),
            Self::Copy => Some(&copy::DEFINITION),
            Self::SelectiveCopy => Some(&selective_copy::DEFINITION),
            Self::Sort => Some(&sort::DEFINITION),
            Self::Mqar => Some(&mqar::DEFINITION),
            Self::ForgettingMqar => Some(&forgetting_mqar::DEFINITION),
            Self::MixedAll => None,
            Self::Relocate => Some(&relocate::DEFINITION),
        }
    }

    /// What it is called in commands and reports.
    pub fn name(self) -> &'static str {
        self.definition().map_or("mixed_all", |definition| definition.name)
    }

    /// The tasks whose samples these are: itself, or those of the mixture.
    pub fn parts(self) -> Vec<Self> {
        if self == Self::MixedAll { mixed_all::TASKS.to_vec() } else { vec![self] }
    }

    /// What its size counts and which sizes it has; `None` for the mixture, whose tasks have their own.
    pub fn sizes(self) -> Option<(&'static str, Sizes)> {
        self.definition().map(|definition| (definition.unit, definition.sizes))
    }

    /// Sample `index` of a split, always the same for one seed.
    pub fn sample(self, split: Split, seed: u64, index: u64) -> Sample {
        let mut draw = Draw::new(self, split, seed, index);
        let Some(definition) = self.definition() else {
            return mixed_all::pick(&mut draw).sample(split, seed, index);
        };
        loop {
            let size = draw.size(definition.sizes);
            let sample = (definition.write)(&mut draw, size);
            if Split::owner(sample.prompt()) == split {
                return sample;
            }
        }
    }
}

impl Split {
    /// Every split, in the order of the enum.
    pub const ALL: [Self; 5] = [Self::Train, Self::Validation, Self::Iid, Self::Ood, Self::Stress];

    /// What it is called in commands and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Validation => "validation",
            Self::Iid => "iid",
            Self::Ood => "ood",
            Self::Stress => "stress",
        }
    }

    /// The only split that may have this prompt: one in sixteen for each but training, which has the others.
    fn owner(prompt: &[u32]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for id in prompt {
            hasher.update(&id.to_le_bytes());
        }
        match hasher.finalize().as_bytes()[0] % 16 {
            0 => Self::Validation,
            1 => Self::Iid,
            2 => Self::Ood,
            3 => Self::Stress,
            _ => Self::Train,
        }
    }
}
