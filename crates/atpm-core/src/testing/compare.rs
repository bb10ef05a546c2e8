//! Comparing tensors: relative RMS error with a tolerance by dtype, or bit for bit.

use candle_core::{DType, Tensor};

use crate::{Error, Result};

/// Relative RMS error allowed for a value: 1e-10 in f64, 1e-5 in f32, 5e-3 in half precision.
pub fn value_tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-10,
        DType::F32 => 1e-5,
        _ => 5e-3,
    }
}

/// Relative RMS error allowed for a gradient: 1e-10 in f64, 1e-4 in f32, 8e-3 in half precision.
pub fn gradient_tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-10,
        DType::F32 => 1e-4,
        _ => 8e-3,
    }
}

/// `rms(got − want) / rms(want)`, over all elements in f64; `rms(got)` where `want` is all zero.
///
/// # Errors
/// Another dtype than f32, f64 or half precision.
pub fn relative_rms_error(got: &Tensor, want: &Tensor) -> Result<f64> {
    let (got, want) = (values(got)?, values(want)?);
    let square = |sum: f64, x: f64| x.mul_add(x, sum);
    let difference = got.iter().zip(&want).map(|(&g, &w)| g - w).fold(0.0, square);
    let size = want.iter().copied().fold(0.0, square);
    let scale = if size > 0.0 { size } else { want.len().max(1) as f64 };
    Ok((difference / scale).sqrt())
}

/// Asserts equal shapes and a relative RMS error of at most `tolerance`; a NaN anywhere fails.
///
/// # Panics
/// If they differ by more.
#[track_caller]
pub fn assert_close(name: &str, got: &Tensor, want: &Tensor, tolerance: f64) {
    assert_eq!(got.dims(), want.dims(), "{name}: shapes differ");
    match relative_rms_error(got, want) {
        Ok(error) => assert!(
            error <= tolerance,
            "{name} {:?}: relative RMS error {error:.3e} is above {tolerance:.1e}",
            got.dims()
        ),
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Asserts equal shapes, dtypes and bits.
///
/// # Panics
/// If a bit differs.
#[track_caller]
pub fn assert_same_bits(name: &str, got: &Tensor, want: &Tensor) {
    assert_eq!((got.dims(), got.dtype()), (want.dims(), want.dtype()), "{name}: shape or dtype differs");
    match (values(got), values(want)) {
        (Ok(got), Ok(want)) => {
            let differs = got.iter().zip(&want).position(|(g, w)| g.to_bits() != w.to_bits());
            if let Some(at) = differs {
                panic!("{name}: element {at} is {:?}, expected {:?} to the bit", got[at], want[at]);
            }
        }
        (Err(error), _) | (_, Err(error)) => panic!("{name}: {error}"),
    }
}

/// Runs `compute` in pools of one and of several threads and asserts the same bits from each.
///
/// # Panics
/// If a bit differs, `compute` fails, or no pool can be made.
#[track_caller]
pub fn assert_same_on_any_thread_count(name: &str, compute: impl Fn() -> Result<Vec<Tensor>> + Sync) {
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.unwrap_or_else(|error| panic!("{name}: no pool of {threads} threads: {error}"));
        pool.install(&compute).unwrap_or_else(|error| panic!("{name} with {threads} threads: {error}"))
    };
    let want = run(1);
    for threads in [2, 5] {
        for (index, (got, want)) in run(threads).iter().zip(&want).enumerate() {
            assert_same_bits(&format!("{name}, output {index}, {threads} threads"), got, want);
        }
    }
}

/// All elements in row-major order, widened to f64.
pub(super) fn values(tensor: &Tensor) -> Result<Vec<f64>> {
    if !tensor.dtype().is_float() {
        let got = format!("{:?}", tensor.dtype());
        return Err(Error::Dtype { op: "compare", got, expected: "a floating-point dtype" });
    }
    Ok(tensor.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    fn tensor(values: &[f64]) -> Tensor {
        Tensor::new(values, &Device::Cpu).unwrap()
    }

    #[test]
    fn relative_error_of_known_vectors() {
        let error = relative_rms_error(&tensor(&[3.0, 4.5]), &tensor(&[3.0, 4.0])).unwrap();
        assert!((error - 0.1).abs() < 1e-15);
        assert_eq!(relative_rms_error(&tensor(&[2.0, 2.0]), &tensor(&[0.0, 0.0])).unwrap(), 2.0);
    }

    #[test]
    #[should_panic(expected = "relative RMS error NaN")]
    fn a_nan_is_never_close() {
        assert_close("x", &tensor(&[f64::NAN]), &tensor(&[1.0]), 1e30);
    }

    #[test]
    #[should_panic(expected = "element 1")]
    fn the_sign_of_zero_is_a_bit() {
        assert_same_bits("x", &tensor(&[1.0, -0.0]), &tensor(&[1.0, 0.0]));
    }
}
