//! Kernel, reference and finite differences of the short convolution, held together.

use candle_core::{DType, Device, Tensor, Var};

use super::{backward, forward, reference};
use crate::testing::{
    Random, assert_close, assert_matches_finite_differences, assert_same_bits,
    assert_same_on_any_thread_count, autograd, gradient_tolerance, layouts, value_tolerance,
};
use crate::{Result, Segments};

struct Case {
    /// x, weight, state
    inputs: [Tensor; 3],
    dy: Tensor,
    dfinal: Tensor,
    segments: Segments,
}

impl Case {
    fn new(tokens: usize, channels: usize, width: usize, starts: &[&[usize]], dtype: DType) -> Result<Self> {
        let mut random = Random::new(81);
        let batch = starts.len();
        let state = (batch, width - 1, channels);
        Ok(Self {
            inputs: [
                random.normal((batch, tokens, channels), dtype)?,
                random.normal((channels, width), dtype)?,
                random.normal(state, dtype)?,
            ],
            dy: random.normal((batch, tokens, channels), dtype)?,
            dfinal: random.normal(state, dtype)?,
            segments: Segments::from_starts(tokens, starts.iter().map(|row| row.to_vec()).collect())?,
        })
    }

    /// y, final state, dx, dweight, dstate
    fn run(&self) -> Result<Vec<Tensor>> {
        let [x, weight, state] = &self.inputs;
        let (y, last) = forward(x, weight, Some(state), &self.segments)?;
        let dweight = Tensor::zeros(weight.shape(), weight.dtype(), &Device::Cpu)?;
        let (dx, dstate) =
            backward(x, weight, Some(state), &self.segments, &self.dy, Some(&self.dfinal), &dweight)?;
        Ok(vec![y, last, dx, dweight, dstate])
    }
}

const NAMES: [&str; 3] = ["dx", "dweight", "dstate"];

/// Tokens, channels, width, document starts of each row.
fn cases() -> Vec<(usize, usize, usize, Vec<&'static [usize]>)> {
    let mut cases: Vec<(usize, usize, usize, Vec<&[usize]>)> = vec![
        (63, 17, 4, vec![&[], &[0], &[5, 6, 9, 40]]),
        (1000, 3, 4, vec![&[], &[0, 127, 128, 129, 500, 999]]),
        (130, 16, 8, vec![&[126, 127], &[3]]),
        (0, 4, 4, vec![&[], &[]]),
    ];
    // K11: rows shorter than the width, with and without starts.
    for tokens in 1..=4 {
        cases.push((tokens, 5, 4, vec![&[], &[0]]));
    }
    cases.push((3, 2, 4, vec![&[1], &[2], &[1, 2], &[0, 1, 2]]));
    for width in 2..=8 {
        cases.push((9, 3, width, vec![&[], &[4, 7]]));
    }
    cases
}

#[test]
fn value_and_gradients_equal_the_reference() -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        for (tokens, channels, width, starts) in cases() {
            let case = Case::new(tokens, channels, width, &starts, dtype)?;
            let [x, weight, state] = case.inputs.each_ref().map(Var::from_tensor);
            let (x, weight, state) = (x?, weight?, state?);
            let (y, last) = reference::forward(&x, &weight, Some(&state), &case.segments)?;
            let got = case.run()?;
            assert_close("y", &got[0], &y, value_tolerance(dtype));
            assert_close("final state", &got[1], &last, 0.0);
            let outputs = [(&y, &case.dy), (&last, &case.dfinal)];
            if tokens > 0 {
                let gradients = autograd(&outputs, &[&x, &weight, &state])?;
                for ((name, got), want) in NAMES.iter().zip(&got[2..]).zip(&gradients) {
                    assert_close(name, got, want, gradient_tolerance(dtype));
                }
            } else {
                assert_same_bits("the state passes through", &got[1], &state);
                assert_close("its gradient too", &got[4], &case.dfinal, 0.0);
            }
        }
    }
    Ok(())
}

// K11: finite differences on x, w and state for rows of 1 to 4 tokens.
#[test]
fn gradients_equal_finite_differences() -> Result<()> {
    for (tokens, starts) in [(1, vec![]), (2, vec![1]), (3, vec![]), (4, vec![2]), (7, vec![3, 4])] {
        let case = Case::new(tokens, 2, 4, &[&starts, &[]], DType::F64)?;
        let got = case.run()?;
        for (index, name) in NAMES.iter().enumerate() {
            assert_matches_finite_differences(name, &case.inputs[index], &got[index + 2], |moved| {
                let mut inputs = case.inputs.clone();
                inputs[index] = moved.clone();
                let (y, last) = forward(&inputs[0], &inputs[1], Some(&inputs[2]), &case.segments)?;
                let total = ((y * &case.dy)?.sum_all()? + (last * &case.dfinal)?.sum_all()?)?;
                Ok(total.to_scalar()?)
            });
        }
    }
    Ok(())
}

// K11: the state carries a row over any split.
#[test]
fn a_split_row_equals_the_whole_row() -> Result<()> {
    let starts: &[&[usize]] = &[&[], &[2], &[0, 5]];
    let case = Case::new(8, 5, 4, starts, DType::F64)?;
    let [x, weight, state] = &case.inputs;
    let want = forward(x, weight, Some(state), &case.segments)?;
    let (mut state, mut first, mut parts) = (state.clone(), 0, Vec::new());
    for length in [1, 2, 5] {
        let inside = |row: &&[usize]| -> Vec<usize> {
            row.iter().filter(|&&at| (first..first + length).contains(&at)).map(|at| at - first).collect()
        };
        let segments = Segments::from_starts(length, starts.iter().map(inside).collect())?;
        let (y, next) = forward(&x.narrow(1, first, length)?, weight, Some(&state), &segments)?;
        parts.push(y);
        (state, first) = (next, first + length);
    }
    assert_same_bits("y", &Tensor::cat(&parts, 1)?, &want.0);
    assert_same_bits("final state", &state, &want.1);
    Ok(())
}

#[test]
fn an_absent_state_is_zero_and_has_no_gradient() -> Result<()> {
    let mut case = Case::new(6, 4, 4, &[&[], &[2]], DType::F64)?;
    case.inputs[2] = case.inputs[2].zeros_like()?;
    let want = case.run()?;
    let [x, weight, _] = &case.inputs;
    let (y, last) = forward(x, weight, None, &case.segments)?;
    assert_same_bits("y", &y, &want[0]);
    assert_same_bits("final state", &last, &want[1]);
    let dweight = weight.zeros_like()?;
    let (dx, dstate) = backward(x, weight, None, &case.segments, &case.dy, Some(&case.dfinal), &dweight)?;
    assert_same_bits("dx", &dx, &want[2]);
    assert_same_bits("dweight", &dweight, &want[3]);
    assert_same_bits("dstate", &dstate, &dstate.zeros_like()?);
    Ok(())
}

#[test]
fn an_absent_final_gradient_is_zero_and_the_weight_gradient_is_added() -> Result<()> {
    let mut case = Case::new(6, 4, 4, &[&[], &[2]], DType::F64)?;
    case.dfinal = case.dfinal.zeros_like()?;
    let want = case.run()?;
    let [x, weight, state] = &case.inputs;
    let dweight = weight.copy()?;
    let (dx, dstate) = backward(x, weight, Some(state), &case.segments, &case.dy, None, &dweight)?;
    assert_close("dx", &dx, &want[2], 0.0);
    assert_close("dstate", &dstate, &want[4], 0.0);
    assert_close("dweight", &dweight, &(weight + &want[3])?, 1e-14);
    Ok(())
}

// D26: what happens in one document changes no bit of the next.
#[test]
fn documents_do_not_see_each_other() -> Result<()> {
    let case = Case::new(12, 3, 4, &[&[7]], DType::F32)?;
    let want = forward(&case.inputs[0], &case.inputs[1], Some(&case.inputs[2]), &case.segments)?;
    let x = &case.inputs[0];
    let other = Tensor::cat(&[&(x.narrow(1, 0, 7)? * 9.0)?, &x.narrow(1, 7, 5)?], 1)?;
    let got = forward(&other, &case.inputs[1], None, &case.segments)?;
    assert_same_bits("y", &got.0.narrow(1, 7, 5)?, &want.0.narrow(1, 7, 5)?);
    assert_same_bits("final state", &got.1, &want.1);
    Ok(())
}

// B4: any layout gives what the contiguous one gives.
#[test]
fn layouts_do_not_matter() -> Result<()> {
    let mut case = Case::new(9, 4, 4, &[&[3], &[]], DType::F32)?;
    let want = case.run()?;
    let (inputs, dy, dfinal) = (case.inputs.clone(), case.dy.clone(), case.dfinal.clone());
    for index in 0..4 {
        for (slot, input) in case.inputs.iter_mut().zip(&inputs) {
            *slot = layouts(input)?[index].1.clone();
        }
        case.dy = layouts(&dy)?[index].1.clone();
        case.dfinal = layouts(&dfinal)?[index].1.clone();
        for (got, want) in case.run()?.iter().zip(&want) {
            assert_same_bits("moved", got, want);
        }
    }
    Ok(())
}

#[test]
fn threads_do_not_matter() -> Result<()> {
    let case = Case::new(700, 48, 4, &[&[], &[100, 300]], DType::F32)?;
    assert_same_on_any_thread_count("short_conv", || case.run());
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_by_name() -> Result<()> {
    let case = Case::new(5, 3, 4, &[&[], &[]], DType::F32)?;
    let [x, weight, state] = &case.inputs;
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu);
    let (segments, other) = (&case.segments, Segments::continuous(2, 6));
    for (got, expected) in [
        (forward(&zeros(&[5, 3])?, weight, None, segments), "`x` has shape [5, 3], expected [B,T,C]"),
        (forward(x, &zeros(&[4, 4])?, None, segments), "`weight` has shape [4, 4], expected [C,W] = [3, 4]"),
        (forward(x, &zeros(&[3, 9])?, None, segments), "the width must be from 2 to 8, got 9"),
        (forward(x, &zeros(&[3, 1])?, None, segments), "the width must be from 2 to 8, got 1"),
        (
            forward(x, weight, Some(x), segments),
            "`state` has shape [2, 5, 3], expected [B,W−1,C] = [2, 3, 3]",
        ),
        (forward(x, weight, None, &other), "document starts are for 2×6 tokens, but x has 2×5"),
        (backward(x, weight, None, segments, state, None, weight), "`dy` has shape [2, 3, 3]"),
        (backward(x, weight, None, segments, x, Some(x), weight), "`dfinal` has shape [2, 5, 3]"),
        (backward(x, weight, None, segments, x, None, x), "`dweight` has shape [2, 5, 3]"),
    ] {
        let message = got.unwrap_err().to_string();
        assert!(message.starts_with("short_conv: ") && message.contains(expected), "{message}");
    }
    Ok(())
}
