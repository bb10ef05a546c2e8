//! How it is measured: repeats after a warm-up, the machine's peaks (matrix products, memory), memory used.

use std::hint::black_box;
use std::time::Instant;

use atpm_core::ops::linear;
use atpm_core::vector::{Mat, MatMut, matmul};
use atpm_core::{Precision, activation_dtype, cuda};
use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;
use serde::Serialize;

use super::sizes::Random;

/// Seconds of each of `repeats` runs, after `warm_up` runs that do not count.
///
/// # Errors
/// Whatever `body` refuses.
pub fn seconds(
    warm_up: usize,
    repeats: usize,
    mut body: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Vec<f64>> {
    for _ in 0..warm_up {
        body()?;
    }
    let mut times = Vec::with_capacity(repeats);
    for _ in 0..repeats.max(1) {
        let start = Instant::now();
        body()?;
        times.push(start.elapsed().as_secs_f64());
    }
    Ok(times)
}

/// How long a GPU is kept busy between two waits for it, in seconds: long beside a wait.
const BUSY: f64 = 2e-3;
/// Most runs between two waits.
const MOST_RUNS: u32 = 100;

/// Seconds of each of `repeats` runs on a device, after `warm_up` runs that do not count. A GPU's runs are given one after
/// another and waited for together, since a single one may be shorter than giving and waiting; what is timed is then
/// the mean of so many.
///
/// # Errors
/// Whatever `body` or the device refuses.
pub fn seconds_on(
    device: &Device,
    warm_up: usize,
    repeats: usize,
    body: impl Fn() -> anyhow::Result<()>,
) -> anyhow::Result<Vec<f64>> {
    if !cuda::is_gpu(device) {
        return seconds(warm_up, repeats, body);
    }
    let together = |runs: u32| {
        (0..runs).try_for_each(|_| body())?;
        Ok(device.synchronize()?)
    };
    (0..warm_up).try_for_each(|_| together(1))?;
    let once = median(seconds(0, 1, || together(1))?);
    let runs = (1..MOST_RUNS).find(|&runs| once * f64::from(runs) >= BUSY).unwrap_or(MOST_RUNS);
    let times = seconds(0, repeats, || together(runs))?;
    Ok(times.into_iter().map(|time| time / f64::from(runs)).collect())
}

/// The middle one; the upper of the two middle ones of an even number.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What a device's peaks are measured on.
#[derive(Debug, Clone, Copy)]
pub struct PeakSizes {
    /// Side of the square matrices that are multiplied.
    pub side: usize,
    /// Elements of each buffer that is moved.
    pub elements: usize,
}

impl PeakSizes {
    /// Far larger than a processor's caches: 16 MiB a matrix, 256 MiB a buffer.
    pub const BEYOND_CACHES: Self = Self { side: 2048, elements: 64 << 20 };
    /// The most for a GPU, whose sizes grow until they take long enough: 64 MiB a result, 1 GiB a buffer.
    const OF_A_GPU: Self = Self { side: 4096, elements: 256 << 20 };

    /// Those of this device.
    pub fn of(device: &Device) -> Self {
        if cuda::is_gpu(device) { Self::OF_A_GPU } else { Self::BEYOND_CACHES }
    }
}

/// What a device does at best, measured in this process.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Peaks {
    /// Matrix products in f32, GFLOP/s.
    pub f32_gflop_per_s: f64,
    /// Those in the step's precision.
    pub gflop_per_s: f64,
    /// Moving memory.
    pub memory: MemoryPeak,
}

impl Peaks {
    /// Measures all.
    ///
    /// # Errors
    /// A device that refuses.
    pub fn measure(device: &Device, precision: Precision, sizes: PeakSizes) -> anyhow::Result<Self> {
        Self::beside(matmul_peak_on(device, sizes.side, precision)?, device, precision, sizes)
    }

    /// Measures the rest, where the products' in the step's precision are known.
    ///
    /// # Errors
    /// A device that refuses.
    pub fn beside(
        gflop_per_s: f64,
        device: &Device,
        precision: Precision,
        sizes: PeakSizes,
    ) -> anyhow::Result<Self> {
        let f32_gflop_per_s = match precision {
            Precision::F32 => gflop_per_s,
            Precision::Bf16 => matmul_peak_on(device, sizes.side, Precision::F32)?,
        };
        Ok(Self { f32_gflop_per_s, gflop_per_s, memory: memory_peak_on(device, sizes.elements)? })
    }

    /// Of products in this precision, GFLOP/s.
    pub fn products(&self, precision: Precision) -> f64 {
        if precision == Precision::F32 { self.f32_gflop_per_s } else { self.gflop_per_s }
    }
}

/// The best rate of several products in `precision` of `n × n` matrices over the whole pool, in GFLOP/s.
///
/// # Errors
/// None of its own.
pub fn matmul_peak(n: usize, precision: Precision) -> anyhow::Result<f64> {
    let (a, b) = (vec![0.5f32; n * n], vec![0.25f32; n * n]);
    let mut c = vec![0.0f32; n * n];
    let times = seconds(2, 8, || {
        let into = MatMut::dense(&mut c, n, n);
        matmul(into, 0.0, Mat::dense(&a, n, n), Mat::dense(&b, n, n), precision);
        Ok(())
    })?;
    Ok(2.0 * (n as f64).powi(3) / best(times) / 1e9)
}

/// How long a product and a copy must take at least for a GPU's peaks, in seconds.
const LONG_ENOUGH: f64 = 1e-3;

/// The same of a run's device: the pool, or a GPU's library. There the matrices are those of a weight's gradient,
/// `n × n` over `4n` rows, in what activations are stored in, and `n` grows to at most the given one, until a product
/// takes a millisecond.
///
/// # Errors
/// A device that refuses.
pub fn matmul_peak_on(device: &Device, most: usize, precision: Precision) -> anyhow::Result<f64> {
    if !cuda::is_gpu(device) {
        return matmul_peak(most, precision);
    }
    let mut fastest = 0.0f64;
    let mut n = most.min(256);
    loop {
        let dweight = Tensor::zeros((n, n), DType::F32, device)?;
        // Not zeros: a GPU multiplies them faster than numbers.
        let factor = |random: &mut Random| -> anyhow::Result<Tensor> {
            let rows = random.tensor(&[4, n], 1.0)?.repeat((n, 1))?;
            Ok(rows.to_dtype(activation_dtype(&dweight, precision))?.to_device(device)?)
        };
        let random = &mut Random(5);
        let (x, dy) = (factor(random)?, factor(random)?);
        let times = seconds_on(device, 2, 8, || Ok(linear::backward_weight(&x, &dy, &dweight, precision)?))?;
        let time = best(times);
        fastest = fastest.max(8.0 * (n as f64).powi(3) / time / 1e9);
        if time >= LONG_ENOUGH || n >= most {
            return Ok(fastest);
        }
        n = most.min(2 * n);
    }
}

/// Elements that a thread moves at a time.
const PEAK_BLOCK: usize = 1 << 18;

/// The best rates over memory, of the whole pool or of a GPU, in GB/s. Each value counts once for being read and once for being
/// written, as in the ops that are compared with them; that a cache also reads what is about to be written does not count.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct MemoryPeak {
    /// Of the faster of a copy (`a = b`) and a triad (`a = b + s·c`).
    pub mixed: f64,
    /// Of reading alone.
    pub read: f64,
}

/// Measures memory on f32 buffers of `n` elements.
///
/// # Errors
/// None of its own.
pub fn memory_peak(n: usize) -> anyhow::Result<MemoryPeak> {
    let (b, c) = (vec![0.5f32; n], vec![0.25f32; n]);
    let mut a = vec![0.0f32; n];
    let rate = |buffers: f64, times: Vec<f64>| buffers * (size_of::<f32>() * n) as f64 / best(times) / 1e9;
    let copy = seconds(1, 5, || {
        a.par_chunks_mut(PEAK_BLOCK).zip(b.par_chunks(PEAK_BLOCK)).for_each(|(a, b)| a.copy_from_slice(b));
        Ok(())
    })?;
    let triad = seconds(1, 5, || {
        let reads = b.par_chunks(PEAK_BLOCK).zip(c.par_chunks(PEAK_BLOCK));
        a.par_chunks_mut(PEAK_BLOCK).zip(reads).for_each(|(a, (b, c))| {
            for ((a, b), c) in a.iter_mut().zip(b).zip(c) {
                *a = b + 3.0 * c;
            }
        });
        Ok(())
    })?;
    let mixed = rate(2.0, copy).max(rate(3.0, triad));
    let read = seconds(1, 5, || {
        black_box(b.par_chunks(PEAK_BLOCK).map(lane_sum).sum::<f32>());
        Ok(())
    })?;
    Ok(MemoryPeak { mixed, read: rate(1.0, read) })
}

/// The same of a run's device. A GPU's are both that of copying within its memory, of buffers that grow to at most `most`
/// elements, until a copy takes a millisecond.
///
/// # Errors
/// A device that refuses.
pub fn memory_peak_on(device: &Device, most: usize) -> anyhow::Result<MemoryPeak> {
    if !cuda::is_gpu(device) {
        return memory_peak(most);
    }
    let mut n = most.min(1 << 20);
    loop {
        let buffer = Tensor::zeros(n, DType::F32, device)?;
        let time = best(seconds_on(device, 1, 5, || Ok(buffer.copy().map(drop)?))?);
        // The last one alone counts: smaller ones may lie in a cache.
        if time >= LONG_ENOUGH || n >= most {
            let rate = 2.0 * (size_of::<f32>() * n) as f64 / time / 1e9;
            return Ok(MemoryPeak { mixed: rate, read: rate });
        }
        n = most.min(2 * n);
    }
}

/// The sum of the elements, in enough independent sums that adding does not hold reading up.
fn lane_sum(elements: &[f32]) -> f32 {
    let mut sums = [0.0; 64];
    for block in elements.chunks(sums.len()) {
        for (sum, element) in sums.iter_mut().zip(block) {
            *sum += element;
        }
    }
    sums.iter().sum()
}

fn best(times: Vec<f64>) -> f64 {
    times.into_iter().fold(f64::INFINITY, f64::min)
}

/// Memory of this process, where the system tells.
#[derive(Debug, Clone, Copy)]
pub(super) enum Resident {
    /// Now.
    Now,
    /// At its highest.
    Peak,
}

/// Bytes of memory that this process holds; `None` where the system does not tell.
pub(super) fn resident_bytes(which: Resident) -> Option<u64> {
    let field = match which {
        Resident::Now => "VmRSS:",
        Resident::Peak => "VmHWM:",
    };
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}
