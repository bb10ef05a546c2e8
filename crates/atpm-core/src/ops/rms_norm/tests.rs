//! Kernel, reference and finite differences of RMSNorm, held together.

use candle_core::{DType, Device, Tensor, Var};

use super::{backward, forward, reference};
use crate::Result;
use crate::testing::{
    Random, assert_close, assert_matches_finite_differences, assert_same_bits,
    assert_same_on_any_thread_count, autograd, gradient_tolerance, layouts, value_tolerance,
};

const EPS: f64 = 1e-5;

/// Shapes of `x`; the last number is the width.
const SHAPES: &[&[usize]] =
    &[&[1], &[1, 1], &[1, 16], &[63, 40], &[2, 5, 7], &[1000, 33], &[3, 1030], &[0, 8]];

struct Case {
    x: Tensor,
    weight: Tensor,
    dy: Tensor,
    residual: Tensor,
}

impl Case {
    fn new(shape: &[usize], dtype: DType) -> Result<Self> {
        let mut random = Random::new(11);
        Ok(Self {
            x: random.normal(shape, dtype)?,
            weight: random.uniform(0.5, 1.5, shape[shape.len() - 1], dtype)?,
            dy: random.normal(shape, dtype)?,
            residual: random.normal(shape, dtype)?,
        })
    }

    /// `(y, dx, dweight)` of the kernel, with the residual's gradient added to `dx`.
    fn run(&self) -> Result<Vec<Tensor>> {
        let y = forward(&self.x, &self.weight, EPS)?;
        let dweight = self.weight.zeros_like()?;
        let dx = backward(&self.x, &self.weight, EPS, &self.dy, Some(&self.residual), &dweight)?;
        Ok(vec![y, dx, dweight])
    }
}

#[test]
fn value_and_gradients_equal_the_reference() -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        for shape in SHAPES {
            let case = Case::new(shape, dtype)?;
            let (x, weight) = (Var::from_tensor(&case.x)?, Var::from_tensor(&case.weight)?);
            let want = reference::forward(&x, &weight, EPS)?;
            let got = case.run()?;
            assert_close("y", &got[0], &want, value_tolerance(dtype));
            if case.x.elem_count() > 0 {
                let gradients = autograd(&[(&want, &case.dy)], &[&x, &weight])?;
                let dx = (&gradients[0] + &case.residual)?;
                assert_close("dx", &got[1], &dx, gradient_tolerance(dtype));
                assert_close("dweight", &got[2], &gradients[1], gradient_tolerance(dtype));
            }
        }
    }
    Ok(())
}

#[test]
fn gradients_equal_finite_differences() -> Result<()> {
    let case = Case::new(&[3, 17], DType::F64)?;
    let got = case.run()?;
    let loss = |x: &Tensor, weight: &Tensor| -> Result<f64> {
        let through = (reference::forward(x, weight, EPS)? * &case.dy)?.sum_all()?;
        Ok((through + (x * &case.residual)?.sum_all()?)?.to_scalar()?)
    };
    assert_matches_finite_differences("dx", &case.x, &got[1], |x| loss(x, &case.weight));
    assert_matches_finite_differences("dweight", &case.weight, &got[2], |weight| loss(&case.x, weight));
    Ok(())
}

#[test]
fn the_weight_gradient_is_added_and_the_residual_optional() -> Result<()> {
    let case = Case::new(&[40, 24], DType::F64)?;
    let dweight = case.weight.copy()?;
    let dx = backward(&case.x, &case.weight, EPS, &case.dy, None, &dweight)?;
    let got = case.run()?;
    assert_close("dx", &(dx + &case.residual)?, &got[1], 1e-14);
    assert_close("dweight", &dweight, &(&case.weight + &got[2])?, 1e-14);
    Ok(())
}

// B4: any layout gives what the contiguous one gives.
#[test]
fn layouts_do_not_matter() -> Result<()> {
    let case = Case::new(&[5, 3, 12], DType::F32)?;
    let want = case.run()?;
    for (layout, x) in layouts(&case.x)? {
        for (_, weight) in layouts(&case.weight)? {
            let case = Case {
                x: x.clone(),
                weight,
                dy: same_layout(layout, &case.dy)?,
                ..Case::new(&[5, 3, 12], DType::F32)?
            };
            for (got, want) in case.run()?.iter().zip(&want) {
                assert_same_bits(layout, got, want);
            }
        }
    }
    Ok(())
}

fn same_layout(layout: &str, tensor: &Tensor) -> Result<Tensor> {
    Ok(layouts(tensor)?.into_iter().find(|(name, _)| *name == layout).map_or(tensor.clone(), |(_, t)| t))
}

#[test]
fn threads_do_not_matter() -> Result<()> {
    let case = Case::new(&[1000, 96], DType::F32)?;
    assert_same_on_any_thread_count("rms_norm", || case.run());
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_by_name() -> Result<()> {
    let case = Case::new(&[4, 8], DType::F32)?;
    let wrong = Tensor::zeros(7, DType::F32, &Device::Cpu)?;
    let double = case.weight.to_dtype(DType::F64)?;
    for (got, expected) in [
        (forward(&case.x, &wrong, EPS), "rms_norm: `weight` has shape [7], expected [D] = [8]"),
        (forward(&case.x, &double, EPS), "rms_norm: dtype F64 is not supported"),
        (backward(&case.x, &case.weight, EPS, &wrong, None, &case.weight), "`dy` has shape [7]"),
        (backward(&case.x, &case.weight, EPS, &case.dy, None, &wrong), "`dweight` has shape [7]"),
    ] {
        let message = got.unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    Ok(())
}
