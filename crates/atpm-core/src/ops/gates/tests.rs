//! Kernel, reference and finite differences of the gates, held together.

use candle_core::{DType, Device, Tensor, Var};

use super::{MAX_DECAY, Pins, backward, forward, reference};
use crate::Result;
use crate::testing::{
    Random, assert_close, assert_matches_finite_differences, assert_same_bits,
    assert_same_on_any_thread_count, autograd, gradient_tolerance, layouts, value_tolerance,
};

/// B, T, H; the head counts are no multiple of a vector.
const SIZES: &[(usize, usize, usize)] = &[(1, 1, 1), (2, 63, 5), (1, 1000, 3), (1, 7, 17), (2, 0, 4)];

const PINS: [Pins; 4] = [
    Pins { rho: None, lambda: None, tie_beta: false },
    Pins { rho: Some(0.0), lambda: None, tie_beta: false },
    Pins { rho: None, lambda: Some(1.0), tie_beta: true },
    Pins { rho: Some(0.25), lambda: Some(0.0), tie_beta: true },
];

struct Case {
    /// logits, a_log, dt_bias, bias
    inputs: [Tensor; 4],
    dcontrols: Tensor,
    pins: Pins,
}

impl Case {
    fn new((batch, tokens, heads): (usize, usize, usize), pins: Pins, dtype: DType) -> Result<Self> {
        let mut random = Random::new(71);
        let shape = (batch, tokens, 5, heads);
        Ok(Self {
            inputs: [
                (random.normal(shape, dtype)? * 2.0)?,
                random.uniform(-1.0, 2.0, heads, dtype)?,
                random.uniform(-3.0, 1.0, heads, dtype)?,
                random.normal((4, heads), dtype)?,
            ],
            dcontrols: random.normal(shape, dtype)?,
            pins,
        })
    }

    /// controls, dlogits, da_log, ddt_bias, dbias
    fn run(&self) -> Result<Vec<Tensor>> {
        let [logits, a_log, dt_bias, bias] = &self.inputs;
        let controls = forward(logits, a_log, dt_bias, bias, self.pins)?;
        let [da, ddt, db] = [a_log, dt_bias, bias].map(|t| Tensor::zeros(t.shape(), t.dtype(), &Device::Cpu));
        let (da, ddt, db) = (da?, ddt?, db?);
        let dlogits = backward(logits, a_log, dt_bias, bias, self.pins, &self.dcontrols, &da, &ddt, &db)?;
        Ok(vec![controls, dlogits, da, ddt, db])
    }
}

const NAMES: [&str; 4] = ["dlogits", "da_log", "ddt_bias", "dbias"];

#[test]
fn value_and_gradients_equal_the_reference() -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        for &sizes in SIZES {
            for pins in PINS {
                let case = Case::new(sizes, pins, dtype)?;
                let variables = case.inputs.each_ref().map(Var::from_tensor);
                let [logits, a_log, dt_bias, bias] = variables;
                let (logits, a_log, dt_bias, bias) = (logits?, a_log?, dt_bias?, bias?);
                let want = reference::forward(&logits, &a_log, &dt_bias, &bias, pins)?;
                let got = case.run()?;
                assert_close("controls", &got[0], &want, value_tolerance(dtype));
                if sizes.1 == 0 {
                    continue;
                }
                let variables = [&logits, &a_log, &dt_bias, &bias];
                let gradients = autograd(&[(&want, &case.dcontrols)], &variables)?;
                for ((name, got), want) in NAMES.iter().zip(&got[1..]).zip(&gradients) {
                    assert_close(name, got, want, gradient_tolerance(dtype));
                }
            }
        }
    }
    Ok(())
}

#[test]
fn gradients_equal_finite_differences() -> Result<()> {
    for pins in PINS {
        let case = Case::new((1, 3, 3), pins, DType::F64)?;
        let got = case.run()?;
        for (index, name) in NAMES.iter().enumerate() {
            assert_matches_finite_differences(name, &case.inputs[index], &got[index + 1], |moved| {
                let mut inputs = case.inputs.clone();
                inputs[index] = moved.clone();
                let [logits, a_log, dt_bias, bias] = &inputs;
                let controls = forward(logits, a_log, dt_bias, bias, pins)?;
                Ok((controls * &case.dcontrols)?.sum_all()?.to_scalar()?)
            });
        }
    }
    Ok(())
}

#[test]
fn pinned_controllers_are_constant_and_a_tied_beta_follows() -> Result<()> {
    let case = Case::new((2, 9, 5), PINS[3], DType::F32)?;
    let got = case.run()?;
    let row = |tensor: &Tensor, index: usize| tensor.narrow(2, index, 1);
    assert_same_bits("β_V", &row(&got[0], 2)?, &row(&got[0], 1)?);
    for (index, pinned) in [(3, 0.25f32), (4, 0.0)] {
        let values = row(&got[0], index)?.flatten_all()?.to_vec1::<f32>()?;
        assert!(values.iter().all(|&value| value == pinned));
    }
    for index in [2, 3, 4] {
        let dlogits = row(&got[1], index)?;
        assert_same_bits("dlogits", &dlogits, &dlogits.zeros_like()?);
        let dbias = got[4].get(index - 1)?;
        assert_same_bits("dbias", &dbias, &dbias.zeros_like()?);
    }
    Ok(())
}

// K3: any A_log with any logit gives a finite gate and finite gradients, never ∞·0.
#[test]
fn extreme_gates_stay_finite() -> Result<()> {
    let a_logs = [-100.0, -20.0, 0.0, 20.0, 89.0, 100.0];
    let logits = [-200.0, -20.0, 0.0, 20.0, 200.0];
    for dtype in [DType::F32, DType::F64] {
        let heads = a_logs.len();
        let x: Vec<f64> = logits.iter().flat_map(|&x| vec![x; 5 * heads]).collect();
        let mut case = Case::new((1, logits.len(), heads), Pins::default(), dtype)?;
        case.inputs[0] = Tensor::from_vec(x, (1, logits.len(), 5, heads), &Device::Cpu)?.to_dtype(dtype)?;
        case.inputs[1] = Tensor::new(&a_logs, &Device::Cpu)?.to_dtype(dtype)?;
        case.inputs[2] = case.inputs[2].zeros_like()?;
        let got = case.run()?;
        let log_alpha = got[0].narrow(2, 0, 1)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?;
        for (token, &x) in logits.iter().enumerate() {
            for (head, &a_log) in a_logs.iter().enumerate() {
                let value = log_alpha[token * heads + head];
                // In logarithms, so that the expectation itself cannot overflow.
                let log_softplus =
                    if x < -30.0 { x } else { f64::max(x, 0.0).max((1.0 + x.exp()).ln()).ln() };
                let want = (a_log + log_softplus).min(700.0).exp().min(MAX_DECAY);
                let close = (-value - want).abs() <= 1e-4 * want + 1e-30;
                assert!(
                    value.is_finite() && value <= 0.0 && close,
                    "A_log {a_log}, x {x}: {value}, want −{want}"
                );
            }
        }
        for (name, gradient) in NAMES.iter().zip(&got[1..]) {
            let values = gradient.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?;
            assert!(values.iter().all(|value| value.is_finite()), "{name} in {dtype:?}");
        }
        let dclamped = got[1].narrow(2, 0, 1)?.narrow(3, 5, 1)?.narrow(1, 4, 1)?;
        assert_close("gradient past the bound", &dclamped, &dclamped.zeros_like()?, 0.0);
    }
    Ok(())
}

// Near saturation the slope is small, but right: it is all that leads a controller back.
#[test]
fn saturated_controllers_keep_their_digits() -> Result<()> {
    for u in [-20.0f64, -16.0, -12.0, 12.0, 16.0, 20.0] {
        let mut case = Case::new((1, 1, 1), Pins::default(), DType::F32)?;
        case.inputs[0] = Tensor::full(u as f32, (1, 1, 5, 1), &Device::Cpu)?;
        case.inputs[3] = case.inputs[3].zeros_like()?;
        let got = case.run()?;
        let dcontrols = case.dcontrols.flatten_all()?.to_vec1::<f32>()?;
        let (sigma, rest) = (1.0 / (1.0 + (-u).exp()), 1.0 / (1.0 + u.exp()));
        for (index, dcontrol) in dcontrols.iter().enumerate().skip(1) {
            let at = |tensor: &Tensor| tensor.flatten_all()?.get(index)?.to_scalar::<f32>().map(f64::from);
            let (value, gradient) = (at(&got[0])?, at(&got[1])?);
            let want = sigma * rest * f64::from(*dcontrol);
            assert!((value / sigma - 1.0).abs() < 1e-6, "u = {u}: {value}, expected {sigma}");
            assert!((gradient / want - 1.0).abs() < 1e-6, "u = {u}: slope {gradient}, expected {want}");
        }
    }
    Ok(())
}

#[test]
fn a_nan_logit_is_not_hidden_by_the_bound() -> Result<()> {
    let case = Case::new((1, 1, 1), Pins::default(), DType::F32)?;
    let nan = Tensor::full(f32::NAN, (1, 1, 5, 1), &Device::Cpu)?;
    let [_, a_log, dt_bias, bias] = &case.inputs;
    let controls = forward(&nan, a_log, dt_bias, bias, case.pins)?.flatten_all()?.to_vec1::<f32>()?;
    assert!(controls.iter().all(|value| value.is_nan()), "{controls:?}");
    Ok(())
}

#[test]
fn parameter_gradients_are_added() -> Result<()> {
    let case = Case::new((2, 30, 3), Pins::default(), DType::F64)?;
    let got = case.run()?;
    let [logits, a_log, dt_bias, bias] = &case.inputs;
    let (da, ddt, db) = (a_log.copy()?, dt_bias.copy()?, bias.copy()?);
    backward(logits, a_log, dt_bias, bias, case.pins, &case.dcontrols, &da, &ddt, &db)?;
    for ((sum, start), gradient) in [da, ddt, db].iter().zip(&case.inputs[1..]).zip(&got[2..]) {
        assert_close("sum", sum, &(start + gradient)?, 1e-14);
    }
    Ok(())
}

// B4: any layout gives what the contiguous one gives.
#[test]
fn layouts_do_not_matter() -> Result<()> {
    let mut case = Case::new((2, 4, 3), PINS[2], DType::F32)?;
    let want = case.run()?;
    let (inputs, dcontrols) = (case.inputs.clone(), case.dcontrols.clone());
    for index in 0..4 {
        for (slot, input) in case.inputs.iter_mut().zip(&inputs) {
            let all = layouts(input)?;
            *slot = all[index.min(all.len() - 1)].1.clone();
        }
        case.dcontrols = layouts(&dcontrols)?[index].1.clone();
        for (got, want) in case.run()?.iter().zip(&want) {
            assert_same_bits("moved", got, want);
        }
    }
    Ok(())
}

#[test]
fn threads_do_not_matter() -> Result<()> {
    let case = Case::new((3, 1000, 6), Pins::default(), DType::F32)?;
    assert_same_on_any_thread_count("gates", || case.run());
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_by_name() -> Result<()> {
    let case = Case::new((1, 2, 3), Pins::default(), DType::F32)?;
    let [logits, a_log, dt_bias, bias] = &case.inputs;
    let flat = logits.reshape((1, 2, 3, 5))?;
    for (got, expected) in [
        (
            forward(&flat, a_log, dt_bias, bias, case.pins),
            "`logits` has shape [1, 2, 3, 5], expected [B,T,5,H]",
        ),
        (forward(logits, bias, dt_bias, bias, case.pins), "`a_log` has shape [4, 3], expected [H] = [3]"),
        (forward(logits, a_log, dt_bias, a_log, case.pins), "`bias` has shape [3], expected [4,H] = [4, 3]"),
        (
            backward(logits, a_log, dt_bias, bias, case.pins, &flat, a_log, dt_bias, bias),
            "`dcontrols` has shape [1, 2, 3, 5]",
        ),
    ] {
        let message = got.unwrap_err().to_string();
        assert!(message.starts_with("gates: ") && message.contains(expected), "{message}");
    }
    Ok(())
}
