//! Kernel, reference and finite differences of the gated norm, held together.

use candle_core::{DType, Device, Tensor, Var};

use super::{backward, forward, reference};
use crate::Result;
use crate::testing::{
    Random, assert_close, assert_matches_finite_differences, assert_same_bits,
    assert_same_on_any_thread_count, autograd, gradient_tolerance, layouts, value_tolerance,
};

const EPS: f64 = 1e-5;

/// Shapes of `y`, and `D`.
const CASES: &[(&[usize], usize)] =
    &[(&[3], 3), (&[1, 32], 16), (&[63, 51], 17), (&[2, 5, 24], 8), (&[1000, 30], 10), (&[0, 8], 4)];

struct Case {
    y: Tensor,
    gate: Tensor,
    weight: Tensor,
    dout: Tensor,
}

impl Case {
    fn new(shape: &[usize], width: usize, dtype: DType) -> Result<Self> {
        let mut random = Random::new(31);
        Ok(Self {
            y: random.normal(shape, dtype)?,
            gate: (random.normal(shape, dtype)? * 2.0)?,
            weight: random.uniform(0.5, 1.5, width, dtype)?,
            dout: random.normal(shape, dtype)?,
        })
    }

    /// `(out, dy, dgate, dweight)` of the kernel.
    fn run(&self) -> Result<Vec<Tensor>> {
        let out = forward(&self.y, &self.gate, &self.weight, EPS)?;
        let dweight = self.weight.zeros_like()?;
        let (dy, dgate, again) = backward(&self.y, &self.gate, &self.weight, EPS, &self.dout, &dweight)?;
        assert_same_bits("out of backward", &again, &forward(&self.y, &self.gate, &self.weight, EPS)?);
        Ok(vec![out, dy, dgate, dweight])
    }
}

#[test]
fn value_and_gradients_equal_the_reference() -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        for &(shape, width) in CASES {
            let case = Case::new(shape, width, dtype)?;
            let y = Var::from_tensor(&case.y)?;
            let gate = Var::from_tensor(&case.gate)?;
            let weight = Var::from_tensor(&case.weight)?;
            let want = reference::forward(&y, &gate, &weight, EPS)?;
            let got = case.run()?;
            assert_close("out", &got[0], &want, value_tolerance(dtype));
            if case.y.elem_count() > 0 {
                let gradients = autograd(&[(&want, &case.dout)], &[&y, &gate, &weight])?;
                for ((name, got), want) in ["dy", "dgate", "dweight"].iter().zip(&got[1..]).zip(&gradients) {
                    assert_close(name, got, want, gradient_tolerance(dtype));
                }
            }
        }
    }
    Ok(())
}

#[test]
fn gradients_equal_finite_differences() -> Result<()> {
    let case = Case::new(&[3, 14], 7, DType::F64)?;
    let got = case.run()?;
    let loss = |y: &Tensor, gate: &Tensor, weight: &Tensor| -> Result<f64> {
        Ok((forward(y, gate, weight, EPS)? * &case.dout)?.sum_all()?.to_scalar()?)
    };
    let Case { y, gate, weight, .. } = &case;
    assert_matches_finite_differences("dy", y, &got[1], |y| loss(y, gate, weight));
    assert_matches_finite_differences("dgate", gate, &got[2], |gate| loss(y, gate, weight));
    assert_matches_finite_differences("dweight", weight, &got[3], |weight| loss(y, gate, weight));
    Ok(())
}

#[test]
fn the_weight_gradient_is_added() -> Result<()> {
    let case = Case::new(&[40, 24], 8, DType::F64)?;
    let dweight = case.weight.copy()?;
    backward(&case.y, &case.gate, &case.weight, EPS, &case.dout, &dweight)?;
    assert_close("dweight", &dweight, &(&case.weight + &case.run()?[3])?, 1e-14);
    Ok(())
}

// B4: any layout gives what the contiguous one gives.
#[test]
fn layouts_do_not_matter() -> Result<()> {
    let case = Case::new(&[5, 3, 12], 6, DType::F32)?;
    let want = case.run()?;
    for index in 0..4 {
        let pick = |tensor: &Tensor| -> Result<Tensor> {
            let all = layouts(tensor)?;
            Ok(all[index.min(all.len() - 1)].1.clone())
        };
        let [y, gate, weight, dout] = [&case.y, &case.gate, &case.weight, &case.dout].map(pick);
        let moved = Case { y: y?, gate: gate?, weight: weight?, dout: dout? };
        for (got, want) in moved.run()?.iter().zip(&want) {
            assert_same_bits("moved", got, want);
        }
    }
    Ok(())
}

#[test]
fn threads_do_not_matter() -> Result<()> {
    let case = Case::new(&[1000, 96], 32, DType::F32)?;
    assert_same_on_any_thread_count("gated_norm", || case.run());
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_by_name() -> Result<()> {
    let case = Case::new(&[4, 8], 4, DType::F32)?;
    let wrong = Tensor::zeros(3, DType::F32, &Device::Cpu)?;
    for (got, expected) in [
        (forward(&case.y, &case.gate, &wrong, EPS), "gated_norm: `y` has shape [4, 8], expected [.., H·D]"),
        (forward(&case.y, &wrong, &case.weight, EPS), "gated_norm: `gate` has shape [3]"),
        (forward(&case.y, &case.gate, &case.y, EPS), "gated_norm: `weight` has shape [4, 8], expected [D]"),
        (
            backward(&case.y, &case.gate, &case.weight, EPS, &case.dout, &wrong).map(|(dy, ..)| dy),
            "gated_norm: `dweight` has shape [3]",
        ),
    ] {
        let message = got.unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    Ok(())
}
