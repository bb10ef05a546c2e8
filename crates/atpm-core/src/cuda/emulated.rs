//! Kernels on the CPU: the files of `kernels/` compiled by g++ with the emulation of `kernels/emulation`.
//!
//! For tests. What an op's `cuda.rs` gives to a launch is what the emulated kernel gets: the same arguments in the
//! same order, their types compared with the kernel's C++ declaration, the same grid and shared memory. Memory
//! is the host's. Buffers that a launch is to fill hold NaN before it, and every buffer has guards around it, so
//! scratch that is too small, a grid that is too small and one that is too large all show.
//!
//! Tensors stay on the CPU. A thread that has selected the emulated device, or is inside [`emulate`], treats them as a
//! GPU's.
#![expect(unsafe_code, reason = "calls C++ with addresses of buffers; see each block")]

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::{Mutex, PoisonError};

use candle_core::{Device, Shape, Tensor, WithDType};

use super::launch::{Kernel, Number, Slot};
use super::product::Factor;
use super::report::{Kernels, Report};
use crate::elements::{overwrite_on_host, read};
use crate::vector::{Mat, MatMut, Precision, matmul};
use crate::{Error, Result};

unsafe extern "C" {
    /// `kernels/emulation/launch.cpp`: runs a kernel; null, or what is wrong with the call.
    fn emulated_launch(
        kernel: *const c_char,
        blocks: u32,
        threads: u32,
        shared_bytes: usize,
        arguments: *const *const c_void,
        types: *const *const c_char,
        count: usize,
    ) -> *const c_char;
}

/// Where this build's kernels run.
pub const KERNELS: Kernels = Kernels::Emulated;

thread_local! {
    /// Whether this thread computes on the emulated device.
    static SELECTED: Cell<bool> = const { Cell::new(false) };
    /// Names of the kernels launched inside [`emulate`]; `None` outside of it.
    static LAUNCHED: RefCell<Option<Vec<&'static str>>> = const { RefCell::new(None) };
}

/// The emulated device, whose only number is 0. Its tensors are the CPU's, so it is this thread that computes on it
/// from now on, until [`host`] is asked for.
///
/// # Errors
/// Another number.
pub fn device(ordinal: usize) -> Result<Device> {
    if ordinal > 0 {
        let problem = "there is one emulated device, `cuda:0`".into();
        return Err(Error::Cuda { action: format!("opening device {ordinal}"), problem });
    }
    SELECTED.set(true);
    Ok(Device::Cpu)
}

/// The CPU, on which this thread computes from now on.
pub fn host() -> Device {
    SELECTED.set(false);
    Device::Cpu
}

/// Whether ops on this device's tensors are launches: on the emulated device, and inside [`emulate`].
pub fn is_gpu(_device: &Device) -> bool {
    SELECTED.get() || LAUNCHED.with_borrow(Option::is_some)
}

/// Bytes that the device can still give; the emulated one has the host's.
///
/// # Errors
/// None.
pub fn free_bytes(_device: &Device) -> Result<Option<u64>> {
    Ok(None)
}

/// What there is: kernels for tests.
pub fn report() -> Report {
    Report { kernels: KERNELS, versions: Vec::new(), gpus: Vec::new(), problem: None }
}

/// Runs `body` with every op of this thread on emulated kernels. Returns its result, and the kernels it launched in
/// their order.
pub fn emulate<R>(body: impl FnOnce() -> R) -> (R, Vec<&'static str>) {
    let outer = LAUNCHED.replace(Some(Vec::new()));
    let result = body();
    (result, LAUNCHED.replace(outer).unwrap_or_default())
}

/// Keeps the name of what was launched, if someone wants to know.
fn note(name: &'static str) {
    LAUNCHED.with_borrow_mut(|launched| launched.iter_mut().for_each(|launched| launched.push(name)));
}

/// The stream of a tensor's device, if that is the emulated one.
#[expect(clippy::unnecessary_wraps, reason = "the signature of the other backends, which can fail")]
pub(crate) fn stream_of(tensor: &Tensor) -> Result<Option<Stream>> {
    Ok(is_gpu(tensor.device()).then_some(Stream))
}

/// What a buffer can hold.
pub(crate) trait Represented: Copy + 'static {
    /// What memory holds until something is written: a number that no right result has.
    const UNSET: Self;
    /// Its bits, for a comparison in which a NaN equals itself.
    fn bits(self) -> u64;
}

macro_rules! represented {
    ($($number:ty, $unset:expr, $bits:expr;)*) => {
        $(impl Represented for $number {
            const UNSET: Self = $unset;
            fn bits(self) -> u64 {
                $bits(self)
            }
        })*
    };
}
represented! {
    f32, f32::NAN, |number: f32| number.to_bits().into();
    f64, f64::NAN, f64::to_bits;
    u8, u8::MAX, u64::from;
    u32, u32::MAX, u64::from;
    u64, u64::MAX, u64::from;
}

/// What a tensor can hold and a buffer too.
pub(crate) trait Stored: WithDType {}
impl<T: WithDType> Stored for T {}

/// Elements before and behind a buffer that must stay as they are.
const GUARD: usize = 64;

/// Elements between guards. Cells, because kernels write to them behind Rust's back.
pub(crate) struct Buffer<T: Number> {
    memory: Box<[Cell<T>]>,
    /// The tensor that the elements go back to when the buffer is dropped, if it is written in place.
    in_place: Option<Tensor>,
}

impl<T: Number> Buffer<T> {
    fn unset(elements: usize) -> Self {
        Self { memory: vec![Cell::new(T::UNSET); elements + 2 * GUARD].into(), in_place: None }
    }
    fn holding(elements: &[T]) -> Self {
        let buffer = Self::unset(elements.len());
        for (cell, &element) in buffer.cells().iter().zip(elements) {
            cell.set(element);
        }
        buffer
    }
    fn cells(&self) -> &[Cell<T>] {
        &self.memory[GUARD..self.memory.len() - GUARD]
    }
    fn elements(&self) -> Vec<T> {
        self.cells().iter().map(Cell::get).collect()
    }
    /// The same, to be copied to the tensor at the end: it is what a device would have written to.
    pub(super) fn written_to(mut self, tensor: &Tensor) -> Self {
        self.in_place = Some(tensor.clone());
        self
    }
    pub(crate) fn address(&self) -> u64 {
        self.address_of(0)
    }
    pub(crate) fn address_of(&self, element: usize) -> u64 {
        assert!(element <= self.cells().len(), "element {element} of a buffer of {}", self.cells().len());
        self.memory.as_ptr().wrapping_add(GUARD + element).expose_provenance() as u64
    }
}

impl<T: Number> Drop for Buffer<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let end = self.memory.len() - GUARD;
        let guards = self.memory[..GUARD].iter().chain(&self.memory[end..]);
        let written = guards.filter(|cell| cell.get().bits() != T::UNSET.bits()).count();
        assert!(written == 0, "a kernel wrote outside its buffer of {} elements", end - GUARD);
        if let Some(tensor) = &self.in_place {
            let elements: Vec<f32> =
                self.cells().iter().map(|cell| f32::from_bits(cell.get().bits() as u32)).collect();
            let outcome = overwrite_on_host(tensor, &elements);
            assert!(outcome.is_ok(), "an in-place buffer does not go back to its tensor: {outcome:?}");
        }
    }
}

/// Emulation runs one launch at a time: it keeps the running block in global variables.
static ONE_LAUNCH: Mutex<()> = Mutex::new(());

/// The emulated device's one stream. Launches are done when they return.
pub(crate) struct Stream;

#[expect(clippy::unused_self, reason = "the signatures of the other backends, whose stream has a state")]
impl Stream {
    /// The elements of a contiguous tensor.
    pub(super) fn view<T: Number + Stored>(&self, op: &'static str, tensor: &Tensor) -> Result<Buffer<T>> {
        read(op, tensor, |elements: &[T]| Ok(Buffer::holding(elements)))
    }

    /// Elements that hold nothing yet.
    #[expect(clippy::unnecessary_wraps, reason = "a device may be out of memory")]
    pub(crate) fn unset<T: Number>(&self, elements: usize) -> Result<Buffer<T>> {
        Ok(Buffer::unset(elements))
    }

    /// A copy of the host's elements.
    #[expect(clippy::unnecessary_wraps, reason = "a device may be out of memory")]
    pub(crate) fn upload<T: Number>(&self, elements: &[T]) -> Result<Buffer<T>> {
        Ok(Buffer::holding(elements))
    }

    /// A copy for the host.
    #[expect(clippy::unnecessary_wraps, reason = "a device reports here what earlier launches did wrong")]
    pub(crate) fn download<T: Number>(&self, buffer: &Buffer<T>) -> Result<Vec<T>> {
        Ok(buffer.elements())
    }

    /// The buffer as a tensor.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "on a device the tensor takes the buffer's memory over"
    )]
    pub(crate) fn tensor(&self, buffer: Buffer<f32>, shape: impl Into<Shape>) -> Result<Tensor> {
        Ok(Tensor::from_vec(buffer.elements(), shape, &Device::Cpu)?)
    }

    pub(super) fn start(
        &self,
        kernel: Kernel,
        [blocks, threads, shared_bytes]: [u32; 3],
        slots: &[Slot],
        types: &[&str],
    ) -> Result<()> {
        let refusal = |problem: String| Error::Argument { op: kernel.name, problem };
        let text = |text: &str| CString::new(text).map_err(|error| refusal(error.to_string()));
        let name = text(kernel.name)?;
        let types = types.iter().map(|name| text(name)).collect::<Result<Vec<_>>>()?;
        let types: Vec<*const c_char> = types.iter().map(|name| name.as_ptr()).collect();
        let arguments: Vec<*const c_void> = slots.iter().map(|slot| slot.as_ptr().cast()).collect();
        let one_launch = ONE_LAUNCH.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: names are C strings; both arrays have as many entries as the count says, each argument the bytes
        // of the widest. Addresses among them are those of live buffers, whose memory may be written through
        // cells. A kernel that is told a wrong size may leave its buffer; this is a backend for tests, whose
        // guards and poison look for just that.
        let problem = unsafe {
            emulated_launch(
                name.as_ptr(),
                blocks,
                threads,
                shared_bytes as usize,
                arguments.as_ptr(),
                types.as_ptr(),
                slots.len(),
            )
        };
        if !problem.is_null() {
            // SAFETY: what is not null is a C string that stays until the next launch, which waits for the lock.
            let problem = unsafe { CStr::from_ptr(problem) };
            return Err(refusal(problem.to_string_lossy().into_owned()));
        }
        drop(one_launch);
        note(kernel.name);
        Ok(())
    }

    /// What cuBLAS would do, by the CPU's own product: `C [m,n] ← keep·C + A B` with columns one after another.
    #[expect(clippy::unnecessary_wraps, reason = "a device's library can fail")]
    pub(super) fn multiply(
        &self,
        sizes: [i32; 3],
        [a, b]: [Factor; 2],
        keep: f32,
        c: u64,
        precision: Precision,
    ) -> Result<()> {
        let [m, n, k] = sizes.map(|size| size.cast_unsigned() as usize);
        // SAFETY: the caller's buffers hold matrices of these sizes and are alive; C is borrowed for writing.
        let c = unsafe { std::slice::from_raw_parts_mut(with_exposed_provenance_mut(c as usize), m * n) };
        // Stored by rows, all of it is Cᵀ = Bᵀ Aᵀ.
        matmul(MatMut::dense(c, n, m), keep, stored(b, k, n), stored(a, m, k), precision);
        note("product");
        Ok(())
    }
}

/// The transpose of factor `[rows, columns]`, whose columns lie one after another.
fn stored<'a>((address, transposed, pitch): Factor, rows: usize, columns: usize) -> Mat<'a, f32> {
    let (lines, length) = if transposed { (rows, columns) } else { (columns, rows) };
    // SAFETY: as in `multiply`, which is the only caller.
    let elements =
        unsafe { std::slice::from_raw_parts(with_exposed_provenance(address as usize), lines * length) };
    let lines = Mat::rows(elements, lines, length, pitch.cast_unsigned() as usize);
    if transposed { lines.t() } else { lines }
}
