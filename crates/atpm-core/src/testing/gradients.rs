//! Gradients two ways that share nothing with a written backward: candle's autograd over a
//! reference, and finite differences in f64.

use candle_core::{DType, Device, Tensor, Var};

use super::compare::{assert_close, values};
use crate::{Error, Result};

/// Entries that a finite-difference check looks at, at most; larger tensors are sampled evenly.
const CHECKED_ENTRIES: usize = 48;

/// Relative RMS error allowed between a written gradient and finite differences in f64.
const FINITE_DIFFERENCE_TOLERANCE: f64 = 1e-7;

/// Gradients of `Σ output·seed` over all `(output, seed)` pairs, one for each variable, by candle's
/// autograd.
///
/// # Errors
/// A variable that the outputs do not depend on: a reference whose gradient stops is a broken
/// reference.
pub fn autograd(outputs: &[(&Tensor, &Tensor)], variables: &[&Var]) -> Result<Vec<Tensor>> {
    let mut total = Tensor::zeros((), DType::F64, &Device::Cpu)?;
    for (output, seed) in outputs {
        total = (total + (*output * *seed)?.sum_all()?.to_dtype(DType::F64)?)?;
    }
    let gradients = total.backward()?;
    let of = |(index, variable): (usize, &&Var)| {
        gradients.get(variable.as_tensor()).cloned().ok_or_else(|| Error::Argument {
            op: "autograd",
            problem: format!("no gradient reaches variable {index}, shape {:?}", variable.dims()),
        })
    };
    variables.iter().enumerate().map(of).collect()
}

/// Asserts that `gradient` is the gradient of `value` at `point` (f64), by central differences of
/// fourth order on up to 48 entries.
///
/// # Panics
/// If they disagree, or `value` fails.
#[track_caller]
pub fn assert_matches_finite_differences(
    name: &str,
    point: &Tensor,
    gradient: &Tensor,
    value: impl Fn(&Tensor) -> Result<f64>,
) {
    assert_eq!(point.dims(), gradient.dims(), "{name}: shapes differ");
    match differences(point, gradient, value) {
        Ok((got, want)) => {
            assert_close(&format!("{name} by finite differences"), &got, &want, FINITE_DIFFERENCE_TOLERANCE);
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

/// The checked entries of `gradient`, and the difference quotients at the same places.
fn differences(
    point: &Tensor,
    gradient: &Tensor,
    value: impl Fn(&Tensor) -> Result<f64>,
) -> Result<(Tensor, Tensor)> {
    let (point, shape, gradient) = (values(point)?, point.shape().clone(), values(gradient)?);
    let stride = point.len().div_ceil(CHECKED_ENTRIES).max(1);
    let (mut written, mut measured) = (Vec::new(), Vec::new());
    for entry in (0..point.len()).step_by(stride) {
        let step = 1e-3 * point[entry].abs().max(1.0);
        let at = |offset: f64| {
            let mut moved = point.clone();
            moved[entry] += offset;
            value(&Tensor::from_vec(moved, shape.clone(), &Device::Cpu)?)
        };
        let near = at(step)? - at(-step)?;
        let far = at(2.0 * step)? - at(-2.0 * step)?;
        measured.push((8.0 * near - far) / (12.0 * step));
        written.push(gradient[entry]);
    }
    Ok((Tensor::new(written, &Device::Cpu)?, Tensor::new(measured, &Device::Cpu)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn cubes(x: &Tensor) -> Result<f64> {
        Ok((x.sqr()? * x)?.sum_all()?.to_scalar::<f64>()?)
    }

    #[test]
    fn finite_differences_and_autograd_agree_on_cubes() -> Result<()> {
        let x = Var::from_tensor(&Random::new(1).normal((3, 5), DType::F64)?)?;
        let cube = (x.sqr()? * x.as_tensor())?;
        let gradients = autograd(&[(&cube, &cube.ones_like()?)], &[&x])?;
        assert_matches_finite_differences("x", x.as_tensor(), &gradients[0], cubes);
        Ok(())
    }

    #[test]
    #[should_panic(expected = "by finite differences")]
    fn a_wrong_gradient_is_caught() {
        let x = Random::new(2).normal(4, DType::F64).unwrap();
        let wrong = (x.sqr().unwrap() * 2.999).unwrap();
        assert_matches_finite_differences("x", &x, &wrong, cubes);
    }

    // B1: a gradient that stops is an error that names the variable.
    #[test]
    fn autograd_refuses_a_missing_gradient() {
        let x = Var::from_tensor(&Random::new(3).normal(4, DType::F64).unwrap()).unwrap();
        let cut = x.detach();
        let error = autograd(&[(&cut, &cut)], &[&x]).unwrap_err();
        assert!(error.to_string().contains("no gradient reaches variable 0"), "{error}");
    }
}
