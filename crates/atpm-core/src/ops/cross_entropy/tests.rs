//! Kernel, reference and finite differences of the fused cross-entropy, held together.

use candle_core::{DType, Device, Tensor, Var};

use super::Precision::F32;
use super::{IGNORE, Options, forward, forward_backward, reference};
use crate::Result;
use crate::testing::{
    Random, assert_close, assert_matches_finite_differences, assert_same_bits,
    assert_same_on_any_thread_count, autograd, gradient_tolerance, layouts, value_tolerance,
};

/// Tokens, width, vocabulary.
const SIZES: &[(usize, usize, usize)] =
    &[(1, 1, 1), (1, 16, 32), (63, 10, 50), (1000, 9, 37), (5, 3, 2100), (0, 8, 16)];
const SCALE: f64 = 0.37;
const OPTIONS: Options = Options { precision: F32, z_loss: 0.02 };

struct Case {
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
}

impl Case {
    /// Every seventh target is ignored.
    fn new((tokens, width, vocabulary): (usize, usize, usize), dtype: DType) -> Result<Self> {
        let mut random = Random::new(51);
        let (x, weight) =
            (random.normal((tokens, width), dtype)?, random.normal((vocabulary, width), dtype)?);
        let target = |token| if token % 7 == 3 { IGNORE } else { random.below(vocabulary) as u32 };
        let targets: Vec<u32> = (0..tokens).map(target).collect();
        Ok(Self { x, weight, targets: Tensor::new(targets, &Device::Cpu)? })
    }

    /// `(losses, dx, dweight)` of the kernel.
    fn run(&self) -> Result<Vec<Tensor>> {
        let dweight = self.weight.zeros_like()?.contiguous()?;
        let (losses, dx) = forward_backward(&self.x, &self.weight, &self.targets, SCALE, OPTIONS, &dweight)?;
        Ok(vec![losses, dx, dweight])
    }
}

/// `scale · Σ (loss + z·lse²)` by the reference.
fn total(x: &Tensor, weight: &Tensor, targets: &Tensor) -> Result<Tensor> {
    let (losses, squares) = reference::forward(x, weight, targets)?;
    Ok(((losses + (squares * OPTIONS.z_loss)?)?.sum_all()? * SCALE)?)
}

#[test]
fn value_and_gradients_equal_the_reference() -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        for &sizes in SIZES {
            let case = Case::new(sizes, dtype)?;
            let (x, weight) = (Var::from_tensor(&case.x)?, Var::from_tensor(&case.weight)?);
            let got = case.run()?;
            let evaluated = forward(&case.x, &case.weight, &case.targets, F32)?;
            assert_same_bits("forward and forward_backward", &evaluated, &got[0]);
            if sizes.0 == 0 {
                assert_eq!(got[0].dims(), [0]);
                continue;
            }
            let want = reference::forward(&x, &weight, &case.targets)?.0;
            assert_close("losses", &got[0], &want, value_tolerance(dtype));
            let total = total(&x, &weight, &case.targets)?;
            let gradients = autograd(&[(&total, &total.ones_like()?)], &[&x, &weight])?;
            // A vocabulary of one has no gradient but rounding, and the z-loss's.
            assert_close("dx", &got[1], &gradients[0], gradient_tolerance(dtype));
            assert_close("dweight", &got[2], &gradients[1], gradient_tolerance(dtype));
        }
    }
    Ok(())
}

#[test]
fn gradients_equal_finite_differences() -> Result<()> {
    let case = Case::new((9, 5, 11), DType::F64)?;
    let got = case.run()?;
    let Case { x, weight, targets } = &case;
    assert_matches_finite_differences("dx", x, &got[1], |x| Ok(total(x, weight, targets)?.to_scalar()?));
    assert_matches_finite_differences("dweight", weight, &got[2], |weight| {
        Ok(total(x, weight, targets)?.to_scalar()?)
    });
    Ok(())
}

#[test]
fn an_ignored_token_has_no_loss_and_no_gradient() -> Result<()> {
    let mut case = Case::new((40, 6, 13), DType::F32)?;
    let got = case.run()?;
    for token in (3..40).step_by(7) {
        assert_eq!(got[0].get(token)?.to_scalar::<f32>()?, 0.0);
        assert_eq!(got[1].get(token)?.to_vec1::<f32>()?, [0.0; 6]);
    }
    case.targets = Tensor::full(IGNORE, 40, &Device::Cpu)?;
    for zero in case.run()? {
        assert_same_bits("all ignored", &zero, &zero.zeros_like()?);
    }
    Ok(())
}

#[test]
fn large_logits_stay_finite() -> Result<()> {
    let x = Tensor::new(&[[1e4f32, -1e4], [3e4, 3e4]], &Device::Cpu)?;
    let weight = Tensor::new(&[[1f32, 0.0], [0.0, 1.0], [-1.0, 0.0]], &Device::Cpu)?;
    let targets = Tensor::new(&[1u32, 0], &Device::Cpu)?;
    let dweight = weight.zeros_like()?;
    let (losses, dx) = forward_backward(&x, &weight, &targets, 1.0, Options::default(), &dweight)?;
    assert_eq!(losses.to_vec1::<f32>()?, [2e4, std::f32::consts::LN_2]);
    assert_eq!(dx.to_vec2::<f32>()?, [[1.0, -1.0], [-0.5, 0.5]]);
    Ok(())
}

// A f32 sum of 100 000 equal terms drifts; the loss of equal logits must be ln V all the same.
#[test]
fn a_large_vocabulary_loses_no_digits() -> Result<()> {
    let x = Tensor::ones((2, 1), DType::F32, &Device::Cpu)?;
    let weight = Tensor::full(0.3f32, (100_003, 1), &Device::Cpu)?;
    let losses = forward(&x, &weight, &Tensor::new(&[7u32, 100_002], &Device::Cpu)?, F32)?;
    let want = Tensor::full(100_003f64.ln(), 2, &Device::Cpu)?;
    assert_close("ln V", &losses, &want, 1e-7);
    Ok(())
}

#[test]
fn the_weight_gradient_is_added() -> Result<()> {
    let case = Case::new((600, 6, 13), DType::F64)?;
    let dweight = case.weight.copy()?;
    forward_backward(&case.x, &case.weight, &case.targets, SCALE, OPTIONS, &dweight)?;
    assert_close("dweight", &dweight, &(&case.weight + &case.run()?[2])?, 1e-14);
    Ok(())
}

// B4: any layout gives what the contiguous one gives.
#[test]
fn layouts_do_not_matter() -> Result<()> {
    let case = Case::new((30, 12, 20), DType::F32)?;
    let want = case.run()?;
    for ((layout, x), (_, weight)) in layouts(&case.x)?.into_iter().zip(layouts(&case.weight)?) {
        for (_, targets) in layouts(&case.targets)? {
            let moved = Case { x: x.clone(), weight: weight.clone(), targets };
            for (got, want) in moved.run()?.iter().zip(&want) {
                assert_same_bits(layout, got, want);
            }
        }
    }
    Ok(())
}

#[test]
fn threads_do_not_matter() -> Result<()> {
    let case = Case::new((700, 48, 300), DType::F32)?;
    assert_same_on_any_thread_count("cross_entropy", || case.run());
    Ok(())
}

// D23: a target outside the vocabulary is an error with its place.
#[test]
fn a_target_outside_the_vocabulary_is_refused() -> Result<()> {
    let mut case = Case::new((3, 2, 5), DType::F32)?;
    case.targets = Tensor::new(&[4u32, IGNORE, 5], &Device::Cpu)?;
    for error in [forward(&case.x, &case.weight, &case.targets, F32).unwrap_err(), case.run().unwrap_err()] {
        assert_eq!(error.to_string(), "cross_entropy: id 5 at position 2 is outside the table of 5 rows");
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_by_name() -> Result<()> {
    let Case { x, weight, targets } = Case::new((3, 2, 5), DType::F32)?;
    let narrow = Tensor::zeros((5, 3), DType::F32, &Device::Cpu)?;
    let signed = targets.to_dtype(DType::I64)?;
    for (got, expected) in [
        (forward(&weight.flatten_all()?, &weight, &targets, F32), "`x` has shape [10], expected [N, D]"),
        (forward(&x, &narrow, &targets, F32), "`weight` has shape [5, 3], expected [V, D] = [5, 2]"),
        (forward(&x, &weight, &targets.get(0)?, F32), "`targets` has shape [], expected [N] = [3]"),
        (forward(&x, &weight, &signed, F32), "dtype I64 is not supported (expected u32 targets)"),
        (
            forward_backward(&x, &weight, &targets, 1.0, OPTIONS, &narrow).map(|(losses, _)| losses),
            "`dweight` has shape [5, 3]",
        ),
    ] {
        let message = got.unwrap_err().to_string();
        assert!(message.starts_with("cross_entropy: ") && message.contains(expected), "{message}");
    }
    Ok(())
}
