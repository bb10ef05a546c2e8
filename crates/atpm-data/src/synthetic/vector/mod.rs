//! Tasks on binary vectors, as Graves, Wayne & Danihelka (2014) pose them to a Neural Turing machine.
//!
//! A batch is a pure function of its task, split, seed and index; its size is drawn for the whole batch, so that its rows are
//! equally long and nothing is padded. What is read and what is asked stand apart: behind the question the inputs are
//! zero, and the loss counts at answer steps only.
//!
//! As in the token tasks, a digest of what a row is made of says which split may have it.

mod associative_recall;
mod copy;
mod priority_sort;
mod repeat_copy;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use super::Split;
use crate::order::Stream;

/// Sets the streams of these tasks apart from every other stream of the crate.
const DOMAIN: u64 = u64::from_be_bytes(*b"ntmtasks");

/// The largest size: far beyond use, and small enough that a sequence fits into memory.
const MOST: usize = 1 << 14;

/// A task on binary vectors. Its place in this list is part of its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VectorTask {
    /// A list is repeated.
    Copy,
    /// A list is repeated as often as is said, then an end mark is given.
    RepeatCopy,
    /// The item behind the one that is shown again.
    AssociativeRecall,
    /// The vectors of highest priority, in its order.
    PrioritySort,
}

/// What a task is made of.
struct Definition {
    name: &'static str,
    /// Inputs of a step: bits, then marks.
    inputs: usize,
    /// Outputs of a step.
    outputs: usize,
    /// What its size counts.
    unit: &'static str,
    /// The smallest and the largest size of training.
    sizes: (usize, usize),
    /// The smallest size that asks for anything, and the largest that is drawn.
    limits: (usize, usize),
    /// Draws what the rows of a batch of this size have in common besides it.
    common: fn(&mut Stream) -> usize,
    /// Draws one row.
    row: fn(&mut Stream, size: usize, common: usize) -> Row,
}

/// One row.
struct Row {
    /// `[T, I]`.
    inputs: Vec<f32>,
    /// `[T, O]`.
    targets: Vec<f32>,
    /// `[T]`.
    answers: Vec<bool>,
    /// What it is made of, for the split's digest.
    content: Vec<u32>,
}

/// A batch of equally long sequences.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorBatch {
    /// Rows, `B`.
    pub rows: usize,
    /// Steps, `T`.
    pub steps: usize,
    /// The size that was drawn, in the task's unit.
    pub size: usize,
    /// What is read, `[B, T, I]`.
    pub inputs: Vec<f32>,
    /// Bits to give, `[B, T, O]`; 0 where nothing counts.
    pub targets: Vec<f32>,
    /// Whether a step's targets count, `[B, T]`.
    pub answers: Vec<bool>,
}

/// Which batches: one stream of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VectorStream {
    /// The task.
    pub task: VectorTask,
    /// The split.
    pub split: Split,
    /// Seed of the samples.
    pub seed: u64,
    /// Rows of a batch.
    pub rows: usize,
}

impl VectorTask {
    /// Every task, in the order of the enum.
    pub const ALL: [Self; 4] = [Self::Copy, Self::RepeatCopy, Self::AssociativeRecall, Self::PrioritySort];

    fn definition(self) -> &'static Definition {
        match self {
            Self::Copy => &copy::DEFINITION,
            Self::RepeatCopy => &repeat_copy::DEFINITION,
            Self::AssociativeRecall => &associative_recall::DEFINITION,
            Self::PrioritySort => &priority_sort::DEFINITION,
        }
    }

    /// What it is called in commands and reports.
    pub fn name(self) -> &'static str {
        self.definition().name
    }

    /// Numbers that are read a step, `I`.
    pub fn inputs(self) -> usize {
        self.definition().inputs
    }

    /// Bits that are given a step, `O`.
    pub fn outputs(self) -> usize {
        self.definition().outputs
    }

    /// What its size counts.
    pub fn unit(self) -> &'static str {
        self.definition().unit
    }

    /// The smallest and the largest size of training, unless told otherwise.
    pub fn sizes(self) -> (usize, usize) {
        self.definition().sizes
    }

    /// The smallest size that asks for anything, and the largest that is drawn.
    pub fn limits(self) -> (usize, usize) {
        self.definition().limits
    }
}

impl VectorStream {
    /// Batch `index`, always the same; its size is drawn from `least` to `most`, both included and within
    /// [`VectorTask::limits`].
    pub fn batch(&self, index: u64, (least, most): (usize, usize)) -> VectorBatch {
        let Self { task, split, seed, rows } = *self;
        let definition = task.definition();
        let stream = |part: u64| Stream::new(&[DOMAIN, seed, task as u64, split as u64, index, part]);
        let mut common = stream(0);
        let size = least + common.below(most.max(least) - least + 1);
        let common = (definition.common)(&mut common);
        let mut batch = VectorBatch {
            rows,
            steps: 0,
            size,
            inputs: Vec::new(),
            targets: Vec::new(),
            answers: Vec::new(),
        };
        for row in 0..rows {
            let mut stream = stream(row as u64 + 1);
            let row = loop {
                let row = (definition.row)(&mut stream, size, common);
                if Split::owner(&row.content) == split {
                    break row;
                }
            };
            batch.steps = row.answers.len();
            batch.inputs.extend(row.inputs);
            batch.targets.extend(row.targets);
            batch.answers.extend(row.answers);
        }
        batch
    }
}

/// A row under construction, step by step.
struct Steps {
    row: Row,
    inputs: usize,
    outputs: usize,
}

impl Steps {
    fn new(inputs: usize, outputs: usize) -> Self {
        let row = Row { inputs: Vec::new(), targets: Vec::new(), answers: Vec::new(), content: Vec::new() };
        Self { row, inputs, outputs }
    }

    /// A step that shows these bits, and `marks` (channel, value).
    fn show(&mut self, bits: &[f32], marks: &[(usize, f32)]) {
        let start = self.row.inputs.len();
        self.row.inputs.extend_from_slice(bits);
        self.row.inputs.resize(start + self.inputs, 0.0);
        for &(channel, value) in marks {
            self.row.inputs[start + channel] = value;
            self.row.content.push(value.to_bits());
        }
        self.row.content.extend(bits.iter().map(|bit| bit.to_bits()));
        self.row.targets.resize(self.row.targets.len() + self.outputs, 0.0);
        self.row.answers.push(false);
    }

    /// A step that shows nothing and asks for these bits.
    fn ask(&mut self, bits: &[f32]) {
        self.row.inputs.resize(self.row.inputs.len() + self.inputs, 0.0);
        let end = self.row.targets.len() + self.outputs;
        self.row.targets.extend_from_slice(bits);
        self.row.targets.resize(end, 0.0);
        self.row.answers.push(true);
    }

    fn finish(self) -> Row {
        self.row
    }
}

/// `n` random bits.
fn bits(stream: &mut Stream, n: usize) -> Vec<f32> {
    (0..n).map(|_| stream.below(2) as f32).collect()
}

/// For tasks whose rows have nothing in common but their size.
fn nothing(_: &mut Stream) -> usize {
    0
}
