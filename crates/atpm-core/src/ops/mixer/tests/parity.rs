//! Chunked = sequential: values and all gradients, in both dtypes, over awkward lengths.

use super::{Case, SMALL, forward, is_gradient, reference};
use crate::ops::mixer::{Inputs, Outputs, Shape};
use crate::testing::{
    assert_close, assert_matches_finite_differences, assert_same_bits, assert_same_on_any_thread_count,
    gradient_tolerance, layouts, value_tolerance,
};
use crate::{Result, Segments};
use candle_core::{D, DType, Tensor};

fn assert_parity(label: &str, case: &Case) -> Result<()> {
    let dtype = case.x.dtype();
    let want = case.to(DType::F64)?.sequential_values()?;
    for ((name, got), (_, want)) in case.chunked_values()?.into_iter().zip(want) {
        let tolerance = if is_gradient(name) { gradient_tolerance(dtype) } else { value_tolerance(dtype) };
        assert_close(&format!("{label}: {name}"), &got, &want, tolerance);
    }
    Ok(())
}

// K6, K14, K19: lengths around the chunk; padding does not exist, so nothing of it is read.
#[test]
fn lengths_around_the_chunk() -> Result<()> {
    for tokens in [1, 2, 15, 16, 17, 63, 64, 65, 127, 129, 200] {
        for dtype in [DType::F32, DType::F64] {
            let case = Case::random(tokens as u64, SMALL, Segments::continuous(2, tokens), dtype)?;
            assert_parity(&format!("{tokens} tokens, {dtype:?}"), &case)?;
        }
    }
    Ok(())
}

// Rows without tokens leave the state as it is, and pass its gradient through.
#[test]
fn no_tokens_change_nothing() -> Result<()> {
    for batch in [0, 2] {
        let case = Case::random(4, SMALL, Segments::continuous(batch, 0), DType::F32)?;
        let (outputs, gradients, dtransport) = case.chunked()?;
        assert_eq!(outputs.y.dims(), case.dy.dims());
        assert_same_bits("E_T", &outputs.state, &case.state);
        assert_same_bits("‖d‖", &outputs.address_norm, &outputs.address_norm.zeros_like()?);
        assert_same_bits("dE0", &gradients.state, &case.dstate);
        assert_same_bits("dC", &dtransport.c, &dtransport.c.zeros_like()?);
        let (outputs, _) = forward(&SMALL, &Inputs { state: None, ..case.inputs() }, false)?;
        assert_same_bits("E_T from nothing", &outputs.state, &case.state.zeros_like()?);
    }
    Ok(())
}

#[test]
fn sizes_beyond_a_register_tile() -> Result<()> {
    let shapes = [(16, 64, 64, 16), (64, 32, 32, 16), (20, 70, 9, 1), (2, 1, 1, 1)];
    for (address, key, value, rank) in shapes {
        let shape = Shape { heads: 1, address, key, value, rank, query_norm: true };
        let case = Case::random(3, shape, Segments::continuous(1, 70), DType::F32)?;
        assert_parity(&format!("{shape:?}"), &case)?;
    }
    Ok(())
}

#[test]
fn documents_begin_anywhere() -> Result<()> {
    let starts = vec![vec![0, 1, 2, 63, 64, 65, 100], vec![], vec![129]];
    for dtype in [DType::F32, DType::F64] {
        let segments = Segments::from_starts(130, starts.clone())?;
        assert_parity("starts", &Case::random(5, SMALL, segments, dtype)?)?;
    }
    Ok(())
}

#[test]
fn an_unnormalised_query() -> Result<()> {
    let shape = Shape { query_norm: false, ..SMALL };
    assert_parity("query_norm off", &Case::random(6, shape, Segments::continuous(1, 80), DType::F64)?)
}

#[test]
fn gradients_equal_finite_differences() -> Result<()> {
    let segments = Segments::from_starts(70, vec![vec![20]])?;
    let case = Case::random(8, SMALL, segments, DType::F64)?;
    let values = case.chunked_values()?;
    let loss = |inputs: &Inputs<'_>| -> Result<f64> {
        let (outputs, _) = forward(&SMALL, inputs, false)?;
        let (y, state) = ((outputs.y * &case.dy)?.sum_all()?, (outputs.state * &case.dstate)?.sum_all()?);
        Ok((y + state)?.to_scalar()?)
    };
    let check = |index: usize, point: &Tensor, of: &dyn Fn(&Tensor) -> Result<f64>| {
        assert_matches_finite_differences(values[index].0, point, &values[index].1, of);
    };
    check(2, &case.x, &|x| loss(&Inputs { x, ..case.inputs() }));
    check(3, &case.controls, &|controls| loss(&Inputs { controls, ..case.inputs() }));
    check(4, &case.state, &|state| loss(&Inputs { state: Some(state), ..case.inputs() }));
    Ok(())
}

// B4: any layout gives what the contiguous one gives.
#[test]
fn layouts_do_not_matter() -> Result<()> {
    let segments = Segments::from_starts(70, vec![vec![], vec![33]])?;
    let case = Case::random(10, SMALL, segments, DType::F32)?;
    let want = case.chunked_values()?;
    for (index, (layout, _)) in layouts(&case.x)?.into_iter().enumerate() {
        let moved = case.map(|tensor| Ok(layouts(tensor)?.swap_remove(index).1))?;
        for ((name, got), (_, want)) in moved.chunked_values()?.into_iter().zip(&want) {
            assert_same_bits(&format!("{name}, {layout}"), &got, want);
        }
    }
    Ok(())
}

#[test]
fn threads_do_not_matter() -> Result<()> {
    let shape = Shape { heads: 3, address: 16, key: 16, value: 16, rank: 4, query_norm: true };
    let case = Case::random(9, shape, Segments::continuous(3, 150), DType::F32)?;
    assert_same_on_any_thread_count("mixer", || {
        Ok(case.chunked_values()?.into_iter().map(|(_, value)| value).collect())
    });
    Ok(())
}

// A token's residual is what the state that the tokens before it left (by the chunked path) lacks of its entity.
#[test]
fn residuals_are_what_the_memory_lacks() -> Result<()> {
    let starts = [vec![0, 33], vec![66]];
    let case = Case::random(8, SMALL, Segments::from_starts(70, starts.to_vec())?, DType::F64)?;
    let Shape { heads, address, .. } = SMALL;
    let residuals = reference::residuals(&SMALL, &case.inputs())?;
    for token in [0, 1, 32, 33, 34, 65, 66, 69] {
        let (x, controls) = (case.x.narrow(1, 0, token)?, case.controls.narrow(1, 0, token)?);
        let before: Vec<Vec<usize>> =
            starts.iter().map(|row| row.iter().copied().filter(|&at| at < token).collect()).collect();
        let segments = Segments::from_starts(token, before)?;
        let inputs = Inputs {
            x: &x.contiguous()?,
            controls: &controls.contiguous()?,
            segments: &segments,
            ..case.inputs()
        };
        let (Outputs { state, .. }, _) = forward(&SMALL, &inputs, false)?;

        let here = case.x.narrow(1, token, 1)?.reshape((2, heads, SMALL.channels()))?;
        let source = here.narrow(2, address, address)?;
        let s = source.broadcast_div(&(source.sqr()?.sum_keepdim(D::Minus1)? + 1e-6)?.sqrt()?)?;
        let keep: Vec<f64> = starts.iter().map(|row| if row.contains(&token) { 0.0 } else { 1.0 }).collect();
        let alpha = case.controls.narrow(1, token, 1)?.narrow(2, 0, 1)?.reshape((2, heads, 1))?.exp()?;
        let alpha = alpha.broadcast_mul(&Tensor::from_vec(keep, (2, 1, 1), alpha.device())?)?;
        let held = state.broadcast_mul(&s.unsqueeze(3)?)?.sum(2)?.broadcast_mul(&alpha)?;
        let want = (here.narrow(2, 2 * address, SMALL.entity())? - held)?;
        assert_close(&format!("token {token}"), &residuals.narrow(1, token, 1)?.squeeze(1)?, &want, 1e-10);
    }
    Ok(())
}
