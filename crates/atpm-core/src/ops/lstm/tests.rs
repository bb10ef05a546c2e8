//! Kernel, reference and finite differences of the LSTM, held together.

use candle_core::{DType, Tensor, Var};

use super::{State, backward, forward, last_state, reference};
use crate::testing::{
    Random, assert_close, assert_matches_finite_differences, assert_same_bits,
    assert_same_on_any_thread_count, autograd, gradient_tolerance, layouts, value_tolerance,
};
use crate::{Result, Segments};

struct Case {
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    dh: Tensor,
    segments: Segments,
}

impl Case {
    fn new(batch: usize, tokens: usize, width: usize, dtype: DType) -> Result<Self> {
        let mut random = Random::new((batch + tokens) as u64);
        let starts = |row: usize| match row % 3 {
            0 if tokens > 0 => vec![0],
            2 if tokens > 0 => vec![tokens / 2],
            _ => vec![],
        };
        Ok(Self {
            x: random.normal((batch, tokens, 4 * width), dtype)?,
            weight: random.uniform(-0.5, 0.5, (4 * width, width), dtype)?,
            bias: random.normal((4, width), dtype)?,
            dh: random.normal((batch, tokens, width), dtype)?,
            segments: Segments::from_starts(tokens, (0..batch).map(starts).collect())?,
        })
    }

    /// `(h, dx, dweight, dbias)` of the kernel.
    fn run(&self) -> Result<Vec<Tensor>> {
        let (h, saved) = forward(&self.x, &self.weight, &self.bias, None, &self.segments)?;
        let (dweight, dbias) = (self.weight.zeros_like()?, self.bias.zeros_like()?);
        let dx = backward(&saved, &self.weight, &self.dh, &self.segments, &dweight, &dbias)?;
        Ok(vec![h, dx, dweight, dbias])
    }
}

#[test]
fn value_and_gradients_equal_the_reference() -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        for (batch, tokens, width) in [(1, 1, 1), (3, 4, 5), (35, 7, 16), (2, 33, 19)] {
            let case = Case::new(batch, tokens, width, dtype)?;
            let [x, weight, bias] = [&case.x, &case.weight, &case.bias].map(Var::from_tensor);
            let (x, weight, bias) = (x?, weight?, bias?);
            let want = reference::forward(&x, &weight, &bias, None, &case.segments)?;
            let got = case.run()?;
            assert_close("h", &got[0], &want, value_tolerance(dtype));
            let gradients = autograd(&[(&want, &case.dh)], &[&x, &weight, &bias])?;
            for ((name, got), want) in ["dx", "dweight", "dbias"].iter().zip(&got[1..]).zip(&gradients) {
                assert_close(name, got, want, gradient_tolerance(dtype));
            }
        }
    }
    Ok(())
}

#[test]
fn gradients_equal_finite_differences() -> Result<()> {
    let case = Case::new(3, 6, 4, DType::F64)?;
    let got = case.run()?;
    let loss = |x: &Tensor, weight: &Tensor, bias: &Tensor| -> Result<f64> {
        let (h, _) = forward(x, weight, bias, None, &case.segments)?;
        Ok((h * &case.dh)?.sum_all()?.to_scalar()?)
    };
    let Case { x, weight, bias, .. } = &case;
    assert_matches_finite_differences("dx", x, &got[1], |x| loss(x, weight, bias));
    assert_matches_finite_differences("dweight", weight, &got[2], |weight| loss(x, weight, bias));
    assert_matches_finite_differences("dbias", bias, &got[3], |bias| loss(x, weight, bias));
    Ok(())
}

// Pieces that go on from the state give what the whole row gives, to the bit.
#[test]
fn pieces_equal_the_whole() -> Result<()> {
    let case = Case::new(4, 20, 8, DType::F64)?;
    let (want, _) = forward(&case.x, &case.weight, &case.bias, None, &case.segments)?;
    let (mut state, mut pieces) = (None::<State>, Vec::new());
    for (from, to) in [(0, 1), (1, 9), (9, 10), (10, 20)] {
        let inside = |row: usize| {
            let starts = case.segments.row(row).iter();
            starts.filter(|&&start| (from..to).contains(&start)).map(|start| start - from).collect()
        };
        let segments = Segments::from_starts(to - from, (0..4).map(inside).collect())?;
        let x = case.x.narrow(1, from, to - from)?;
        let (h, saved) = forward(&x, &case.weight, &case.bias, state.as_ref(), &segments)?;
        state = Some(last_state(&saved)?);
        pieces.push(h);
    }
    assert_close("pieces", &Tensor::cat(&pieces, 1)?, &want, 0.0);
    let initial = State { h: want.narrow(1, 3, 1)?.squeeze(1)?, c: want.narrow(1, 5, 1)?.squeeze(1)? };
    let go = |state| reference::forward(&case.x, &case.weight, &case.bias, state, &case.segments);
    let (h, _) = forward(&case.x, &case.weight, &case.bias, Some(&initial), &case.segments)?;
    assert_close("with a state", &h, &go(Some(&initial))?, 1e-12);
    Ok(())
}

#[test]
fn parameter_gradients_are_added() -> Result<()> {
    let case = Case::new(2, 5, 6, DType::F64)?;
    let got = case.run()?;
    let (_, saved) = forward(&case.x, &case.weight, &case.bias, None, &case.segments)?;
    let (dweight, dbias) = (case.weight.copy()?, case.bias.copy()?);
    backward(&saved, &case.weight, &case.dh, &case.segments, &dweight, &dbias)?;
    assert_close("dweight", &dweight, &(&case.weight + &got[2])?, 1e-14);
    assert_close("dbias", &dbias, &(&case.bias + &got[3])?, 1e-14);
    Ok(())
}

#[test]
fn no_rows_and_no_tokens_are_legal() -> Result<()> {
    for (batch, tokens) in [(0, 3), (2, 0)] {
        let case = Case::new(batch, tokens, 5, DType::F32)?;
        let got = case.run()?;
        assert_eq!((got[0].dims(), got[1].dims()), (case.dh.dims(), case.x.dims()));
        assert_same_bits("dweight", &got[2], &case.weight.zeros_like()?);
        assert_same_bits("dbias", &got[3], &case.bias.zeros_like()?);
    }
    Ok(())
}

// B4: any layout gives what the contiguous one gives.
#[test]
fn layouts_do_not_matter() -> Result<()> {
    let case = Case::new(4, 5, 6, DType::F32)?;
    let want = case.run()?;
    let weights = layouts(&case.weight)?.into_iter().zip(layouts(&case.bias)?);
    let moved = layouts(&case.x)?.into_iter().zip(layouts(&case.dh)?).zip(weights);
    for (((layout, x), (_, dh)), ((_, weight), (_, bias))) in moved {
        let case = Case { x, weight, bias, dh, segments: case.segments.clone() };
        for (got, want) in case.run()?.iter().zip(&want) {
            assert_same_bits(layout, got, want);
        }
    }
    Ok(())
}

#[test]
fn threads_do_not_matter() -> Result<()> {
    let case = Case::new(70, 9, 24, DType::F32)?;
    assert_same_on_any_thread_count("lstm", || case.run());
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_by_name() -> Result<()> {
    let case = Case::new(2, 3, 4, DType::F32)?;
    let wrong = case.bias.narrow(1, 0, 3)?;
    for (got, expected) in [
        (forward(&case.dh, &case.weight, &case.bias, None, &case.segments), "`x` has shape [2, 3, 4]"),
        (forward(&case.x, &case.bias, &case.bias, None, &case.segments), "`weight` has shape [4, 4]"),
        (forward(&case.x, &case.weight, &wrong, None, &case.segments), "`bias` has shape [4, 3]"),
    ] {
        let message = got.unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    Ok(())
}
