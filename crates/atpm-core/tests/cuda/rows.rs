//! Ops whose rows are independent.

use atpm_core::Result;
use atpm_core::ops::{gated_norm, rms_norm, swiglu};
use atpm_core::testing::Random;
use candle_core::{DType, Tensor};

use crate::{assert_refused, assert_same_as_cpu, has_empty_tensors, put, put_optional};

const EPS: f64 = 1e-5;
/// Shapes whose rows fill no block, one block and several; the last number is the width.
const SHAPES: &[&[usize]] = &[&[2], &[1, 16], &[7, 40], &[3, 21, 34], &[65, 130], &[300, 64], &[3, 5216]];

#[test]
fn rms_norm_launches() -> Result<()> {
    for &shape in SHAPES {
        let mut random = Random::new(11);
        let x = random.normal(shape, DType::F32)?;
        let (dy, residual) = (random.normal(shape, DType::F32)?, random.normal(shape, DType::F32)?);
        let weight = random.uniform(0.5, 1.5, shape[shape.len() - 1], DType::F32)?;
        for residual in [None, Some(&residual)] {
            let kernels = ["rms_norm_forward_f32", "rms_norm_backward_f32", "add_partials"];
            assert_same_as_cpu(&format!("rms_norm {shape:?}"), &kernels, || {
                let ([x, weight, dy], residual) = (put([&x, &weight, &dy])?, put_optional(residual)?);
                let y = rms_norm::forward(&x, &weight, EPS)?;
                // Not zero: the gradient is added.
                let dweight = weight.copy()?;
                let dx = rms_norm::backward(&x, &weight, EPS, &dy, residual.as_ref(), &dweight)?;
                Ok(vec![("y", y), ("dx", dx), ("dweight", dweight)])
            });
        }
    }
    Ok(())
}

#[test]
fn gated_norm_launches() -> Result<()> {
    for &shape in SHAPES {
        for heads in [1, 3] {
            let width = shape[shape.len() - 1];
            let mut random = Random::new(12);
            let shape = [&shape[..shape.len() - 1], &[heads * width]].concat();
            let mut normal = || random.normal(shape.as_slice(), DType::F32);
            let (y, gate, dout) = (normal()?, normal()?, normal()?);
            let weight = random.uniform(0.5, 1.5, width, DType::F32)?;
            let forward = "gated_norm_forward_f32";
            let kernels = [forward, "gated_norm_backward_f32", "add_partials", forward];
            assert_same_as_cpu(&format!("gated_norm {shape:?}"), &kernels, || {
                let [y, gate, dout, weight] = put([&y, &gate, &dout, &weight])?;
                let out = gated_norm::forward(&y, &gate, &weight, EPS)?;
                let dweight = weight.copy()?;
                let (dy, dgate, again) = gated_norm::backward(&y, &gate, &weight, EPS, &dout, &dweight)?;
                Ok(vec![("out", out), ("dy", dy), ("dgate", dgate), ("dweight", dweight), ("again", again)])
            });
        }
    }
    Ok(())
}

#[test]
fn swiglu_launches() -> Result<()> {
    for (rows, width) in [(1, 2), (7, 510), (7, 512), (3, 514), (130, 36), (2, 1408)] {
        let mut random = Random::new(13);
        let (x, dout) =
            (random.normal((rows, 2 * width), DType::F32)?, random.normal((rows, width), DType::F32)?);
        let kernels = ["swiglu_forward_f32", "swiglu_backward_f32", "swiglu_forward_f32"];
        assert_same_as_cpu(&format!("swiglu [{rows}, {width}]"), &kernels, || {
            let [x, dout] = put([&x, &dout])?;
            let out = swiglu::forward(&x)?;
            let (dx, again) = swiglu::backward(&x, &dout)?;
            Ok(vec![("out", out), ("dx", dx), ("out of backward", again)])
        });
    }
    Ok(())
}

#[test]
fn no_rows_launch_only_the_empty_sum() -> Result<()> {
    if !has_empty_tensors() {
        return Ok(());
    }
    let (x, weight) = (Random::new(1).normal((0, 8), DType::F32)?, Random::new(2).normal(8, DType::F32)?);
    assert_same_as_cpu("rms_norm of no rows", &["add_partials"], || {
        let [x, weight] = put([&x, &weight])?;
        let (y, dweight) = (rms_norm::forward(&x, &weight, EPS)?, weight.copy()?);
        let dx = rms_norm::backward(&x, &weight, EPS, &x, None, &dweight)?;
        Ok(vec![("y", y), ("dx", dx), ("dweight", dweight)])
    });
    Ok(())
}

#[test]
fn a_transposed_input_is_read_in_its_order() -> Result<()> {
    let x = Random::new(3).normal((6, 9), DType::F32)?.t()?;
    let weight = Tensor::ones(6, DType::F32, x.device())?;
    assert_same_as_cpu("rms_norm transposed", &["rms_norm_forward_f32"], || {
        let [x, weight] = put([&x, &weight])?;
        Ok(vec![("y", rms_norm::forward(&x, &weight, EPS)?)])
    });
    Ok(())
}

#[test]
fn widths_that_the_kernels_do_not_take_are_refused() -> Result<()> {
    let row = |width: usize| Random::new(4).normal((2, width), DType::F32);
    let (odd, wide) = (row(7)?, row(5218)?);
    let double = row(8)?.to_dtype(DType::F64)?;
    assert_refused("rms_norm: on CUDA the width of a row must be even, got 7", || {
        let [odd] = put([&odd])?;
        rms_norm::forward(&odd, &odd.get(0)?, EPS)
    });
    assert_refused("rms_norm: on CUDA a row has at most 5216 columns, got 5218", || {
        let [wide] = put([&wide])?;
        rms_norm::forward(&wide, &wide.get(0)?, EPS)
    });
    assert_refused("swiglu: on CUDA F must be even, got 7", || {
        let [x] = put([&row(14)?])?;
        swiglu::forward(&x)
    });
    assert_refused("rms_norm: dtype F64 is not supported (expected f32 on CUDA", || {
        let [double] = put([&double])?;
        rms_norm::forward(&double, &double.get(0)?, EPS)
    });
    Ok(())
}
