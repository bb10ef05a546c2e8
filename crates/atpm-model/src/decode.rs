//! What a model remembers between tokens: named tensors, of a fixed size unless it is a transformer.
//!
//! An ATPM block has two, whatever was read before: the mixer's state `[B,H,S,D]` and the short
//! convolution's last inputs `[B,W−1,C]`, `C = H·(2S+K+V)`. An LSTM and a Neural Turing machine have theirs. Attention has its
//! keys and values, which grow by every token.

use std::collections::BTreeMap;

use candle_core::Tensor;

use crate::layer::bytes;
use crate::{Error, Result};

/// The memory of one batch of sequences while it is decoded.
#[derive(Debug, Clone)]
pub struct DecodeState {
    batch: usize,
    tensors: BTreeMap<String, Tensor>,
}

impl DecodeState {
    /// The state of `batch` rows with these tensors (each layer's initial ones).
    pub(crate) fn new(batch: usize, tensors: impl IntoIterator<Item = (String, Tensor)>) -> Self {
        Self { batch, tensors: tensors.into_iter().collect() }
    }

    /// Rows of the batch.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Bytes held; only attention's grow with what is read.
    pub fn bytes(&self) -> usize {
        bytes(self.tensors.values())
    }

    /// The tensors by name, for saving.
    pub fn tensors(&self) -> &BTreeMap<String, Tensor> {
        &self.tensors
    }

    /// This state with its tensors replaced by saved ones of the same names and shapes, brought to its device.
    ///
    /// # Errors
    /// A tensor that is missing, unknown, or of another shape or dtype; a device that refuses.
    pub(crate) fn replaced(mut self, mut saved: BTreeMap<String, Tensor>) -> Result<Self> {
        for (name, tensor) in &mut self.tensors {
            let Some(found) = saved.remove(name) else {
                return Err(state(format!("`{name}` is missing")));
            };
            if !fits(found.dims(), tensor.dims()) || found.dtype() != tensor.dtype() {
                let (got, expected) = (found.dims(), tensor.dims());
                return Err(state(format!(
                    "`{name}` is {:?} {got:?}, this model keeps {:?} {expected:?}",
                    found.dtype(),
                    tensor.dtype()
                )));
            }
            *tensor = found.to_device(tensor.device())?;
        }
        match saved.keys().next() {
            Some(name) => Err(state(format!("`{name}` is none of this model's tensors"))),
            None => Ok(self),
        }
    }

    /// A layer's tensor.
    ///
    /// # Errors
    /// A name that the state was not made with.
    pub fn get(&self, name: &str) -> Result<&Tensor> {
        self.tensors.get(name).ok_or_else(|| state(format!("`{name}` is missing")))
    }

    /// Replaces a layer's tensor.
    ///
    /// # Errors
    /// A name that the state was not made with.
    pub fn set(&mut self, name: &str, tensor: Tensor) -> Result<()> {
        let slot = self.tensors.get_mut(name).ok_or_else(|| state(format!("`{name}` is missing")))?;
        *slot = tensor;
        Ok(())
    }
}

/// Whether a tensor can stand where one of the shape `initial` was: an axis that begins empty grows.
fn fits(found: &[usize], initial: &[usize]) -> bool {
    let grows = |(found, initial): (&usize, &usize)| found == initial || *initial == 0;
    found.len() == initial.len() && found.iter().zip(initial).all(grows)
}

fn state(problem: String) -> Error {
    Error::State { problem }
}
