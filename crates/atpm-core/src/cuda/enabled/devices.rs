//! What the driver and its libraries say about themselves and their GPUs.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;

use candle_core::Device;
use cudarc::cublas::sys::{cublasGetProperty, libraryPropertyType};
use cudarc::driver::sys::CUdevice_attribute::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
};
use cudarc::driver::sys::{CUDA_VERSION, cuDriverGetVersion};
use cudarc::driver::{CudaContext, DriverError, result as driver};

use super::failure;
use crate::Result;
use crate::cuda::report::{Gpu, Kernels, Report, driver_too_old, version};

/// Where this build's kernels run.
pub const KERNELS: Kernels = Kernels::Gpu;

/// The CPU.
pub fn host() -> Device {
    Device::Cpu
}

/// Whether ops on this device's tensors are launches.
pub fn is_gpu(device: &Device) -> bool {
    device.is_cuda()
}

/// Bytes that a GPU can still give; `None` for the CPU.
///
/// # Errors
/// A driver that does not tell.
pub fn free_bytes(device: &Device) -> Result<Option<u64>> {
    let Device::Cuda(device) = device else { return Ok(None) };
    let (free, _) = device
        .cuda_stream()
        .context()
        .mem_get_info()
        .map_err(|error| failure("asking for free memory", error))?;
    Ok(Some(free as u64))
}

/// Bytes of shared memory that a block may have on a GPU; `None` for the CPU.
///
/// # Errors
/// A driver that does not tell.
pub fn block_bytes(device: &Device) -> Result<Option<usize>> {
    let Device::Cuda(device) = device else { return Ok(None) };
    let most =
        device.cuda_stream().context().attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    let most = most.map_err(|error| failure("asking for the shared memory of a block", error))?;
    Ok(Some(most.cast_unsigned() as usize))
}

/// How many GPUs the driver shows; none is opened. None where there is no driver.
pub fn count() -> usize {
    let count = driver::init().and_then(|()| driver::device::get_count());
    count.map_or(0, |count| count.cast_unsigned() as usize)
}

/// Driver, libraries and GPUs of this machine.
pub fn report() -> Report {
    let (gpus, problem) = match gpus() {
        Ok(gpus) => (gpus, None),
        Err(error) => (Vec::new(), Some(words(error))),
    };
    let mut versions = vec![("toolkit of the build", version(CUDA_VERSION.cast_signed()))];
    versions.push(("driver", driver_version()));
    versions.push(("cuBLAS", library_version()));
    versions.push(("NCCL", nccl_version().unwrap_or_else(|| "not found".into())));
    let mut too_old: Vec<String> = gpus.iter().filter_map(Gpu::too_old).collect();
    too_old
        .extend(driver_number().ok().and_then(|number| driver_too_old(number, CUDA_VERSION.cast_signed())));
    Report { kernels: KERNELS, versions, gpus, problem, too_old }
}

/// What the driver calls an error.
fn words(error: DriverError) -> String {
    error.error_string().map_or_else(|_| format!("{error:?}"), |text| text.to_string_lossy().into_owned())
}

fn gpus() -> std::result::Result<Vec<Gpu>, DriverError> {
    driver::init()?;
    (0..driver::device::get_count()?).map(gpu).collect()
}

/// Refuses a device that the kernels are not compiled for, before the first of them is looked for in vain.
///
/// # Errors
/// Such a device; a driver that does not tell.
pub(super) fn expect_capability(ordinal: usize) -> Result<()> {
    let action = || format!("opening device {ordinal}");
    let number = c_int::try_from(ordinal).map_err(|error| failure(action(), error))?;
    let gpu = gpu(number).map_err(|error| failure(action(), words(error)))?;
    gpu.too_old().map_or(Ok(()), |problem| Err(failure(action(), problem)))
}

fn gpu(ordinal: c_int) -> std::result::Result<Gpu, DriverError> {
    let device = driver::device::get(ordinal)?;
    // SAFETY: the driver has just given this device; it is only asked.
    let (total, major, minor) = unsafe {
        (
            driver::device::total_mem(device)?,
            driver::device::get_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            driver::device::get_attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        )
    };
    let ordinal = ordinal.cast_unsigned() as usize;
    // Free memory is told to who has a context there alone.
    let free = CudaContext::new(ordinal).and_then(|context| context.mem_get_info());
    Ok(Gpu {
        ordinal,
        name: driver::device::get_name(device)?,
        capability: (major, minor),
        free_bytes: free.ok().map(|(free, _)| free as u64),
        total_bytes: total as u64,
    })
}

/// The newest CUDA that the driver runs: 13000 for 13.0.
fn driver_number() -> std::result::Result<i32, DriverError> {
    let mut number = 0;
    // SAFETY: writes one number; works before anything else is initialised.
    unsafe { cuDriverGetVersion(&raw mut number) }.result()?;
    Ok(number)
}

/// The newest CUDA that the driver runs, and the driver's own number where Linux shows it.
fn driver_version() -> String {
    let newest = driver_number().map_or_else(words, version);
    let module = std::fs::read_to_string("/sys/module/nvidia/version").unwrap_or_default();
    if module.is_empty() { newest } else { format!("{} ({newest})", module.trim()) }
}

/// `13.1.0`, or that there is no library to tell.
fn library_version() -> String {
    let part = |property| {
        let mut number = 0;
        // SAFETY: writes one number; needs no handle.
        let told = unsafe { cublasGetProperty(property, &raw mut number) }.result();
        told.map(|()| number.to_string())
    };
    let parts = [
        libraryPropertyType::MAJOR_VERSION,
        libraryPropertyType::MINOR_VERSION,
        libraryPropertyType::PATCH_LEVEL,
    ];
    let parts: std::result::Result<Vec<String>, _> = parts.into_iter().map(part).collect();
    parts.map_or_else(|_| "not found".into(), |parts| parts.join("."))
}

unsafe extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// Version of the library that several GPUs talk through, if it is there. It is looked for, not linked: one GPU
/// does without.
fn nccl_version() -> Option<String> {
    const NAME: &CStr = c"libnccl.so.2";
    const LAZY: c_int = 1;
    let mut number: c_int = 0;
    // SAFETY: both names are C strings. The symbol has had this signature since NCCL 2.0; it writes one number and
    // returns 0 if it did. The library stays open.
    let told = unsafe {
        let library = dlopen(NAME.as_ptr(), LAZY);
        if library.is_null() {
            return None;
        }
        let symbol = dlsym(library, c"ncclGetVersion".as_ptr());
        if symbol.is_null() {
            return Some("of unknown version".into());
        }
        let get_version: unsafe extern "C" fn(*mut c_int) -> c_int = transmute(symbol);
        get_version(&raw mut number)
    };
    // 21809 is 2.18.9.
    let parts = (number / 10000, number / 100 % 100, number % 100);
    Some(if told == 0 { format!("{}.{}.{}", parts.0, parts.1, parts.2) } else { "of unknown version".into() })
}
