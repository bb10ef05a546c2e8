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

use candle_core::{DType, Device, Shape, Tensor, WithDType};
use half::bf16;

use super::launch::{Kernel, Number, Slot};
use super::limits::MOST_SHARED_BYTES;
use super::product::{self, Factor};
use super::report::{Kernels, Report};
use crate::elements::{Writable, read, update};
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

/// Bytes of shared memory that a block may have on the emulated device: what sm_80 has; `None` outside of it.
///
/// # Errors
/// None.
pub fn block_bytes(device: &Device) -> Result<Option<usize>> {
    Ok(is_gpu(device).then_some(MOST_SHARED_BYTES))
}

/// How many GPUs there are: none is looked for.
pub fn count() -> usize {
    0
}

/// What there is: kernels for tests.
pub fn report() -> Report {
    Report { kernels: KERNELS, versions: Vec::new(), gpus: Vec::new(), problem: None, too_old: Vec::new() }
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
    bf16, bf16::NAN, |number: bf16| number.to_bits().into();
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
            let bits = self.cells().iter().map(|cell| cell.get().bits());
            let outcome = match tensor.dtype() {
                DType::BF16 => put_back(tensor, bits.map(|bits| bf16::from_bits(bits as u16))),
                _ => put_back(tensor, bits.map(|bits| f32::from_bits(bits as u32))),
            };
            assert!(outcome.is_ok(), "an in-place buffer does not go back to its tensor: {outcome:?}");
        }
    }
}

/// Overwrites a tensor's elements.
fn put_back<T: Writable>(tensor: &Tensor, elements: impl Iterator<Item = T>) -> Result<()> {
    update("in place", tensor, |places: &mut [T]| {
        places.iter_mut().zip(elements).for_each(|(place, element)| *place = element);
        Ok(())
    })
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
    pub(crate) fn tensor<T: Number + Stored>(
        &self,
        buffer: Buffer<T>,
        shape: impl Into<Shape>,
    ) -> Result<Tensor> {
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
        [factors, result]: [product::Stored; 2],
        precision: Precision,
    ) -> Result<()> {
        let [m, n, k] = sizes.map(|size| size.cast_unsigned() as usize);
        let (a, b) = (FactorLines::read(factors, a, m, k), FactorLines::read(factors, b, k, n));
        // Stored by rows, all of it is Cᵀ = Bᵀ Aᵀ.
        let multiply = |c: &mut [f32]| {
            matmul(MatMut::dense(c, n, m), keep, b.transpose(), a.transpose(), precision);
        };
        // SAFETY: the caller's buffer holds a matrix of this size and is alive; it is borrowed for writing.
        unsafe {
            match result {
                product::Stored::F32 => multiply(elements_mut(c, m * n)),
                product::Stored::Bf16 => {
                    let rounded: &mut [bf16] = elements_mut(c, m * n);
                    let mut wide: Vec<f32> = rounded.iter().map(|element| element.to_f32()).collect();
                    multiply(&mut wide);
                    rounded.iter_mut().zip(wide).for_each(|(to, from)| *to = bf16::from_f32(from));
                }
            }
        }
        note("product");
        Ok(())
    }
}

/// # Safety
/// As many elements must lie there, which nobody else uses.
unsafe fn elements_mut<'a, T>(address: u64, count: usize) -> &'a mut [T] {
    // SAFETY: the caller's to see to.
    unsafe { std::slice::from_raw_parts_mut(with_exposed_provenance_mut(address as usize), count) }
}

/// A factor `[rows, columns]` of a product in f32, as dense lines: its columns, or its rows where it is transposed.
struct FactorLines {
    lines: Vec<f32>,
    sizes: [usize; 2],
    transposed: bool,
}

impl FactorLines {
    fn read(
        stored: product::Stored,
        (address, transposed, pitch): Factor,
        rows: usize,
        columns: usize,
    ) -> Self {
        let (count, length) = if transposed { (rows, columns) } else { (columns, rows) };
        let pitch = pitch.cast_unsigned() as usize;
        // SAFETY: the caller's buffer holds `count` lines of `length` elements, `pitch` apart, and is alive.
        let lines = unsafe {
            match stored {
                product::Stored::F32 => read_lines::<f32>(address, count, length, pitch),
                product::Stored::Bf16 => read_lines::<bf16>(address, count, length, pitch),
            }
        };
        Self { lines, sizes: [count, length], transposed }
    }

    /// The transpose of the factor, by rows.
    fn transpose(&self) -> Mat<'_, f32> {
        let lines = Mat::dense(&self.lines, self.sizes[0], self.sizes[1]);
        if self.transposed { lines.t() } else { lines }
    }
}

/// # Safety
/// `count` lines of `length` elements must lie there, `pitch` apart, which nobody writes.
unsafe fn read_lines<T: Copy + Into<f32>>(
    address: u64,
    count: usize,
    length: usize,
    pitch: usize,
) -> Vec<f32> {
    let line = |line: usize| {
        let first = with_exposed_provenance::<T>(address as usize).wrapping_add(line * pitch);
        // SAFETY: the caller's to see to.
        unsafe { std::slice::from_raw_parts(first, length) }
    };
    (0..count).flat_map(line).map(|&element| element.into()).collect()
}
