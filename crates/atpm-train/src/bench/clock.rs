//! How it is measured: repeats after a warm-up, the machine's matrix-product peak, memory.

use std::time::Instant;

use atpm_core::Precision;
use atpm_core::vector::{Mat, MatMut, matmul};

/// Seconds of each of `repeats` runs, after `warm_up` runs that do not count.
pub(super) fn seconds(
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
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Side of the square product that stands for the peak: far larger than the caches.
pub(super) const PEAK_SIDE: usize = 2048;

/// The best rate of several products in `precision` of `n × n` matrices over the whole pool, in GFLOP/s.
pub(super) fn matmul_peak(n: usize, precision: Precision) -> anyhow::Result<f64> {
    let (a, b) = (vec![0.5f32; n * n], vec![0.25f32; n * n]);
    let mut c = vec![0.0f32; n * n];
    let times = seconds(2, 8, || {
        let into = MatMut::dense(&mut c, n, n);
        matmul(into, 0.0, Mat::dense(&a, n, n), Mat::dense(&b, n, n), precision);
        Ok(())
    })?;
    let best = times.into_iter().fold(f64::INFINITY, f64::min);
    Ok(2.0 * (n as f64).powi(3) / best / 1e9)
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
