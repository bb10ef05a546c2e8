//! Launches on a GPU, through candle's device: its memory, its stream, its cuBLAS handle.
#![expect(unsafe_code, reason = "device memory and launches; see each block")]

#[path = "enabled/devices.rs"]
mod devices;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_void;
use std::fmt::Display;
use std::marker::PhantomData;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use candle_core::backend::{BackendDevice, BackendStorage};
use candle_core::cuda_backend::{CudaDType, CudaDevice, CudaStorage};
use candle_core::op::BackpropOp;
use candle_core::{Device, DeviceLocation, Shape, Storage, Tensor, WithDType};
use cudarc::cublas::result::{self as cublas, CublasError};
use cudarc::cublas::sys::cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
use cudarc::cublas::sys::cublasSetMathMode;
use cudarc::driver::sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
use cudarc::driver::sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
use cudarc::driver::{
    CudaFunction, CudaModule, CudaSlice, DevicePtr, DeviceRepr, DriverError, result as driver,
};
use cudarc::nvrtc::Ptx;

use super::launch::{Kernel, Number, Slot};
use super::product::{self, Factor};
use crate::vector::Precision;
use crate::{Error, Result};

pub use devices::{KERNELS, block_bytes, count, free_bytes, host, is_gpu, report};

/// Name and contents of each compiled file of `kernels/`.
const FATBINS: &[(&str, &[u8])] = &include!(concat!(env!("OUT_DIR"), "/fatbins.rs"));

/// Dynamic shared memory of a block that needs no permission.
const FREE_SHARED_BYTES: u32 = 48 * 1024;

/// The CUDA device of this number, with one stream for everything. Asked for again, it is the same device: candle
/// would make a second stream, which does not wait for the first.
///
/// # Errors
/// No driver, no such device.
pub fn device(ordinal: usize) -> Result<Device> {
    let devices = &mut *DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = devices.get(&ordinal) {
        return Ok(device.clone());
    }
    let device = Device::new_cuda_with_stream(ordinal)
        .map_err(|error| failure(format!("opening device {ordinal}"), first_line(&error)))?;
    devices::expect_capability(ordinal)?;
    let cuda = device.as_cuda_device()?;
    // SAFETY: events order streams among each other; here is one, which is in order by itself.
    unsafe { cuda.disable_event_tracking() };
    let setting_up = || format!("setting device {ordinal} up");
    keep_memory(cuda).map_err(|error| failure(setting_up(), error))?;
    sum_in_f32(cuda).map_err(|error| failure(setting_up(), error))?;
    devices.insert(ordinal, device.clone());
    Ok(device)
}

/// Lets the driver keep freed memory for the next allocation. As it comes, it gives all of it back to the system
/// whenever the host waits for the stream, and asks for it again: every step, here.
fn keep_memory(device: &CudaDevice) -> std::result::Result<(), DriverError> {
    let stream = device.cuda_stream();
    if !stream.context().has_async_alloc() {
        return Ok(()); // there is no pool; the driver allocates each time
    }
    stream.context().bind_to_thread()?;
    let mut threshold = u64::MAX;
    // SAFETY: the pool is the device's own; its attribute is a number of 64 bits, which is read before the call returns.
    unsafe {
        let pool = driver::device::get_default_mem_pool(stream.context().cu_device())?;
        driver::mem_pool::set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (&raw mut threshold).cast())
    }
}

/// Has cuBLAS add up in f32 whatever the result is stored in. As it comes, it may split the inner dimension of a product and
/// add the parts in the result's type, which can be bf16.
fn sum_in_f32(device: &CudaDevice) -> std::result::Result<(), CublasError> {
    let handle = device.cublas_handle();
    // SAFETY: the handle is of this device, and nothing else uses it yet.
    unsafe { cublasSetMathMode(*handle.handle(), CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION) }.result()
}

/// Devices that have been opened, by their number.
static DEVICES: LazyLock<Mutex<HashMap<usize, Device>>> = LazyLock::new(Mutex::default);

/// candle appends a backtrace to what went wrong.
fn first_line(error: &impl Display) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

fn failure(action: impl Into<String>, problem: impl Display) -> Error {
    Error::Cuda { action: action.into(), problem: problem.to_string() }
}

/// The stream of a tensor's device, if that is a GPU.
#[expect(clippy::unnecessary_wraps, reason = "ops ask with `?`, so that a backend may fail here")]
pub(crate) fn stream_of(tensor: &Tensor) -> Result<Option<Stream>> {
    let Device::Cuda(device) = tensor.device() else { return Ok(None) };
    let streams = &mut *STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    let functions = streams.entry(device.id()).or_default();
    Ok(Some(Stream { device: device.clone(), functions: Arc::clone(functions) }))
}

type Functions = Arc<Mutex<Loaded>>;

/// What has been loaded onto each device.
static STREAMS: LazyLock<Mutex<HashMap<candle_core::cuda_backend::DeviceId, Functions>>> =
    LazyLock::new(Mutex::default);

#[derive(Default)]
struct Loaded {
    modules: HashMap<&'static str, Arc<CudaModule>>,
    functions: HashMap<Kernel, Function>,
}

struct Function {
    function: CudaFunction,
    /// Dynamic shared memory that it may have.
    allowed_bytes: u32,
}

/// What a buffer can hold.
pub(crate) trait Represented: Copy + DeviceRepr + 'static {}
impl<T: Copy + DeviceRepr + 'static> Represented for T {}

/// What a tensor can hold and a buffer too.
pub(crate) trait Stored: WithDType + CudaDType {}
impl<T: WithDType + CudaDType> Stored for T {}

/// Elements in device memory.
pub(crate) struct Buffer<T: Number> {
    memory: Memory<T>,
    address: u64,
    elements: usize,
}

enum Memory<T> {
    /// A tensor's, which stays until the buffer is dropped.
    Tensor {
        _tensor: Tensor,
        elements: PhantomData<T>,
    },
    Own(CudaSlice<T>),
}

impl<T: Number> Buffer<T> {
    /// The same: a view of a tensor is written where the tensor lies.
    pub(super) fn written_to(self, _tensor: &Tensor) -> Self {
        self
    }
    pub(crate) fn address(&self) -> u64 {
        self.address
    }
    pub(crate) fn address_of(&self, element: usize) -> u64 {
        assert!(element <= self.elements, "element {element} of a buffer of {}", self.elements);
        self.address + (element * size_of::<T>()) as u64
    }
}

/// A device's one stream, and the kernels loaded onto it so far.
pub(crate) struct Stream {
    device: CudaDevice,
    functions: Functions,
}

impl Stream {
    /// The elements of a contiguous tensor.
    pub(super) fn view<T: Number + Stored>(&self, op: &'static str, tensor: &Tensor) -> Result<Buffer<T>> {
        let address = {
            let (storage, layout) = tensor.storage_and_layout();
            match &*storage {
                Storage::Cuda(storage) if storage.device().same_device(&self.device) => {
                    let slice = storage.as_cuda_slice::<T>()?;
                    let (start, _no_event) = slice.device_ptr(slice.stream());
                    start + (layout.start_offset() * size_of::<T>()) as u64
                }
                _ => return Err(Error::Device { op, device: place(tensor) }),
            }
        };
        let elements = tensor.elem_count();
        Ok(Buffer {
            memory: Memory::Tensor { _tensor: tensor.clone(), elements: PhantomData },
            address,
            elements,
        })
    }

    /// Elements that hold nothing yet.
    pub(crate) fn unset<T: Number>(&self, elements: usize) -> Result<Buffer<T>> {
        // SAFETY: what it holds is read by kernels alone, after others have written it, or by `download` and
        // candle, to which any bits are numbers.
        Ok(Self::own(unsafe { self.device.alloc::<T>(elements.max(1)) }?, elements))
    }

    /// A copy of the host's elements.
    pub(crate) fn upload<T: Number>(&self, elements: &[T]) -> Result<Buffer<T>> {
        if elements.is_empty() {
            return self.unset(0);
        }
        Ok(Self::own(self.device.clone_htod(elements)?, elements.len()))
    }

    /// A copy for the host, after everything before it on the stream.
    pub(crate) fn download<T: Number + Default>(&self, buffer: &Buffer<T>) -> Result<Vec<T>> {
        match &buffer.memory {
            Memory::Own(slice) => Ok(self.device.clone_dtoh(&slice.slice(..buffer.elements))?),
            Memory::Tensor { .. } => Err(failure("reading a buffer", "it is a tensor's; read the tensor")),
        }
    }

    /// The buffer as a tensor.
    pub(crate) fn tensor<T: Number + Stored>(
        &self,
        buffer: Buffer<T>,
        shape: impl Into<Shape>,
    ) -> Result<Tensor> {
        let Memory::Own(slice) = buffer.memory else {
            return Err(failure("making a tensor", "the memory is another tensor's"));
        };
        let storage = CudaStorage::wrap_cuda_slice(slice, self.device.clone());
        Ok(Tensor::from_storage(Storage::Cuda(storage), shape, BackpropOp::none(), false))
    }

    fn own<T: Number>(slice: CudaSlice<T>, elements: usize) -> Buffer<T> {
        let address = {
            let (address, _no_event) = slice.device_ptr(slice.stream());
            address
        };
        Buffer { memory: Memory::Own(slice), address, elements }
    }

    pub(super) fn start(
        &self,
        kernel: Kernel,
        [blocks, threads, shared_bytes]: [u32; 3],
        slots: &[Slot],
        _types: &[&str],
    ) -> Result<()> {
        let action = || format!("launching {}", kernel.name);
        let stream = self.device.cuda_stream();
        // Before the function is looked for: its module and its attribute are the context's of the calling thread.
        stream.context().bind_to_thread().map_err(|error| failure(action(), error))?;
        let function = self.function(kernel, shared_bytes)?;
        let mut arguments: Vec<*mut c_void> =
            slots.iter().map(|slot| slot.as_ptr().cast_mut().cast()).collect();
        // SAFETY: the function and the stream are of this device's context. The driver copies each argument out of
        // its slot, which is as large as the largest, before it returns. What the kernel reads and writes is
        // memory of the device alone, in buffers that are freed on the same stream, hence after it.
        unsafe {
            driver::launch_kernel(
                function.cu_function(),
                (blocks, 1, 1),
                (threads, 1, 1),
                shared_bytes,
                stream.cu_stream(),
                &mut arguments,
            )
        }
        .map_err(|error| failure(action(), error))
    }

    /// A kernel that may have this much dynamic shared memory, loaded when it is first asked for.
    fn function(&self, kernel: Kernel, shared_bytes: u32) -> Result<CudaFunction> {
        let Loaded { modules, functions } =
            &mut *self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        let function = match functions.entry(kernel) {
            Entry::Occupied(found) => found.into_mut(),
            Entry::Vacant(place) => {
                let action = || format!("loading {} of {}.cu", kernel.name, kernel.file);
                let module = match modules.entry(kernel.file) {
                    Entry::Occupied(found) => found.into_mut(),
                    Entry::Vacant(place) => place.insert(self.load(kernel.file)?),
                };
                let function = module.load_function(kernel.name).map_err(|error| failure(action(), error))?;
                place.insert(Function { function, allowed_bytes: FREE_SHARED_BYTES })
            }
        };
        if shared_bytes > function.allowed_bytes {
            let refused = |problem: &dyn Display| {
                failure(format!("{shared_bytes} bytes of shared memory for {}", kernel.name), problem)
            };
            let bytes = i32::try_from(shared_bytes).map_err(|error| refused(&error))?;
            let attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.function.set_attribute(attribute, bytes).map_err(|error| refused(&error))?;
            function.allowed_bytes = shared_bytes;
        }
        Ok(function.function.clone())
    }

    fn load(&self, file: &str) -> Result<Arc<CudaModule>> {
        let action = || format!("loading the kernels of {file}.cu");
        let fatbin = FATBINS.iter().find(|(name, _)| *name == file);
        let (_, fatbin) = fatbin.ok_or_else(|| failure(action(), "there is no such file"))?;
        let context = Arc::clone(self.device.cuda_stream().context());
        context.load_module(Ptx::from_binary(fatbin.to_vec())).map_err(|error| failure(action(), error))
    }

    /// `C [m,n] ← keep·C + A B` by cuBLAS, with columns one after another.
    pub(super) fn multiply(
        &self,
        [m, n, k]: [i32; 3],
        [(a, turn_a, pitch_a), (b, turn_b, pitch_b)]: [Factor; 2],
        keep: f32,
        c: u64,
        [factors, result]: [product::Stored; 2],
        precision: Precision,
    ) -> Result<()> {
        use cudarc::cublas::sys::{cublasComputeType_t, cublasGemmAlgo_t, cublasOperation_t, cudaDataType};
        let operation =
            |turn| if turn { cublasOperation_t::CUBLAS_OP_T } else { cublasOperation_t::CUBLAS_OP_N };
        let data = |stored| match stored {
            product::Stored::F32 => cudaDataType::CUDA_R_32F,
            product::Stored::Bf16 => cudaDataType::CUDA_R_16BF,
        };
        let compute = match (factors, precision) {
            (product::Stored::F32, Precision::Bf16) => cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_16BF,
            _ => cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let one = 1.0f32;
        let action = || format!("a product of {n}x{k} and {k}x{m}");
        // The library works in the calling thread's context, and refuses a pitch of zero, even of no columns.
        let stream = self.device.cuda_stream();
        stream.context().bind_to_thread().map_err(|error| failure(action(), error))?;
        let [pitch_a, pitch_b] = [pitch_a, pitch_b].map(|pitch| pitch.max(1));
        let handle = self.device.cublas_handle();
        // SAFETY: the handle is of this device and its stream. The three matrices lie in the caller's buffers, of
        // which C is borrowed for writing; `one` and `keep` are on the host and read before the call returns.
        unsafe {
            cublas::gemm_ex(
                *handle.handle(),
                operation(turn_a),
                operation(turn_b),
                m,
                n,
                k,
                (&raw const one).cast(),
                a as *const c_void,
                data(factors),
                pitch_a,
                b as *const c_void,
                data(factors),
                pitch_b,
                (&raw const keep).cast(),
                c as *mut c_void,
                data(result),
                m,
                compute,
                cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .map_err(|error| failure(action(), error))
    }
}

fn place(tensor: &Tensor) -> String {
    match tensor.device().location() {
        DeviceLocation::Cpu => "the CPU".into(),
        location => format!("{location:?}"),
    }
}
