//! Kernel, reference and finite differences of SwiGLU, held together.

use candle_core::{DType, Device, Tensor, Var};

use super::{backward, forward, reference};
use crate::Result;
use crate::testing::{
    Random, assert_close, assert_matches_finite_differences, assert_same_bits,
    assert_same_on_any_thread_count, autograd, gradient_tolerance, layouts, value_tolerance,
};

/// Shapes of `x`; the last number is `2F`.
const SHAPES: &[&[usize]] = &[&[2], &[1, 32], &[63, 46], &[2, 3, 5, 8], &[1000, 34], &[0, 8]];

fn inputs(shape: &[usize], dtype: DType) -> Result<(Tensor, Tensor)> {
    let mut random = Random::new(21);
    let x = (random.normal(shape, dtype)? * 3.0)?;
    let mut half = shape.to_vec();
    half[shape.len() - 1] /= 2;
    Ok((x, random.normal(half, dtype)?))
}

#[test]
fn value_and_gradient_equal_the_reference() -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        for shape in SHAPES {
            let (x, dout) = inputs(shape, dtype)?;
            let variable = Var::from_tensor(&x)?;
            let want = reference::forward(&variable)?;
            assert_close("out", &forward(&x)?, &want, value_tolerance(dtype));
            let (dx, again) = backward(&x, &dout)?;
            assert_same_bits("out of backward", &again, &forward(&x)?);
            if x.elem_count() > 0 {
                let gradients = autograd(&[(&want, &dout)], &[&variable])?;
                assert_close("dx", &dx, &gradients[0], gradient_tolerance(dtype));
            }
        }
    }
    Ok(())
}

#[test]
fn gradient_equals_finite_differences() -> Result<()> {
    let (x, dout) = inputs(&[4, 10], DType::F64)?;
    let (dx, _) = backward(&x, &dout)?;
    assert_matches_finite_differences("dx", &x, &dx, |x| {
        Ok((forward(x)? * &dout)?.sum_all()?.to_scalar()?)
    });
    Ok(())
}

// B4: any layout gives what the contiguous one gives.
#[test]
fn layouts_do_not_matter() -> Result<()> {
    let (x, dout) = inputs(&[5, 3, 12], DType::F32)?;
    let (out, (dx, _)) = (forward(&x)?, backward(&x, &dout)?);
    for ((layout, x), (_, dout)) in layouts(&x)?.into_iter().zip(layouts(&dout)?) {
        assert_same_bits(layout, &forward(&x)?, &out);
        assert_same_bits(layout, &backward(&x, &dout)?.0, &dx);
    }
    Ok(())
}

#[test]
fn threads_do_not_matter() -> Result<()> {
    let (x, dout) = inputs(&[1000, 96], DType::F32)?;
    assert_same_on_any_thread_count("swiglu", || Ok(vec![forward(&x)?, backward(&x, &dout)?.0]));
    Ok(())
}

#[test]
fn extreme_gates_stay_finite() -> Result<()> {
    let x = Tensor::new(&[[-1e30f32, 1.0], [-200.0, 1.0], [200.0, 1.0], [1e30, 1.0]], &Device::Cpu)?;
    let out = forward(&x)?.flatten_all()?.to_vec1::<f32>()?;
    assert_eq!(out, [0.0, 0.0, 200.0, 1e30]);
    let (dx, _) = backward(&x, &Tensor::ones((4, 1), DType::F32, &Device::Cpu)?)?;
    assert_eq!(dx.to_vec2::<f32>()?, [[0.0, 0.0], [0.0, 0.0], [1.0, 200.0], [1.0, 1e30]]);
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_by_name() -> Result<()> {
    let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, &Device::Cpu);
    let x = zeros(&[4, 8], DType::F32)?;
    for (got, expected) in [
        (forward(&zeros(&[4, 7], DType::F32)?), "swiglu: `x` has shape [4, 7], expected [.., 2F]"),
        (forward(&zeros(&[], DType::F32)?), "swiglu: `x` has shape []"),
        (forward(&zeros(&[4, 8], DType::F16)?), "swiglu: dtype F16 is not supported"),
        (
            backward(&x, &zeros(&[4, 3], DType::F32)?).map(|(dx, _)| dx),
            "swiglu: `dout` has shape [4, 3], expected [.., F] = [4, 4]",
        ),
    ] {
        let message = got.unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    Ok(())
}
