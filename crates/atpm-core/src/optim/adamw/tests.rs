//! AdamW against its reference and an f64 twin, and the corners of its definition.

use candle_core::{DType, Device, Tensor};

use super::{Config, Member, reference, squared_norm, squared_norm_of_all, update, update_all};
use crate::testing::{Random, assert_close, assert_same_bits, assert_same_on_any_thread_count, layouts};
use crate::{Result, rounded};

const CONFIG: Config =
    Config { lr: 1e-2, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1, grad_scale: 0.7, step: 1 };

struct State {
    parameter: Tensor,
    m: Tensor,
    v: Tensor,
}

impl State {
    fn new(parameter: Tensor) -> Result<Self> {
        Ok(Self { m: parameter.zeros_like()?, v: parameter.zeros_like()?, parameter })
    }

    fn step(&self, config: &Config, gradient: &Tensor) -> Result<()> {
        update(config, &self.parameter, &self.m, &self.v, gradient)
    }
}

fn scalar(tensor: &Tensor) -> Result<f32> {
    Ok(tensor.flatten_all()?.get(0)?.to_scalar()?)
}

#[test]
fn fifty_steps_follow_an_f64_twin() -> Result<()> {
    for shape in [vec![1], vec![63], vec![3, 7, 11], vec![40_001], vec![0]] {
        let mut random = Random::new(61);
        let start = random.normal(shape.clone(), DType::F32)?;
        let mut twin = {
            let wide = start.to_dtype(DType::F64)?;
            (wide.clone(), wide.zeros_like()?, wide.zeros_like()?)
        };
        let state = State::new(start.copy()?)?;
        for step in 1..=50 {
            let gradient = random.normal(shape.clone(), DType::F32)?;
            let config = Config { step, lr: 1e-2 / step as f64, ..CONFIG };
            state.step(&config, &gradient)?;
            twin = reference::update(&config, &twin.0, &twin.1, &twin.2, &gradient.to_dtype(DType::F64)?)?;
        }
        assert_close("parameter", &state.parameter, &twin.0.to_dtype(DType::F32)?, 1e-6);
        assert_close("m", &state.m, &twin.1.to_dtype(DType::F32)?, 1e-6);
        assert_close("v", &state.v, &twin.2.to_dtype(DType::F32)?, 1e-6);
        let moved = (&state.parameter - &start)?;
        let twin_moved = (twin.0 - start.to_dtype(DType::F64)?)?.to_dtype(DType::F32)?;
        assert_close("moved", &moved, &twin_moved, 5e-5);
    }
    Ok(())
}

// The first step moves every parameter by the learning rate, whatever the gradient's size: this is
// what bias correction is for.
#[test]
fn the_first_step_has_the_size_of_the_learning_rate() -> Result<()> {
    let state = State::new(Tensor::zeros(3, DType::F32, &Device::Cpu)?)?;
    let config = Config { weight_decay: 0.0, ..CONFIG };
    state.step(&config, &Tensor::new(&[1e-3f32, -5.0, 1e4], &Device::Cpu)?)?;
    let want = Tensor::new(&[-1e-2f32, 1e-2, -1e-2], &Device::Cpu)?;
    assert_close("parameter", &state.parameter, &want, 2e-5);
    Ok(())
}

// T10: a zero gradient leaves parameters without decay bitwise unchanged and shrinks the others by
// exactly lr·decay.
#[test]
fn a_zero_gradient_only_decays() -> Result<()> {
    let start = Random::new(62).normal((50, 20), DType::F32)?;
    let zero = start.zeros_like()?;
    let still = State::new(start.copy()?)?;
    still.step(&Config { weight_decay: 0.0, ..CONFIG }, &zero)?;
    assert_same_bits("without decay", &still.parameter, &start);

    let shrinking = State::new(start.copy()?)?;
    shrinking.step(&CONFIG, &zero)?;
    let factor = f64::from((CONFIG.lr * CONFIG.weight_decay) as f32);
    let wide = start.to_dtype(DType::F64)?;
    let want = (&wide - (&wide * factor)?)?.to_dtype(DType::F32)?;
    assert_same_bits("with decay", &shrinking.parameter, &want);
    assert_same_bits("m", &shrinking.m, &zero);
    assert_same_bits("v", &shrinking.v, &zero);
    Ok(())
}

// T11: small gradients live on in the second moment, and small steps move a parameter of size one.
#[test]
fn small_gradients_and_small_steps_are_not_lost() -> Result<()> {
    let state = State::new(Tensor::ones(1000, DType::F32, &Device::Cpu)?)?;
    let gradient = Random::new(63).uniform(0.5e-6, 1.5e-6, 1000, DType::F32)?;
    for step in 1..=100 {
        state.step(&Config { lr: 6e-7, grad_scale: 1.0, weight_decay: 0.0, step, ..CONFIG }, &gradient)?;
    }
    let smallest = state.v.min_all()?.to_scalar::<f32>()?;
    assert!((0.2e-12..1e-12).contains(&smallest), "v = {smallest:e}");
    let nearest = state.parameter.max_all()?.to_scalar::<f32>()?;
    assert!(nearest < 1.0 - 4e-5, "a parameter stayed at {nearest}");
    Ok(())
}

#[test]
fn the_gradient_is_scaled_before_use() -> Result<()> {
    let start = Random::new(64).normal(100, DType::F32)?;
    let gradient = Random::new(65).normal(100, DType::F32)?;
    let (scaled, given) = (State::new(start.copy()?)?, State::new(start.copy()?)?);
    scaled.step(&Config { grad_scale: 0.25, ..CONFIG }, &gradient)?;
    given.step(&Config { grad_scale: 1.0, ..CONFIG }, &(gradient * 0.25)?)?;
    assert_same_bits("parameter", &scaled.parameter, &given.parameter);
    assert_same_bits("v", &scaled.v, &given.v);
    Ok(())
}

#[test]
fn several_at_once_are_each_as_alone() -> Result<()> {
    let mut random = Random::new(66);
    let mut normal = |shape: &[usize]| random.normal(shape, DType::F32);
    let (starts, gradients) = ([normal(&[70])?, normal(&[3, 50])?], [normal(&[70])?, normal(&[3, 50])?]);
    let states =
        || -> Result<[State; 2]> { Ok([State::new(starts[0].copy()?)?, State::new(starts[1].copy()?)?]) };
    let (alone, together) = (states()?, states()?);
    alone[0].step(&Config { weight_decay: 0.0, ..CONFIG }, &gradients[0])?;
    alone[1].step(&CONFIG, &gradients[1])?;
    let member = |i: usize| {
        let State { parameter, m, v } = &together[i];
        Member { parameter, m, v, gradient: &gradients[i], decays: i == 1, rounded: None }
    };
    update_all(&CONFIG, &[member(0), member(1)])?;
    for (alone, together) in alone.iter().zip(&together) {
        assert_same_bits("parameter", &together.parameter, &alone.parameter);
        assert_same_bits("v", &together.v, &alone.v);
    }
    let sum = squared_norm(&gradients[0])? + squared_norm(&gradients[1])?;
    assert_eq!(squared_norm_of_all(&gradients.each_ref())?.to_bits(), sum.to_bits());

    // The second does not fit, so the first stays as it is.
    let before = together[0].parameter.copy()?;
    let turned = Tensor::zeros((50, 3), DType::F32, &Device::Cpu)?.t()?;
    for misfit in [
        Member { gradient: &gradients[0], ..member(1) },
        Member { parameter: &turned, ..member(1) },
        Member { m: &turned, ..member(1) },
        Member { v: &turned, ..member(1) },
    ] {
        assert!(update_all(&CONFIG, &[member(0), misfit]).is_err());
        assert_same_bits("parameter", &together[0].parameter, &before);
    }
    Ok(())
}

#[test]
fn the_rounded_copy_is_of_the_moved_parameter() -> Result<()> {
    let mut random = Random::new(67);
    let [start, gradient] = [random.normal((9, 31), DType::F32)?, random.normal((9, 31), DType::F32)?];
    let State { parameter, m, v } = State::new(start.copy()?)?;
    let copy = rounded(&start)?;
    let member =
        |rounded| Member { parameter: &parameter, m: &m, v: &v, gradient: &gradient, decays: true, rounded };
    update_all(&CONFIG, &[member(Some(&copy))])?;
    let wide = |copy: &Tensor| copy.to_dtype(DType::F32);
    assert_same_bits("copy", &wide(&copy)?, &wide(&rounded(&parameter)?)?);
    let changed = (wide(&copy)? - wide(&rounded(&start)?)?)?.abs()?.max_all()?.to_scalar::<f32>()?;
    assert!(changed > 0.0);

    let (before, flat, turned) = (parameter.copy()?, copy.flatten_all()?, copy.t()?.contiguous()?.t()?);
    for misfit in [&start, &flat, &turned] {
        assert!(update_all(&CONFIG, &[member(Some(misfit))]).is_err());
        assert_same_bits("parameter", &parameter, &before);
    }
    Ok(())
}

#[test]
fn squared_norm_is_exact_and_reads_any_layout() -> Result<()> {
    let large = Tensor::full(1e-3f32, 3_000_017, &Device::Cpu)?;
    let want = 3_000_017.0 * f64::from(1e-3f32).powi(2);
    assert!((squared_norm(&large)? / want - 1.0).abs() < 1e-12);
    let gradient = Random::new(66).normal((30, 41), DType::F32)?;
    let want = squared_norm(&gradient)?;
    for (layout, gradient) in layouts(&gradient)? {
        assert_eq!(squared_norm(&gradient)?, want, "{layout}");
    }
    assert_eq!(squared_norm(&Tensor::zeros((0, 3), DType::F32, &Device::Cpu)?)?, 0.0);
    Ok(())
}

// B4: the gradient may have any layout; what is written may not.
#[test]
fn layouts_do_not_matter() -> Result<()> {
    let start = Random::new(67).normal((6, 8), DType::F32)?;
    let gradient = Random::new(68).normal((6, 8), DType::F32)?;
    let want = State::new(start.copy()?)?;
    want.step(&CONFIG, &gradient)?;
    for (layout, gradient) in layouts(&gradient)? {
        let state = State::new(start.copy()?)?;
        state.step(&CONFIG, &gradient)?;
        assert_same_bits(layout, &state.parameter, &want.parameter);
    }
    let turned = State { parameter: start.t()?, m: want.m.t()?.contiguous()?, v: want.v.t()?.contiguous()? };
    let error = turned.step(&CONFIG, &gradient.t()?).unwrap_err().to_string();
    assert!(error.contains("must be contiguous"), "{error}");
    Ok(())
}

#[test]
fn threads_do_not_matter() -> Result<()> {
    let start = Random::new(69).normal(100_003, DType::F32)?;
    let gradient = Random::new(70).normal(100_003, DType::F32)?;
    assert_same_on_any_thread_count("adamw", || {
        let state = State::new(start.copy()?)?;
        state.step(&CONFIG, &gradient)?;
        let norm = Tensor::new(squared_norm(&gradient)?, &Device::Cpu)?;
        Ok(vec![state.parameter, state.m, state.v, norm])
    });
    Ok(())
}

// T11: master weights and moments are f32 or refused.
#[test]
fn what_does_not_fit_is_refused_by_name() -> Result<()> {
    let state = State::new(Tensor::ones(4, DType::F32, &Device::Cpu)?)?;
    let half = State { m: state.m.to_dtype(DType::BF16)?, ..State::new(state.parameter.copy()?)? };
    let short = State { v: state.v.narrow(0, 0, 3)?, ..State::new(state.parameter.copy()?)? };
    let gradient = state.parameter.copy()?;
    for (got, expected) in [
        (state.step(&Config { step: 0, ..CONFIG }, &gradient), "adamw: steps count from 1, got step 0"),
        (half.step(&CONFIG, &gradient), "adamw: dtype BF16 is not supported (expected f32)"),
        (short.step(&CONFIG, &gradient), "adamw: `v` has shape [3], expected parameter's shape = [4]"),
    ] {
        assert_eq!(got.unwrap_err().to_string(), expected);
    }
    assert_eq!(scalar(&state.parameter)?, 1.0, "a refused update changes nothing");
    Ok(())
}
