//! Kernel, reference and finite differences of the embedding, held together.

use candle_core::{DType, Device, Tensor, Var};

use super::{backward, forward, reference};
use crate::ops::cross_entropy;
use crate::testing::{
    Random, assert_close, assert_matches_finite_differences, assert_same_bits,
    assert_same_on_any_thread_count, autograd, gradient_tolerance, layouts,
};
use crate::{Precision, Result};

/// Shape of the ids, rows and width of the table.
const CASES: &[(&[usize], usize, usize)] =
    &[(&[], 3, 5), (&[1], 1, 1), (&[63], 7, 17), (&[2, 500], 300, 33), (&[1000], 2, 24), (&[0], 4, 8)];

#[test]
fn value_and_gradient_equal_the_reference() -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        for &(shape, rows, width) in CASES {
            let mut random = Random::new(41);
            let ids = random.ids(rows, shape)?;
            let table = Var::from_tensor(&random.normal((rows, width), dtype)?)?;
            let want = reference::forward(&ids, &table)?;
            assert_same_bits("y", &forward(&ids, &table, Precision::F32)?, &want);
            let dy = random.normal(want.shape(), dtype)?;
            let before = random.normal((rows, width), dtype)?;
            let dtable = before.copy()?;
            backward(&ids, &dy, &dtable)?;
            if ids.elem_count() > 0 {
                let gradients = autograd(&[(&want, &dy)], &[&table])?;
                assert_close("dtable", &(dtable - before)?, &gradients[0], gradient_tolerance(dtype));
            } else {
                assert_same_bits("dtable", &dtable, &before);
            }
        }
    }
    Ok(())
}

// T9: a tied table's gradient is the sum of both its uses.
#[test]
fn a_table_used_at_both_ends_gets_both_gradients() -> Result<()> {
    let mut random = Random::new(42);
    let (rows, width) = (9, 6);
    let (ids, targets) = (random.ids(rows, 20)?, random.ids(rows, 20)?);
    let table = random.normal((rows, width), DType::F64)?;
    let (scale, options) = (0.3, cross_entropy::Options { z_loss: 0.1, ..Default::default() });
    let loss = |table: &Tensor| -> Result<f64> {
        let x = forward(&ids, table, Precision::F32)?;
        let logits = x.matmul(&table.t()?)?;
        let lse = logits.log_sum_exp(1)?;
        let losses = cross_entropy::forward(&x, table, &targets, Precision::F32)?;
        Ok((((losses + (lse.sqr()? * 0.1)?)?.sum_all()?) * scale)?.to_scalar()?)
    };
    let dtable = table.zeros_like()?;
    let x = forward(&ids, &table, Precision::F32)?;
    let (_, dx) = cross_entropy::forward_backward(&x, &table, &targets, scale, options, &dtable)?;
    backward(&ids, &dx, &dtable)?;
    assert_matches_finite_differences("dtable", &table, &dtable, loss);
    Ok(())
}

// B4: any layout gives what the contiguous one gives.
#[test]
fn layouts_do_not_matter() -> Result<()> {
    let mut random = Random::new(43);
    let (ids, table) = (random.ids(11, (6, 4))?, random.normal((11, 8), DType::F32)?);
    let dy = random.normal((6, 4, 8), DType::F32)?;
    let (y, dtable) = (forward(&ids, &table, Precision::F32)?, table.copy()?);
    backward(&ids, &dy, &dtable)?;
    for (((layout, ids), (_, table)), (_, dy)) in
        layouts(&ids)?.into_iter().zip(layouts(&table)?).zip(layouts(&dy)?)
    {
        assert_same_bits(layout, &forward(&ids, &table, Precision::F32)?, &y);
        let sum = table.force_contiguous()?;
        backward(&ids, &dy, &sum)?;
        assert_same_bits(layout, &sum, &dtable);
    }
    Ok(())
}

#[test]
fn threads_do_not_matter() -> Result<()> {
    let mut random = Random::new(44);
    // Squared, so that few rows are used often, as in text.
    let frequent = random.uniform(0.0, 1.0, 5000, DType::F64)?.sqr()?.affine(100.0, 0.0)?;
    let ids = frequent.to_dtype(DType::U32)?;
    let (table, dy) = (random.normal((100, 40), DType::F32)?, random.normal((5000, 40), DType::F32)?);
    assert_same_on_any_thread_count("embedding", || {
        let dtable = table.copy()?;
        backward(&ids, &dy, &dtable)?;
        Ok(vec![forward(&ids, &table, Precision::F32)?, dtable])
    });
    Ok(())
}

// D23: an id outside the table is an error with its place, not silent garbage.
#[test]
fn an_id_outside_the_table_is_refused() -> Result<()> {
    let ids = Tensor::new(&[[0u32, 2], [5, 1]], &Device::Cpu)?;
    let table = Tensor::zeros((5, 3), DType::F32, &Device::Cpu)?;
    let dy = Tensor::zeros((2, 2, 3), DType::F32, &Device::Cpu)?;
    for error in
        [forward(&ids, &table, Precision::F32).unwrap_err(), backward(&ids, &dy, &table).unwrap_err()]
    {
        assert_eq!(error.to_string(), "embedding: id 5 at position 2 is outside the table of 5 rows");
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_by_name() -> Result<()> {
    let ids = Tensor::new(&[0u32, 2], &Device::Cpu)?;
    let wide = Tensor::new(&[0i64, 2], &Device::Cpu)?;
    let table = Tensor::zeros((5, 3), DType::F32, &Device::Cpu)?;
    let flat = Tensor::zeros(3, DType::F32, &Device::Cpu)?;
    for (got, expected) in [
        (
            forward(&wide, &table, Precision::F32).map(drop),
            "embedding: dtype I64 is not supported (expected u32 ids)",
        ),
        (forward(&ids, &flat, Precision::F32).map(drop), "embedding: `table` has shape [3], expected [V, D]"),
        (backward(&ids, &flat, &table), "embedding: `dy` has shape [3], expected [.., D] = [2, 3]"),
    ] {
        let message = got.unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    Ok(())
}
