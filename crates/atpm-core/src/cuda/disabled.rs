//! The default build: there is no stream, so nothing that needs one can be called.

use std::convert::Infallible;
use std::marker::PhantomData;

use candle_core::{Device, Shape, Tensor, WithDType};

use super::launch::{Kernel, Number, Slot};
use super::product::{self, Factor};
use super::report::{Kernels, Report};
use crate::vector::Precision;
use crate::{Error, Result};

/// Where this build's kernels run.
pub const KERNELS: Kernels = Kernels::None;

/// The CUDA device of this number: none in this build.
///
/// # Errors
/// Always, with what to build instead.
pub fn device(ordinal: usize) -> Result<Device> {
    let problem = format!(
        "`cuda:{ordinal}` asked for, but this build has no CUDA kernels; \
         build with `--features cuda` (make build-cuda), or use `cpu`"
    );
    Err(Error::Argument { op: "device", problem })
}

/// The CPU.
pub fn host() -> Device {
    Device::Cpu
}

/// Whether ops on this device's tensors are launches: never, here.
pub fn is_gpu(_device: &Device) -> bool {
    false
}

/// Bytes that a GPU can still give: the CPU is none.
///
/// # Errors
/// None.
pub fn free_bytes(_device: &Device) -> Result<Option<u64>> {
    Ok(None)
}

/// Bytes of shared memory that a block may have on a GPU; `None` for the CPU.
///
/// # Errors
/// None.
pub fn block_bytes(_device: &Device) -> Result<Option<usize>> {
    Ok(None)
}

/// How many GPUs there are: none for this build.
pub fn count() -> usize {
    0
}

/// What there is: nothing.
pub fn report() -> Report {
    Report { kernels: KERNELS, versions: Vec::new(), gpus: Vec::new(), problem: None, too_old: Vec::new() }
}

/// The stream of a tensor's device, if that is a GPU: never, here.
#[expect(clippy::unnecessary_wraps, reason = "the signature of the other backends, which can fail")]
pub(crate) fn stream_of(_tensor: &Tensor) -> Result<Option<Stream>> {
    Ok(None)
}

/// What a buffer can hold.
pub(crate) trait Represented: Copy {}
impl<T: Copy> Represented for T {}

/// What a tensor can hold and a buffer too.
pub(crate) trait Stored: WithDType {}
impl<T: WithDType> Stored for T {}

/// A stream that does not exist.
pub(crate) enum Stream {}

/// A buffer of a stream that does not exist.
pub(crate) struct Buffer<T>(Infallible, PhantomData<T>);

impl<T> Buffer<T> {
    pub(crate) fn address(&self) -> u64 {
        match self.0 {}
    }
    pub(super) fn written_to(self, _tensor: &Tensor) -> Self {
        match self.0 {}
    }
    pub(crate) fn address_of(&self, _element: usize) -> u64 {
        match self.0 {}
    }
}

impl Stream {
    pub(super) fn view<T: Number>(&self, _op: &'static str, _tensor: &Tensor) -> Result<Buffer<T>> {
        match *self {}
    }
    pub(crate) fn unset<T: Number>(&self, _elements: usize) -> Result<Buffer<T>> {
        match *self {}
    }
    pub(crate) fn upload<T: Number>(&self, _elements: &[T]) -> Result<Buffer<T>> {
        match *self {}
    }
    pub(crate) fn download<T: Number>(&self, _buffer: &Buffer<T>) -> Result<Vec<T>> {
        match *self {}
    }
    pub(crate) fn tensor<T: Stored>(&self, _buffer: Buffer<T>, _shape: impl Into<Shape>) -> Result<Tensor> {
        match *self {}
    }
    pub(super) fn start(
        &self,
        _kernel: Kernel,
        _grid: [u32; 3],
        _slots: &[Slot],
        _types: &[&str],
    ) -> Result<()> {
        match *self {}
    }
    pub(super) fn multiply(
        &self,
        _sizes: [i32; 3],
        _factors: [Factor; 2],
        _keep: f32,
        _c: u64,
        _stored: [product::Stored; 2],
        _precision: Precision,
    ) -> Result<()> {
        match *self {}
    }
}
