//! Kernel, reference and finite differences of attention, held together.

use candle_core::{DType, Device, Tensor, Var};

use super::{Past, backward, forward, reference, remember};
use crate::testing::{
    Random, assert_close, assert_matches_finite_differences, assert_same_bits,
    assert_same_on_any_thread_count, autograd, gradient_tolerance, layouts, value_tolerance,
};
use crate::{Result, Segments};

const HEADS: usize = 2;

fn segments(tokens: usize) -> Result<Segments> {
    let starts = vec![vec![0], vec![], vec![0, tokens / 3, tokens - 1], vec![tokens / 2]];
    Segments::from_starts(
        tokens,
        starts
            .into_iter()
            .map(|mut row: Vec<usize>| {
                row.dedup();
                row
            })
            .collect(),
    )
}

fn nothing(batch: usize, channels: usize, dtype: DType) -> Result<Past> {
    let empty = Tensor::zeros((batch, 0, channels), dtype, &Device::Cpu)?;
    Ok(Past { keys: empty.clone(), values: empty, first: Tensor::zeros(batch, dtype, &Device::Cpu)? })
}

#[test]
fn value_and_gradients_equal_the_reference() -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        for (tokens, width) in [(1, 2), (2, 2), (4, 6), (33, 16), (70, 10)] {
            let (mut random, segments) = (Random::new(tokens as u64), segments(tokens)?);
            let shape = (4, tokens, 3 * HEADS * width);
            let qkv = Var::from_tensor(&random.normal(shape, dtype)?)?;
            let want = reference::forward(&qkv, HEADS, &segments)?;
            let (got, saved) = forward(&qkv, HEADS, None, &segments)?;
            assert_close("y", &got, &want, value_tolerance(dtype));
            let dy = random.normal(want.dims(), dtype)?;
            let dqkv = backward(&saved, HEADS, &dy, &segments)?;
            let gradients = autograd(&[(&want, &dy)], &[&qkv])?;
            assert_close("dqkv", &dqkv, &gradients[0], gradient_tolerance(dtype));
        }
    }
    Ok(())
}

#[test]
fn gradients_equal_finite_differences() -> Result<()> {
    let (mut random, segments) = (Random::new(5), segments(9)?);
    let qkv = random.normal((4, 9, 3 * HEADS * 4), DType::F64)?;
    let (y, saved) = forward(&qkv, HEADS, None, &segments)?;
    let dy = random.normal(y.dims(), DType::F64)?;
    let dqkv = backward(&saved, HEADS, &dy, &segments)?;
    assert_matches_finite_differences("dqkv", &qkv, &dqkv, |qkv| {
        Ok((forward(qkv, HEADS, None, &segments)?.0 * &dy)?.sum_all()?.to_scalar()?)
    });
    Ok(())
}

// Pieces behind what was remembered give what the whole row gives, document starts among them.
#[test]
fn pieces_equal_the_whole() -> Result<()> {
    let (tokens, width) = (40, 8);
    let whole = segments(tokens)?;
    let qkv = Random::new(6).normal((4, tokens, 3 * HEADS * width), DType::F64)?;
    let (want, _) = forward(&qkv, HEADS, None, &whole)?;
    let mut past = nothing(4, HEADS * width, DType::F64)?;
    let mut pieces = Vec::new();
    for (from, to) in [(0, 1), (1, 14), (14, 15), (15, 33), (33, 40)] {
        let inside = |row: usize| {
            whole.row(row).iter().filter(|&&s| (from..to).contains(&s)).map(|s| s - from).collect()
        };
        let segments = Segments::from_starts(to - from, (0..4).map(inside).collect())?;
        let piece = qkv.narrow(1, from, to - from)?;
        let (y, saved) = forward(&piece, HEADS, Some(&past), &segments)?;
        past = remember(&past, &saved, &segments)?;
        pieces.push(y);
    }
    assert_eq!(past.keys.dims(), [4, tokens, HEADS * width]);
    assert_close("pieces", &Tensor::cat(&pieces, 1)?, &want, 1e-12);
    Ok(())
}

#[test]
fn no_rows_and_no_tokens_are_legal() -> Result<()> {
    for (batch, tokens) in [(0, 3), (2, 0)] {
        let segments = Segments::continuous(batch, tokens);
        let qkv = Tensor::zeros((batch, tokens, 3 * HEADS * 4), DType::F32, &Device::Cpu)?;
        let (y, saved) = forward(&qkv, HEADS, Some(&nothing(batch, HEADS * 4, DType::F32)?), &segments)?;
        assert_eq!(y.dims(), [batch, tokens, HEADS * 4]);
        assert_eq!(backward(&saved, HEADS, &y, &segments)?.dims(), qkv.dims());
    }
    Ok(())
}

// B4: any layout gives what the contiguous one gives.
#[test]
fn layouts_do_not_matter() -> Result<()> {
    let (mut random, segments) = (Random::new(8), segments(5)?);
    let mut normal = |tokens: usize, channels: usize| random.normal((4, tokens, channels), DType::F32);
    let (qkv, dy) = (normal(5, 3 * HEADS * 4)?, normal(5, HEADS * 4)?);
    let (keys, values) = (normal(3, HEADS * 4)?, normal(3, HEADS * 4)?);
    let first = Tensor::new(&[0u32, 3, 1, 2], &Device::Cpu)?;
    let run = |qkv: &Tensor, keys: &Tensor, values: &Tensor, dy: &Tensor| -> Result<[Tensor; 2]> {
        let past = Past { keys: keys.clone(), values: values.clone(), first: first.clone() };
        let (_, saved) = forward(qkv, HEADS, None, &segments)?;
        Ok([forward(qkv, HEADS, Some(&past), &segments)?.0, backward(&saved, HEADS, dy, &segments)?])
    };
    let [y, dqkv] = run(&qkv, &keys, &values, &dy)?;
    let moved = layouts(&keys)?.into_iter().zip(layouts(&values)?).zip(layouts(&dy)?);
    for ((layout, qkv), (((_, keys), (_, values)), (_, dy))) in layouts(&qkv)?.into_iter().zip(moved) {
        let got = run(&qkv, &keys, &values, &dy)?;
        assert_same_bits(layout, &got[0], &y);
        assert_same_bits(layout, &got[1], &dqkv);
    }
    Ok(())
}

#[test]
fn threads_do_not_matter() -> Result<()> {
    let (mut random, segments) = (Random::new(7), segments(37)?);
    let qkv = random.normal((4, 37, 3 * HEADS * 16), DType::F32)?;
    let dy = random.normal((4, 37, HEADS * 16), DType::F32)?;
    assert_same_on_any_thread_count("attention", || {
        let (y, saved) = forward(&qkv, HEADS, None, &segments)?;
        Ok(vec![y, backward(&saved, HEADS, &dy, &segments)?])
    });
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_by_name() -> Result<()> {
    let segments = Segments::continuous(1, 2);
    let zeros = |last: usize| Tensor::zeros((1, 2, last), DType::F32, &Device::Cpu);
    for (channels, heads, expected) in
        [(12, 3, "12 channels are no three times 3 heads"), (18, 2, "even number"), (12, 0, "0 heads")]
    {
        let message = forward(&zeros(channels)?, heads, None, &segments).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let (_, saved) = forward(&zeros(12)?, 2, None, &segments)?;
    let message = backward(&saved, 2, &zeros(5)?, &segments).unwrap_err().to_string();
    assert!(message.contains("`dy` has shape [1, 2, 5]"), "{message}");
    // A state file may be damaged.
    let keys = Tensor::zeros((1, 3, 4), DType::F32, &Device::Cpu)?;
    for first in [4.0f32, -1.0, 1.5, f32::NAN, 1e30] {
        let first = Tensor::new(&[first], &Device::Cpu)?;
        let past = Past { keys: keys.clone(), values: keys.clone(), first };
        let message = forward(&zeros(12)?, 2, Some(&past), &segments).unwrap_err().to_string();
        assert!(message.contains("`past.first` of row 0 is ") && message.contains("0 to 3"), "{message}");
    }
    Ok(())
}
