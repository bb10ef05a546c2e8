//! How it is measured: repeats after a warm-up, the machine's peaks (matrix products, memory), memory used.

use std::hint::black_box;
use std::time::Instant;

use atpm_core::ops::linear;
use atpm_core::vector::{Mat, MatMut, matmul};
use atpm_core::{Precision, cuda};
use candle_core::{DType, Device, Tensor};
use rayon::prelude::*;
use serde::Serialize;

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

/// The middle one; the upper of the two middle ones of an even number.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// What the machine's peaks are measured on.
#[derive(Debug, Clone, Copy)]
pub struct PeakSizes {
    /// Side of the square matrices that are multiplied.
    pub side: usize,
    /// Elements of each buffer that is moved.
    pub elements: usize,
}

impl PeakSizes {
    /// Far larger than the caches: 16 MiB a matrix, 256 MiB a buffer.
    pub const BEYOND_CACHES: Self = Self { side: 2048, elements: 64 << 20 };
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

/// The same of a run's device: the pool, or a GPU with all its launches waited for.
///
/// # Errors
/// A device that refuses.
pub fn matmul_peak_on(device: &Device, n: usize, precision: Precision) -> anyhow::Result<f64> {
    if !cuda::is_gpu(device) {
        return matmul_peak(n, precision);
    }
    let [a, b] = [(); 2].map(|()| Tensor::zeros((n, n), DType::F32, device));
    let (a, b) = (a?, b?);
    let times = seconds(2, 8, || {
        linear::forward(&a, &b, precision)?;
        Ok(device.synchronize()?)
    })?;
    Ok(2.0 * (n as f64).powi(3) / best(times) / 1e9)
}

/// Elements that a thread moves at a time.
const PEAK_BLOCK: usize = 1 << 18;

/// The best rates of the whole pool over memory, in GB/s. Each value counts once for being read and once for being
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

/// The best rate of reading in GB/s, or of copying within a GPU's memory, which counts twice.
///
/// # Errors
/// A device that refuses.
pub fn reading_peak_on(device: &Device, n: usize) -> anyhow::Result<f64> {
    if !cuda::is_gpu(device) {
        return Ok(memory_peak(n)?.read);
    }
    let buffer = Tensor::zeros(n, DType::F32, device)?;
    let times = seconds(1, 5, || {
        buffer.copy()?;
        Ok(device.synchronize()?)
    })?;
    Ok(2.0 * (size_of::<f32>() * n) as f64 / best(times) / 1e9)
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
