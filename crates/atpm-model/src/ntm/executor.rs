//! A trained machine on its own: one step at a time, its state in the open.

use super::layout::Layout;
use super::model::Ntm;
use super::weights::Weights;
use crate::{Error, Result};

/// Where the heads were in one step.
#[derive(Debug, Clone, PartialEq)]
pub struct Focus {
    /// Weights of the read heads, `N` each.
    pub read: Vec<Vec<f32>>,
    /// Weights of the write heads, `N` each, before any suppression.
    pub write: Vec<Vec<f32>>,
}

/// A machine that is run, not trained: it owns its state, which can be looked at, kept and put back.
///
/// ```
/// use atpm_model::ntm::{Executor, Ntm, NtmConfig};
///
/// let mut machine = Executor::new(Ntm::new(&NtmConfig::new(3, 2), 0)?)?;
/// let start = machine.state().to_vec();
/// let first = machine.step(&[1.0, 0.0, 1.0])?;
/// assert_eq!(machine.slot(0).len(), 32);
/// machine.set_state(&start)?;
/// assert_eq!(machine.step(&[1.0, 0.0, 1.0])?, first);
/// # Ok::<(), atpm_model::Error>(())
/// ```
pub struct Executor {
    machine: Ntm,
    weights: Weights<f32>,
    state: Vec<f32>,
}

impl Executor {
    /// A machine at the start of a sequence. Its parameters are read now: what is trained later is not seen.
    ///
    /// # Errors
    /// A machine that is not f32.
    pub fn new(machine: Ntm) -> Result<Self> {
        let (weights, state) = (machine.weights()?, machine.start(1));
        Ok(Self { machine, weights, state })
    }

    /// Reads `I` numbers, gives `O`, and moves the state on.
    ///
    /// # Errors
    /// Another number of inputs.
    pub fn step(&mut self, x: &[f32]) -> Result<Vec<f32>> {
        Ok(self.watch(x)?.0)
    }

    /// [`Self::step`], and where the heads were.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub fn watch(&mut self, x: &[f32]) -> Result<(Vec<f32>, Focus)> {
        let inputs = self.machine.config().inputs;
        if x.len() != inputs {
            return Err(Error::Input(format!("the machine reads {inputs} numbers a step, not {}", x.len())));
        }
        let mut y = vec![0.0; self.machine.config().outputs];
        let trace = self.machine.machine(&self.weights).forward(1, x, vec![false], &mut self.state, &mut y);
        let layout = self.layout();
        let weights = |head| self.machine.kept().weights_of(layout, &trace.kept, head).to_vec();
        let focus = Focus {
            read: (0..layout.reads).map(weights).collect(),
            write: (layout.reads..layout.heads).map(weights).collect(),
        };
        Ok((y, focus))
    }

    /// Goes back to the start of a sequence.
    pub fn restart(&mut self) {
        self.state = self.machine.start(1);
    }

    /// Everything the machine remembers, for [`Self::set_state`].
    pub fn state(&self) -> &[f32] {
        &self.state
    }

    /// Puts a state back.
    ///
    /// # Errors
    /// The state of a machine of other sizes.
    pub fn set_state(&mut self, state: &[f32]) -> Result<()> {
        if state.len() != self.state.len() {
            let (got, want) = (state.len(), self.state.len());
            return Err(Error::State { problem: format!("{got} numbers, this machine keeps {want}") });
        }
        self.state.copy_from_slice(state);
        Ok(())
    }

    /// The `W` numbers in a slot of the memory.
    ///
    /// # Panics
    /// If there is no such slot.
    pub fn slot(&self, slot: usize) -> Vec<f32> {
        let layout = self.layout();
        assert!(slot < layout.slots, "slot {slot} of {}", layout.slots);
        self.state[layout.memory()].chunks_exact(layout.slots).map(|line| line[slot]).collect()
    }

    fn layout(&self) -> &Layout {
        self.machine.layout()
    }
}
