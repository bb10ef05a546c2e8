//! The machine as parameters and as a [`Layer`]: sequences in, sequences out, gradients back.

use atpm_core::Segments;
use atpm_core::vector::Real;
use candle_core::{DType, Device, Tensor, WithDType};
use rayon::prelude::*;

use super::config::{NtmConfig, PREFIX};
use super::layout::Layout;
use super::memory::Kept;
use super::sequence::{Deltas, Machine, ROWS, Trace};
use super::weights::{COUNT, Gradients, Weights};
use crate::decode::DecodeState;
use crate::layer::{Layer, Saved};
use crate::parameter::Parameters;
use crate::{Error, Parameter, Result};

const LAYER: &str = "ntm";
/// A Neural Turing machine with trainable parameters.
///
/// As a [`Layer`] it maps `[B,T,I]` to `[B,T,O]`, starts anew where a document begins, and differentiates through time. It
/// is one part of a larger model as any other layer is; examples/ntm_layer.rs of this crate shows it in a policy.
pub struct Ntm {
    config: NtmConfig,
    layout: Layout,
    kept: Kept,
    parameters: [Parameter; COUNT],
    /// Name of a row's whole state in a [`DecodeState`].
    state: String,
    anneal: f64,
}

/// What [`Ntm::forward`] saved.
struct Traces<T> {
    traces: Vec<Trace<T>>,
}

impl Ntm {
    /// A machine with fresh parameters, in f32 on the CPU.
    ///
    /// # Errors
    /// Sizes that make no machine.
    pub fn new(config: &NtmConfig, seed: u64) -> Result<Self> {
        Self::with_dtype(config, seed, DType::F32)
    }

    /// The same in f32 or, to check gradients, in f64.
    ///
    /// # Errors
    /// As [`Self::new`], or another dtype.
    pub fn with_dtype(config: &NtmConfig, seed: u64, dtype: DType) -> Result<Self> {
        let mut parameters = Parameters::initialise(&config.specs()?, seed, dtype, &Device::Cpu)?;
        let machine = Self::of(config, PREFIX, &mut parameters)?;
        parameters.finish()?;
        Ok(machine)
    }

    /// The machine called `prefix` in a larger model: takes the parameters of [`NtmConfig::specs_of`], on the CPU.
    ///
    /// # Errors
    /// A parameter that is not there.
    pub fn of(config: &NtmConfig, prefix: &str, parameters: &mut Parameters) -> Result<Self> {
        let mut take = |name: &str| parameters.take(prefix, name);
        let taken = [
            take("controller.weight")?,
            take("controller.bias")?,
            take("heads.weight")?,
            take("heads.bias")?,
            take("output.weight")?,
            take("output.bias")?,
        ];
        let layout = Layout::new(config);
        Ok(Self {
            config: config.clone(),
            kept: Kept::new(&layout),
            layout,
            parameters: taken,
            state: format!("{prefix}.state"),
            anneal: 1.0,
        })
    }

    /// Its sizes.
    pub fn config(&self) -> &NtmConfig {
        &self.config
    }

    /// The factor on every `β` from now on (annealing); 1 until then.
    pub fn set_beta_scale(&mut self, factor: f64) {
        self.anneal = factor;
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn kept(&self) -> &Kept {
        &self.kept
    }

    pub(super) fn weights<T: Real + WithDType>(&self) -> Result<Weights<T>> {
        Weights::read(&self.layout, &self.parameters)
    }

    pub(super) fn machine<'a, T: Real>(&'a self, weights: &'a Weights<T>) -> Machine<'a, T> {
        Machine { layout: &self.layout, kept: &self.kept, weights, anneal: T::of(self.anneal) }
    }

    /// The state of `rows` rows at the start of a sequence.
    pub(super) fn start<T: Real>(&self, rows: usize) -> Vec<T> {
        let mut state = vec![T::zero(); rows * self.layout.state_len()];
        for row in state.chunks_exact_mut(self.layout.state_len()) {
            self.layout.start(row);
        }
        state
    }

    /// `(B, T)` of `x [B,T,I]`.
    fn sizes(&self, x: &Tensor, segments: &Segments) -> Result<(usize, usize)> {
        let (rows, steps, inputs) = x.dims3()?;
        if inputs != self.config.inputs || (segments.batch(), segments.tokens()) != (rows, steps) {
            return Err(Error::Input(format!(
                "an NTM of {} inputs was given x {:?} and document starts of {} × {} steps",
                self.config.inputs,
                x.dims(),
                segments.batch(),
                segments.tokens()
            )));
        }
        Ok((rows, steps))
    }

    fn run<T: Real + WithDType>(
        &self,
        x: &Tensor,
        segments: &Segments,
        state: &mut [T],
    ) -> Result<(Tensor, Traces<T>)> {
        let (rows, steps) = self.sizes(x, segments)?;
        let (weights, inputs) = (self.weights::<T>()?, x.flatten_all()?.to_vec1::<T>()?);
        let (machine, layout) = (self.machine(&weights), &self.layout);
        let mut y = vec![T::zero(); rows * steps * layout.outputs];
        // A step without rows or without steps has nothing to cut into groups.
        if y.is_empty() {
            let y = Tensor::from_vec(y, (rows, steps, layout.outputs), &Device::Cpu)?;
            return Ok((y, Traces { traces: Vec::new() }));
        }
        let groups = inputs
            .par_chunks(ROWS * steps * layout.inputs)
            .zip(state.par_chunks_mut(ROWS * layout.state_len()))
            .zip(y.par_chunks_mut(ROWS * steps * layout.outputs))
            .enumerate();
        let traces = groups
            .map(|(group, ((x, state), y))| {
                let here = group * ROWS..(group * ROWS + ROWS).min(rows);
                let starts =
                    (0..steps).flat_map(|step| here.clone().map(move |row| segments.is_start(row, step)));
                machine.forward(steps, x, starts.collect(), state, y)
            })
            .collect();
        Ok((Tensor::from_vec(y, (rows, steps, layout.outputs), &Device::Cpu)?, Traces { traces }))
    }

    fn forward_as<T: Real + WithDType>(&self, x: &Tensor, segments: &Segments) -> Result<(Tensor, Saved)> {
        let mut state = self.start::<T>(segments.batch());
        let (y, kept) = self.run(x, segments, &mut state)?;
        let bytes = kept.traces.iter().map(Trace::bytes).sum();
        Ok((y, Saved::new(kept, bytes)))
    }

    fn backward_as<T: Real + WithDType>(
        &self,
        x: &Tensor,
        saved: Saved,
        dy: &Tensor,
        segments: &Segments,
    ) -> Result<Tensor> {
        let (rows, steps) = self.sizes(x, segments)?;
        let outputs = self.layout.outputs;
        if dy.dims() != [rows, steps, outputs] {
            return Err(Error::Input(format!(
                "dy has shape {:?}, expected [{rows}, {steps}, {outputs}]",
                dy.dims()
            )));
        }
        let Traces { traces } = saved.take::<Traces<T>>(LAYER)?;
        let (weights, dy) = (self.weights::<T>()?, dy.flatten_all()?.to_vec1::<T>()?);
        let machine = self.machine(&weights);
        let done: Vec<(Vec<T>, Deltas<T>)> = traces
            .par_iter()
            .zip(dy.par_chunks((ROWS * steps * outputs).max(1)))
            .map(|(trace, dy)| {
                let dy = by_step(dy, steps, outputs);
                let deltas = machine.backward(trace, &dy);
                (dy, deltas)
            })
            .collect();
        let mut gradients = Gradients::zeros(&self.layout);
        let mut d_inputs = Vec::with_capacity(rows * steps * self.layout.inputs);
        for (trace, (dy, deltas)) in traces.iter().zip(&done) {
            machine.add_gradients(trace, deltas, dy, &mut gradients);
            d_inputs.extend_from_slice(&deltas.inputs);
        }
        for (parameter, gradient) in self.parameters.iter().zip(gradients.0) {
            let gradient = Tensor::from_vec(gradient, parameter.value.shape(), &Device::Cpu)?;
            atpm_core::accumulate(&parameter.gradient, &gradient)?;
        }
        Ok(Tensor::from_vec(d_inputs, (rows, steps, self.layout.inputs), &Device::Cpu)?)
    }

    fn resume_as<T: Real + WithDType>(
        &self,
        x: &Tensor,
        segments: &Segments,
        state: &mut DecodeState,
    ) -> Result<Tensor> {
        let mut now = state.get(&self.state)?.flatten_all()?.to_vec1::<T>()?;
        let (y, _) = self.run(x, segments, &mut now)?;
        let shape = (segments.batch(), self.layout.state_len());
        state.set(&self.state, Tensor::from_vec(now, shape, &Device::Cpu)?)?;
        Ok(y)
    }

    fn is_wide(&self) -> bool {
        self.parameters[0].value.dtype() == DType::F64
    }
}

/// `[rows, T, O]` as `[T, rows, O]`.
fn by_step<T: Copy>(dy: &[T], steps: usize, outputs: usize) -> Vec<T> {
    let rows = dy.len() / (steps * outputs);
    let mut out = Vec::with_capacity(dy.len());
    for step in 0..steps {
        for row in 0..rows {
            out.extend_from_slice(&dy[(row * steps + step) * outputs..][..outputs]);
        }
    }
    out
}

impl Layer for Ntm {
    fn forward(&self, x: &Tensor, segments: &Segments) -> Result<(Tensor, Saved)> {
        if self.is_wide() { self.forward_as::<f64>(x, segments) } else { self.forward_as::<f32>(x, segments) }
    }

    fn backward(&self, x: &Tensor, saved: Saved, dy: &Tensor, segments: &Segments) -> Result<Tensor> {
        if self.is_wide() {
            self.backward_as::<f64>(x, saved, dy, segments)
        } else {
            self.backward_as::<f32>(x, saved, dy, segments)
        }
    }

    fn parameters(&self) -> Vec<Parameter> {
        self.parameters.to_vec()
    }

    fn initial_state(&self, batch: usize) -> Result<Vec<(String, Tensor)>> {
        let shape = (batch, self.layout.state_len());
        let state = if self.is_wide() {
            Tensor::from_vec(self.start::<f64>(batch), shape, &Device::Cpu)?
        } else {
            Tensor::from_vec(self.start::<f32>(batch), shape, &Device::Cpu)?
        };
        Ok(vec![(self.state.clone(), state)])
    }

    fn resume(&self, x: &Tensor, segments: &Segments, state: &mut DecodeState) -> Result<Tensor> {
        if self.is_wide() {
            self.resume_as::<f64>(x, segments, state)
        } else {
            self.resume_as::<f32>(x, segments, state)
        }
    }
}
