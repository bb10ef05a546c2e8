//! Sizes of a machine, and its parameters on paper.

use serde::{Deserialize, Serialize};

use super::layout::{Layout, SHIFTS};
use super::memory::Kept;
use crate::config::{MAX_COUNT, MAX_SIZE};
use crate::init::Init;
use crate::{Error, ParameterSpec, Result};

/// Prefix of the parameters' names of a machine that is part of nothing larger.
pub(super) const PREFIX: &str = "ntm";
/// `softplus⁻¹(1)`: β starts at 1.
const BETA_BIAS: f64 = 0.541_324_854_612_918_1;
/// Initial bias of the erase gate.
const ERASE_BIAS: f64 = 0.8;
/// Initial bias of the LSTM's forget gate.
const FORGET_BIAS: f64 = 1.0;

/// What computes the heads' parameters from the input and what was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControllerKind {
    /// One LSTM cell.
    Lstm,
    /// One layer with tanh: all memory is outside.
    FeedForward,
}

/// Sizes of a Neural Turing machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NtmConfig {
    /// Numbers that are read a step, `I`.
    pub inputs: usize,
    /// Numbers that are given a step, `O`.
    pub outputs: usize,
    /// The controller's kind.
    pub controller: ControllerKind,
    /// Hidden units, `H`.
    pub hidden: usize,
    /// Slots of the memory, `N`; at least 3, so that the shifts differ.
    pub slots: usize,
    /// Numbers in a slot, `W`.
    pub width: usize,
    /// Read heads, `R`.
    pub read_heads: usize,
    /// Write heads.
    pub write_heads: usize,
    /// How strongly writes to much-used slots are held back, `ς` in [0, 1]; 0 = not at all.
    pub suppression: f64,
}

impl NtmConfig {
    /// The usual sizes: an LSTM of 128 units, a memory of 128 × 32, one read and one write head.
    pub fn new(inputs: usize, outputs: usize) -> Self {
        Self {
            inputs,
            outputs,
            controller: ControllerKind::Lstm,
            hidden: 128,
            slots: 128,
            width: 32,
            read_heads: 1,
            write_heads: 1,
            suppression: 0.0,
        }
    }

    /// Refuses sizes that make no machine.
    ///
    /// # Errors
    /// The first key that is wrong.
    pub fn validate(&self) -> Result<()> {
        for (key, size, least, most) in [
            ("inputs", self.inputs, 1, MAX_SIZE),
            ("outputs", self.outputs, 1, MAX_SIZE),
            ("hidden", self.hidden, 1, MAX_SIZE),
            ("slots", self.slots, 3, MAX_SIZE),
            ("width", self.width, 1, MAX_SIZE),
            ("read_heads", self.read_heads, 1, MAX_COUNT),
            ("write_heads", self.write_heads, 1, MAX_COUNT),
        ] {
            if !(least..=most).contains(&size) {
                return Err(Error::Config { key, problem: format!("must be {least} to {most}, got {size}") });
            }
        }
        if !(0.0..=1.0).contains(&self.suppression) {
            let problem = format!("must be between 0 and 1, got {}", self.suppression);
            return Err(Error::Config { key: "suppression", problem });
        }
        Ok(())
    }

    /// The parameters, in a fixed order.
    ///
    /// # Errors
    /// As [`Self::validate`].
    pub fn specs(&self) -> Result<Vec<ParameterSpec>> {
        self.specs_of(PREFIX)
    }

    /// The parameters of the machine called `prefix` in a larger model.
    ///
    /// # Errors
    /// As [`Self::validate`].
    pub fn specs_of(&self, prefix: &str) -> Result<Vec<ParameterSpec>> {
        self.validate()?;
        let layout = Layout::new(self);
        let spec =
            |name: &str, shape: Vec<usize>, init| ParameterSpec::new(format!("{prefix}.{name}"), shape, init);
        // Uniform with variance 1/(3·inputs), as is usual for an LSTM.
        let uniform = |inputs: usize| Init::Uniform((inputs as f64).sqrt().recip());
        Ok(vec![
            spec("controller.weight", vec![layout.units, layout.seen], uniform(layout.seen))?,
            spec("controller.bias", vec![layout.units], self.controller_bias(&layout))?,
            spec("heads.weight", vec![layout.raw, self.hidden], uniform(self.hidden))?,
            spec("heads.bias", vec![layout.raw], Init::Rows(heads_bias(&layout)))?,
            spec("output.weight", vec![self.outputs, layout.shown], uniform(layout.shown))?,
            spec("output.bias", vec![self.outputs], Init::Zeros)?,
        ])
    }

    /// Elements of all parameters.
    ///
    /// # Errors
    /// As [`Self::validate`].
    pub fn parameter_count(&self) -> Result<usize> {
        Ok(self.specs()?.iter().map(ParameterSpec::elements).sum())
    }

    /// Numbers of a row's state: controller, what was read, weights, memory.
    pub fn state_len(&self) -> usize {
        Layout::new(self).state_len()
    }

    /// Numbers that forward keeps of a row and step, most of them the memory; and those that backward holds beside.
    pub(crate) fn numbers_per_step(&self) -> (usize, usize) {
        let layout = Layout::new(self);
        let cells = if layout.recurrent { layout.hidden } else { 0 };
        let told = layout.units + layout.raw_padded;
        let kept = layout.seen_padded + told + cells + layout.shown + Kept::new(&layout).len();
        // What a step was told has a gradient; inputs and outputs are passed on as copies.
        (kept, told + 2 * (layout.inputs + layout.outputs))
    }

    /// Multiply-adds of a row and step, by part. The memory's: norms of its slots; of a head the similarity, the
    /// interpolation and the shift; reading; erasing and adding.
    pub(crate) fn multiply_adds(&self) -> [(&'static str, usize); 4] {
        let Layout { units, seen, raw, hidden, outputs, shown, heads, reads, writes, slots, width, .. } =
            Layout::new(self);
        let memory = slots * width * (1 + heads + reads + 2 * writes) + heads * slots * (2 + SHIFTS);
        [
            ("mixer.controller", units * seen),
            ("mixer.heads", raw * hidden),
            ("mixer.memory", memory),
            ("mixer.output", outputs * shown),
        ]
    }

    fn controller_bias(&self, layout: &Layout) -> Init {
        let mut bias = vec![0.0; layout.units];
        if self.controller == ControllerKind::Lstm {
            bias[self.hidden..2 * self.hidden].fill(FORGET_BIAS);
        }
        Init::Rows(bias)
    }
}

fn heads_bias(layout: &Layout) -> Vec<f64> {
    let mut bias = vec![0.0; layout.raw];
    for head in 0..layout.heads {
        bias[layout.address_of(head)][layout.width] = BETA_BIAS;
    }
    for write in 0..layout.writes {
        bias[layout.write_of(write)][..layout.width].fill(ERASE_BIAS);
    }
    bias
}
