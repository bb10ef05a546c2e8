//! The three products against the reference under autograd.

use candle_core::{DType, Device, Tensor, Var};

use super::Precision::F32;
use super::{backward_input, backward_input_add, backward_weight, forward, reference};
use crate::Result;
use crate::testing::{
    Random, assert_close, assert_matches_finite_differences, assert_same_bits,
    assert_same_on_any_thread_count, autograd, gradient_tolerance, layouts, value_tolerance,
};

/// `(rows, K, N)`.
const SHAPES: &[(usize, usize, usize)] = &[(1, 1, 1), (63, 17, 5), (2, 64, 33), (1000, 40, 24)];

fn inputs(rows: usize, k: usize, n: usize, dtype: DType) -> Result<(Tensor, Tensor, Tensor)> {
    let mut random = Random::new(7);
    Ok((random.normal((rows, k), dtype)?, random.normal((n, k), dtype)?, random.normal((rows, n), dtype)?))
}

#[test]
fn value_and_gradients_equal_the_reference() -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        for &(rows, k, n) in SHAPES {
            let (x, weight, dy) = inputs(rows, k, n, dtype)?;
            let (x_var, weight_var) = (Var::from_tensor(&x)?, Var::from_tensor(&weight)?);
            let want = reference::forward(&x_var, &weight_var)?;
            assert_close("y", &forward(&x, &weight, F32)?, &want, value_tolerance(dtype));
            let gradients = autograd(&[(&want, &dy)], &[&x_var, &weight_var])?;
            assert_close("dx", &backward_input(&weight, &dy, F32)?, &gradients[0], gradient_tolerance(dtype));
            let dweight = weight.ones_like()?;
            backward_weight(&x, &dy, &dweight, F32)?;
            assert_close("dW", &(dweight - 1.0)?, &gradients[1], gradient_tolerance(dtype));
            let dx = x.ones_like()?;
            backward_input_add(&weight, &dy, &dx, F32)?;
            assert_close("dx added", &(dx - 1.0)?, &gradients[0], gradient_tolerance(dtype));
        }
    }
    Ok(())
}

#[test]
fn gradients_equal_finite_differences() -> Result<()> {
    let (x, weight, dy) = inputs(5, 7, 3, DType::F64)?;
    let dweight = weight.zeros_like()?;
    backward_weight(&x, &dy, &dweight, F32)?;
    let loss = |x: &Tensor, weight: &Tensor| Ok((forward(x, weight, F32)? * &dy)?.sum_all()?.to_scalar()?);
    assert_matches_finite_differences("dx", &x, &backward_input(&weight, &dy, F32)?, |x| loss(x, &weight));
    assert_matches_finite_differences("dW", &weight, &dweight, |weight| loss(&x, weight));
    Ok(())
}

#[test]
fn no_rows_are_legal() -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        let (x, weight, dy) = inputs(0, 5, 3, dtype)?;
        assert_eq!(forward(&x, &weight, F32)?.dims(), [0, 3]);
        assert_eq!(backward_input(&weight, &dy, F32)?.dims(), [0, 5]);
        let dweight = weight.copy()?;
        backward_weight(&x, &dy, &dweight, F32)?;
        assert_same_bits("dW", &dweight, &weight);
    }
    Ok(())
}

// B4: any layout gives what the contiguous one gives.
#[test]
fn layouts_do_not_matter() -> Result<()> {
    let (x, weight, dy) = inputs(12, 6, 8, DType::F32)?;
    let (y, dx) = (forward(&x, &weight, F32)?, backward_input(&weight, &dy, F32)?);
    for ((layout, x), (_, dy)) in layouts(&x)?.into_iter().zip(layouts(&dy)?) {
        assert_same_bits(layout, &forward(&x, &weight, F32)?, &y);
        assert_same_bits(layout, &backward_input(&weight, &dy, F32)?, &dx);
    }
    Ok(())
}

#[test]
fn threads_do_not_matter() -> Result<()> {
    let (x, weight, dy) = inputs(1000, 512, 384, DType::F32)?;
    assert_same_on_any_thread_count("linear", || {
        let dweight = weight.zeros_like()?;
        backward_weight(&x, &dy, &dweight, F32)?;
        Ok(vec![forward(&x, &weight, F32)?, backward_input(&weight, &dy, F32)?, dweight])
    });
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_by_name() -> Result<()> {
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu);
    let message = forward(&zeros(&[4, 5])?, &zeros(&[3, 6])?, F32).unwrap_err().to_string();
    assert!(message.contains("linear: `x` has shape [4, 5], expected [.., 6]"), "{message}");
    let message =
        backward_weight(&zeros(&[4, 6])?, &zeros(&[5, 3])?, &zeros(&[3, 6])?, F32).unwrap_err().to_string();
    assert!(message.contains("linear: `dy` has shape [5, 3]"), "{message}");
    Ok(())
}
