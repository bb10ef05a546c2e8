//! The laws of the mixer, as properties of generated inputs.

use candle_core::{D, DType, Tensor};
use proptest::prelude::*;

use super::{Case, forward};
use crate::ops::mixer::{Inputs, Shape};
use crate::testing::assert_close;
use crate::{Result, Segments};

/// A head whose state is the whole story of one token: from a zero state, one full write leaves
/// `E = d eᵀ`, from which `d` can be read.
fn one_write(seed: u64, address: usize, rho: f64, lambda: f64) -> Result<(Case, Shape)> {
    let shape = Shape { heads: 1, address, key: 3, value: 2, rank: 4, query_norm: true };
    let mut case = Case::random(seed, shape, Segments::continuous(1, 1), DType::F64)?;
    for (index, value) in [0.0, 1.0, 1.0, rho, lambda].into_iter().enumerate() {
        case.set_control(index, |_, _| value)?;
    }
    case.state = case.state.zeros_like()?;
    Ok((case, shape))
}

fn scalar(tensor: &Tensor) -> Result<f64> {
    Ok(tensor.sum_all()?.to_scalar()?)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    // sᵀd = 1 and ‖d‖² < 2: the write address is an oblique projector's, inside the soft sphere.
    #[test]
    fn a_full_write_is_found_again_at_its_source(
        seed in 0u64..1000, address in 2usize..24, rho in 0.0f64..=1.0, stretch in 0.01f64..1e4,
    ) {
        let check = || -> Result<()> {
            let (mut case, shape) = one_write(seed, address, rho, 0.0)?;
            case.transport.c = (case.transport.c * stretch)?;
            // Read with the source address itself: y = Eᵀs = (sᵀd)e = e.
            // Long enough that the ε of its normalisation does not show.
            let source = case.x.narrow(2, address, address)?;
            let source = (&source * (3.0 / scalar(&source.sqr()?)?.sqrt()))?;
            let entity = case.x.narrow(2, 2 * address, shape.entity())?;
            case.x = Tensor::cat(&[&source, &source, &entity], 2)?;
            let (outputs, _) = forward(&shape, &case.inputs(), false)?;
            let e = case.x.narrow(2, 2 * address, 5)?;
            assert_close("Eᵀs = e", &outputs.y, &e, 1e-5);
            let norm = scalar(&outputs.address_norm)?;
            assert!((1.0 - 1e-5..2f64.sqrt()).contains(&norm), "‖d‖ = {norm}");
            // The transition I − d sᵀ is a projector: writing the same again changes nothing.
            let (again, _) =
                forward(&shape, &Inputs { state: Some(&outputs.state), ..case.inputs() }, false)?;
            assert_close("(d sᵀ)² = d sᵀ", &again.state, &outputs.state, 1e-5);
            Ok(())
        };
        check().expect("the op takes these inputs");
    }

    // 1 − qᵀa = (1 − λ)(1 − q0ᵀa), seen through E = d eᵀ: y = (qᵀd)e = ‖d‖(qᵀa)e.
    #[test]
    fn recall_closes_its_share_of_the_gap(
        seed in 0u64..1000, address in 2usize..24, rho in 0.0f64..=1.0, lambda in 0.0f64..=1.0,
    ) {
        let check = || -> Result<()> {
            let overlap = |lambda: f64| -> Result<f64> {
                let (case, shape) = one_write(seed, address, rho, lambda)?;
                let (outputs, _) = forward(&shape, &case.inputs(), false)?;
                let e = case.x.narrow(2, 2 * address, 5)?;
                Ok(scalar(&(&outputs.y * &e)?)? / scalar(&e.sqr()?)? / scalar(&outputs.address_norm)?)
            };
            let (corrected, raw) = (overlap(lambda)?, overlap(0.0)?);
            let error = (1.0 - corrected) - (1.0 - lambda) * (1.0 - raw);
            assert!(error.abs() < 1e-9, "off by {error}");
            Ok(())
        };
        check().expect("the op takes these inputs");
    }

    // Sequential = chunked, whatever the length, sizes and document starts.
    #[test]
    fn chunked_equals_sequential(
        seed in 0u64..1000, tokens in 1usize..140, address in 1usize..10, key in 1usize..6,
        value in 1usize..6, rank in 1usize..5, starts in proptest::collection::btree_set(0usize..140, 0..5),
    ) {
        let check = || -> Result<()> {
            let shape = Shape { heads: 1, address, key, value, rank, query_norm: true };
            let starts = starts.iter().copied().filter(|&start| start < tokens).collect();
            let case = Case::random(seed, shape, Segments::from_starts(tokens, vec![starts])?, DType::F64)?;
            // Inputs and seeds are of order one, so errors are measured against that: the gradient of a
            // single weight is a sum that may cancel to any smallness.
            for ((name, got), (_, want)) in case.chunked_values()?.into_iter().zip(case.sequential_values()?) {
                let error = (got - want)?.sqr()?.mean_all()?.to_scalar::<f64>()?.sqrt();
                assert!(error <= 1e-9, "{name}: RMS error {error:e}");
            }
            Ok(())
        };
        check().expect("the op takes these inputs");
    }
}

/// Gated DeltaNet (key `s`, value `e`, one β), written down on its own.
fn gated_delta_net(case: &Case, shape: &Shape) -> Result<Tensor> {
    let (address, entity) = (shape.address, shape.entity());
    let unit = |x: Tensor| -> Result<Tensor> {
        Ok(x.broadcast_div(&(x.sqr()?.sum_keepdim(D::Minus1)? + 1e-6)?.sqrt()?)?)
    };
    let mut state = case.state.squeeze(0)?.squeeze(0)?;
    let mut ys = Vec::new();
    for t in 0..case.segments.tokens() {
        let row = case.x.narrow(1, t, 1)?.squeeze(0)?;
        let control =
            |index: usize| -> Result<f64> { scalar(&case.controls.narrow(1, t, 1)?.narrow(2, index, 1)?) };
        let (query, key) = (unit(row.narrow(1, 0, address)?)?, unit(row.narrow(1, address, address)?)?);
        let value = row.narrow(1, 2 * address, entity)?;
        state = (state * control(0)?.exp())?;
        let error = ((value - key.matmul(&state)?)? * control(1)?)?;
        state = (state + key.t()?.matmul(&error)?)?;
        ys.push(query.matmul(&state)?);
    }
    Ok(Tensor::cat(&ys, 0)?.unsqueeze(0)?)
}

#[test]
fn the_first_corner_is_gated_delta_net() -> Result<()> {
    let shape = Shape { heads: 1, address: 8, key: 3, value: 5, rank: 2, query_norm: true };
    let mut case = Case::random(31, shape, Segments::continuous(1, 100), DType::F64)?;
    case.set_control(3, |_, _| 0.0)?;
    case.set_control(4, |_, _| 0.0)?;
    case.set_control(1, |_, token| 0.1 + 0.008 * token as f64)?;
    case.set_control(2, |_, token| 0.1 + 0.008 * token as f64)?;
    let (outputs, _) = forward(&shape, &case.inputs(), false)?;
    assert_close("y", &outputs.y, &gated_delta_net(&case, &shape)?, 1e-10);
    // Keys of zeros write nothing there, and here have no write address.
    let source = (case.x.narrow(2, 8, 8)? * 0.0)?;
    let some = Tensor::cat(&[&source.narrow(1, 0, 50)?, &case.x.narrow(2, 8, 8)?.narrow(1, 50, 50)?], 1)?;
    case.x = Tensor::cat(&[&case.x.narrow(2, 0, 8)?, &some, &case.x.narrow(2, 16, 8)?], 2)?;
    let (outputs, _) = forward(&shape, &case.inputs(), false)?;
    assert_close("y with keys of zeros", &outputs.y, &gated_delta_net(&case, &shape)?, 1e-10);
    Ok(())
}

// (λ, ρ) at their corners: with λ = 1 every read is aligned with the last write, so one full write
// from nothing is read back whole whatever the query; with ρ = 0 the write goes where it was compared.
#[test]
fn the_other_corners() -> Result<()> {
    for rho in [0.0, 1.0] {
        for lambda in [0.0, 1.0] {
            let (case, shape) = one_write(33, 8, rho, lambda)?;
            let (outputs, _) = forward(&shape, &case.inputs(), false)?;
            let norm = scalar(&outputs.address_norm)?;
            assert_eq!(rho > 0.0, norm > 1.0 + 1e-6, "transport stretches d only when ρ > 0: {norm}");
            if lambda > 0.0 {
                let whole = (case.x.narrow(2, 16, 5)? * norm)?;
                assert_close("λ = 1 reads along a", &outputs.y, &whole, 1e-6);
            }
        }
    }
    Ok(())
}
