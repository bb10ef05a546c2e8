//! What went wrong for others, held as tests.

use candle_core::{DType, Tensor};

use super::{Case, SMALL, backward, forward, is_gradient};
use crate::ops::mixer::{Inputs, Shape, Transport};
use crate::testing::{
    assert_close, assert_same_bits, gradient_tolerance, relative_rms_error, value_tolerance,
};
use crate::{Result, Segments};

fn assert_f32_close_to_sequential_f64(label: &str, case: &Case) -> Result<()> {
    let want = case.to(DType::F64)?.sequential_values()?;
    for ((name, got), (_, want)) in case.to(DType::F32)?.chunked_values()?.into_iter().zip(want) {
        let tolerance =
            if is_gradient(name) { gradient_tolerance(DType::F32) } else { value_tolerance(DType::F32) };
        // What f32 cannot hold (e^−100) is zero there.
        if want.abs()?.max_all()?.to_scalar::<f64>()? > f64::from(f32::MIN_POSITIVE) {
            assert_close(&format!("{label}: {name}"), &got, &want, tolerance);
        } else {
            assert_eq!(got.abs()?.max_all()?.to_scalar::<f32>()?, 0.0, "{label}: {name}");
        }
    }
    Ok(())
}

// K1, K2, K16: decays from none to total, constant and mixed, with an initial state and several chunks.
#[test]
fn every_strength_of_decay() -> Result<()> {
    let levels: [f64; 6] = [0.0, -1e-3, -5.0, -30.0, -100.0, -1e4];
    let case = || Case::random(11, SMALL, Segments::continuous(1, 130), DType::F64);
    for level in levels {
        assert_f32_close_to_sequential_f64(
            &format!("log α = {level}"),
            &case()?.with_log_alpha(|_, _| level)?,
        )?;
    }
    let mixed = case()?.with_log_alpha(|_, token| levels[token * 7 % 6])?;
    assert_f32_close_to_sequential_f64("mixed", &mixed)?;
    let lone = case()?.with_log_alpha(|_, token| if token == 33 { -1e4 } else { 0.0 })?;
    assert_f32_close_to_sequential_f64("one −1e4 among zeros", &lone)?;
    let half_zero = case()?.with_log_alpha(|_, token| if token % 2 == 0 { 0.0 } else { -0.2 })?;
    assert_f32_close_to_sequential_f64("half exact zeros", &half_zero)
}

// K1: a gate of exactly 0 wipes the state and leaves no NaN.
#[test]
fn a_gate_of_zero_is_a_document_start() -> Result<()> {
    let case = Case::random(12, SMALL, Segments::continuous(1, 70), DType::F32)?;
    let wiped =
        case.to(DType::F32)?.with_log_alpha(|_, token| if token == 40 { f64::NEG_INFINITY } else { -0.1 })?;
    let segments = Segments::from_starts(70, vec![vec![40]])?;
    let started = Case { segments, ..case }.with_log_alpha(|_, _| -0.1)?;
    for ((name, got), (_, want)) in wiped.chunked_values()?.into_iter().zip(started.chunked_values()?) {
        assert_close(name, &got, &want, 1e-6);
    }
    Ok(())
}

// K2: the gradient of log α is right, and not zero, at log α = 0.
#[test]
fn no_decay_still_has_a_gradient() -> Result<()> {
    let case =
        Case::random(13, SMALL, Segments::continuous(1, 65), DType::F64)?.with_log_alpha(|_, _| 0.0)?;
    let (_, gradients, _) = case.chunked()?;
    let size = gradients.controls.narrow(2, 0, 1)?.sqr()?.sum_all()?.to_scalar::<f64>()?;
    assert!(size > 1.0, "Σ(dlog α)² = {size}");
    Ok(())
}

// K4: one repeated address, β up to 1, slow decay, long: the solve keeps its digits.
#[test]
fn repeated_addresses_with_full_writes() -> Result<()> {
    for (beta, noise) in [(1.0, 0.0), (0.835, 0.0), (1.0, 0.01)] {
        let shape = Shape { heads: 1, address: 16, key: 8, value: 8, rank: 4, query_norm: true };
        let tokens = 1024;
        let mut case = Case::random(14, shape, Segments::continuous(1, tokens), DType::F64)?;
        let source = case.x.narrow(2, 16, 16)?;
        let repeated = source.narrow(1, 0, 1)?.broadcast_as(source.shape())?;
        let source = (repeated + (source * noise)?)?;
        case.x = Tensor::cat(&[&case.x.narrow(2, 0, 16)?, &source, &case.x.narrow(2, 32, 16)?], 2)?;
        case.set_control(0, |_, _| -1e-3)?;
        case.set_control(1, |_, _| beta)?;
        case.set_control(2, |_, _| beta)?;
        assert_f32_close_to_sequential_f64(&format!("β {beta}, noise {noise}"), &case)?;
    }
    Ok(())
}

// K14: padding of the last chunk has no effect on the state; prefill(T−1) + one step = prefill(T).
#[test]
fn the_state_of_every_length_is_the_token_loops() -> Result<()> {
    let long = Case::random(15, SMALL, Segments::continuous(1, 130), DType::F32)?;
    let mut state = long.state.clone();
    for tokens in 1..=130 {
        let step = split(&long, tokens - 1, 1, &state)?;
        let (outputs, _) = forward(&SMALL, &step.inputs(), false)?;
        state = outputs.state;
        let prefill = split(&long, 0, tokens, &long.state)?;
        let (outputs, _) = forward(&SMALL, &prefill.inputs(), false)?;
        assert_close(&format!("state after {tokens}"), &outputs.state, &state, 1e-5);
    }
    Ok(())
}

// K15, K22: a run split at every kind of offset carries its state, and gradients flow through it.
#[test]
fn a_split_run_equals_one_run() -> Result<()> {
    let whole = Case::random(16, SMALL, Segments::continuous(1, 300), DType::F32)?;
    let (want, want_gradients, want_transport) = whole.chunked()?;
    for at in [1, 63, 64, 65, 128, 299] {
        let first = split(&whole, 0, at, &whole.state)?;
        let (first_out, first_saved) = forward(&SMALL, &first.inputs(), true)?;
        let second = split(&whole, at, 300 - at, &first_out.state)?;
        let (second_out, gradients, transport) = second.chunked()?;
        assert_close("y", &Tensor::cat(&[&first_out.y, &second_out.y], 1)?, &want.y, 1e-5);
        assert_close("E_T", &second_out.state, &want.state, 1e-5);
        let saved = first_saved.expect("asked to save");
        let carried = Some(&gradients.state);
        let before = backward(&SMALL, &first.inputs(), &saved, &first.dy, carried, &transport)?;
        assert_close("dx", &Tensor::cat(&[&before.x, &gradients.x], 1)?, &want_gradients.x, 1e-4);
        assert_close("dE0", &before.state, &want_gradients.state, 1e-4);
        assert_close("dC", &transport.c, &want_transport.c, 1e-4);
    }
    Ok(())
}

/// Tokens `first..first + tokens` of a case, from another state.
fn split(case: &Case, first: usize, tokens: usize, state: &Tensor) -> Result<Case> {
    let part = case.to(case.x.dtype())?;
    Ok(Case {
        x: part.x.narrow(1, first, tokens)?,
        controls: part.controls.narrow(1, first, tokens)?,
        dy: part.dy.narrow(1, first, tokens)?,
        state: state.clone(),
        segments: Segments::continuous(1, tokens),
        ..part
    })
}

// K22: no output gradient but a final one; no final gradient; a state given or absent.
#[test]
fn gradients_from_either_output_alone() -> Result<()> {
    let case = Case::random(17, SMALL, Segments::continuous(2, 90), DType::F64)?;
    let zero = Case { dy: case.dy.zeros_like()?, ..case.to(DType::F64)? };
    let (_, from_state, _) = zero.chunked()?;
    let (_, both, _) = case.chunked()?;
    let (outputs, saved) = forward(&SMALL, &case.inputs(), true)?;
    let saved = saved.expect("asked to save");
    let Transport { a_key, a_value, c } = &case.transport;
    let sink = Transport { a_key: a_key.zeros_like()?, a_value: a_value.zeros_like()?, c: c.zeros_like()? };
    let from_y = backward(&SMALL, &case.inputs(), &saved, &case.dy, None, &sink)?;
    assert_close("dx adds up", &(from_y.x + from_state.x)?, &both.x, 1e-10);
    assert_close("dE0 adds up", &(from_y.state + from_state.state)?, &both.state, 1e-10);

    let zeros = case.state.zeros_like()?;
    let (given, _) = forward(&SMALL, &Inputs { state: Some(&zeros), ..case.inputs() }, false)?;
    let (absent, _) = forward(&SMALL, &Inputs { state: None, ..case.inputs() }, false)?;
    assert_same_bits("y without a state", &absent.y, &given.y);
    assert!(relative_rms_error(&outputs.y, &absent.y)? > 1e-3, "the state matters");
    Ok(())
}

// K17: decay comes before the comparison. One token with α = ½, β = 1, no transport, no recall
// correction: E = ½E₀ + s(e − ½E₀ᵀs)ᵀ.
#[test]
fn decay_comes_first() -> Result<()> {
    let shape = Shape { heads: 1, address: 1, key: 1, value: 1, rank: 1, query_norm: true };
    let mut case = Case::random(18, shape, Segments::continuous(1, 1), DType::F64)?;
    let device = case.x.device().clone();
    case.x = Tensor::new(&[[[1.0f64, 1e6, 3.0, 5.0]]], &device)?;
    case.state = Tensor::new(&[[[[10.0f64, 20.0]]]], &device)?;
    let values = [0.5f64.ln(), 0.25, 0.25, 0.0, 0.0];
    for (index, value) in values.into_iter().enumerate() {
        case.set_control(index, |_, _| value)?;
    }
    let (outputs, _) = forward(&shape, &case.inputs(), false)?;
    let state = outputs.state.flatten_all()?.to_vec1::<f64>()?;
    // ½·10 + ¼(3 − ½·10) = 4.5 and ½·20 + ¼(5 − ½·20) = 8.75.
    for (got, want) in state.into_iter().zip([4.5, 8.75]) {
        assert!((got - want).abs() < 1e-9, "{got} is not {want}");
    }
    Ok(())
}

// K13: rows of document lengths that are no multiple of the chunk, against each document run alone.
#[test]
fn packed_documents_equal_documents_alone() -> Result<()> {
    let starts = vec![0, 1, 33, 110, 174];
    let segments = Segments::from_starts(211, vec![starts.clone()])?;
    let packed = Case::random(19, SMALL, segments, DType::F32)?;
    let (outputs, gradients, _) = packed.chunked()?;
    let nothing = packed.state.zeros_like()?;
    for (index, &start) in starts.iter().enumerate() {
        let end = starts.get(index + 1).copied().unwrap_or(211);
        let mut alone = split(&packed, start, end - start, &nothing)?;
        if end < 211 {
            alone.dstate = nothing.clone();
        }
        let (out, grads, _) = alone.chunked()?;
        let part = |tensor: &Tensor| tensor.narrow(1, start, end - start);
        assert_close("y", &out.y, &part(&outputs.y)?, 1e-5);
        assert_close("dx", &grads.x, &part(&gradients.x)?, 1e-4);
    }
    Ok(())
}

// D26: what a document reads does not depend on what was packed before it, to the bit.
#[test]
fn an_earlier_document_leaves_no_trace() -> Result<()> {
    let segments = Segments::from_starts(100, vec![vec![0, 41]])?;
    let case = Case::random(20, SMALL, segments, DType::F32)?;
    let other = Case::random(21, SMALL, case.segments.clone(), DType::F32)?;
    let mixed = Tensor::cat(&[&other.x.narrow(1, 0, 41)?, &case.x.narrow(1, 41, 59)?], 1)?;
    let (want, _) = forward(&SMALL, &case.inputs(), false)?;
    let (got, _) = forward(&SMALL, &Inputs { x: &mixed, ..case.inputs() }, false)?;
    assert_same_bits("y", &got.y.narrow(1, 41, 59)?.contiguous()?, &want.y.narrow(1, 41, 59)?.contiguous()?);
    assert_same_bits("E_T", &got.state, &want.state);
    Ok(())
}

/// Zeros in place of the sources of every seventh token, in turn: to be transported; not to be, for want of a strength
/// (ρ = 0); and for want of a proposal (k = 0). The last two have no write address.
fn with_zero_sources(mut case: Case) -> Result<Case> {
    let Shape { heads, address, key, .. } = case.shape;
    let (tokens, width) = (case.segments.tokens(), case.shape.channels());
    let is_one = |token: usize, kind: usize| token.is_multiple_of(7) && token / 7 % 3 == kind;
    let kept = |(token, channel): (usize, usize)| match channel.checked_sub(address) {
        Some(source) if source < address => !token.is_multiple_of(7),
        Some(content) if content < address + key => !is_one(token, 2),
        _ => true,
    };
    let places = (0..case.x.elem_count()).map(|at| (at / (heads * width) % tokens, at % width));
    let kept: Vec<f64> = places.map(|place| f64::from(u8::from(kept(place)))).collect();
    let kept = Tensor::from_vec(kept, case.x.shape(), case.x.device())?.to_dtype(case.x.dtype())?;
    case.x = (&case.x * kept)?;
    case.set_control(3, |_, token| if is_one(token, 1) { 0.0 } else { 0.1 + 0.01 * (token % 80) as f64 })?;
    Ok(case)
}

// Without a write address there is no unit vector along it, and nothing is divided by its length.
#[test]
fn a_source_of_zeros_has_no_direction() -> Result<()> {
    let case = || with_zero_sources(Case::random(25, SMALL, Segments::continuous(2, 70), DType::F64)?);
    assert_f32_close_to_sequential_f64("zero sources", &case()?)?;
    for ((name, got), (_, want)) in case()?.chunked_values()?.into_iter().zip(case()?.sequential_values()?) {
        assert_close(name, &got, &want, 1e-10);
    }
    let mut blind = case()?;
    blind.set_control(4, |_, _| 0.0)?;
    assert_f32_close_to_sequential_f64("zero sources, λ = 0", &blind)
}

// A NaN in a gate reaches the output, where the trainer looks for it.
#[test]
fn a_nan_is_not_swallowed() -> Result<()> {
    for index in 0..5 {
        let mut case = Case::random(22, SMALL, Segments::continuous(1, 70), DType::F32)?;
        case.set_control(index, |_, token| if token == 66 { f64::NAN } else { 0.0 })?;
        let (outputs, _) = forward(&SMALL, &case.inputs(), false)?;
        let total = outputs.y.sum_all()?.to_scalar::<f32>()?;
        assert!(total.is_nan(), "control {index}");
    }
    Ok(())
}

/// A case whose first head reads and is controlled by nothing but NaN.
fn with_poisoned_head(case: &Case) -> Result<Case> {
    let poisoned = |tensor: &Tensor, dim: usize, width: usize| -> Result<Tensor> {
        let rest = tensor.narrow(dim, width, tensor.dim(dim)? - width)?;
        Ok(Tensor::cat(&[&(tensor.narrow(dim, 0, width)? * f64::NAN)?, &rest], dim)?)
    };
    let mut out = case.to(case.x.dtype())?;
    out.x = poisoned(&case.x, 2, case.shape.channels())?;
    out.controls = poisoned(&case.controls, 3, 1)?;
    Ok(out)
}

/// Outputs and gradients of one head, by name.
fn of_head(case: &Case, head: usize) -> Result<Vec<(&'static str, Tensor)>> {
    let values = case.chunked_values()?.into_iter().map(|(name, value)| {
        let (dim, width) = match name {
            "y" => (2, case.shape.entity()),
            "dx" => (2, case.shape.channels()),
            "dcontrols" => (3, 1),
            "E_T" | "dE0" => (1, 1),
            _ => (0, 1),
        };
        Ok((name, value.narrow(dim, head * width, width)?))
    });
    values.collect()
}

// K19: what a core computed before does not reach what it computes next. A pool of one thread divides its tasks in two,
// one row in each; the heads of a row then share their scratch, in which the first leaves nothing but NaN.
#[test]
fn scratch_memory_does_not_leak_between_tasks() -> Result<()> {
    let shape = Shape { heads: 4, ..SMALL };
    let case = Case::random(23, shape, Segments::continuous(2, 77), DType::F32)?;
    let poisoned = with_poisoned_head(&case)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool of one thread");
    let of_head = |case: &Case, head| pool.install(|| of_head(case, head));
    for (name, value) in of_head(&poisoned, 0)? {
        let sum = value.sum_all()?.to_scalar::<f32>()?;
        assert!(sum.is_nan(), "{name} of the poisoned head: {sum}");
    }
    for head in 1..shape.heads {
        for ((name, got), (_, want)) in of_head(&poisoned, head)?.into_iter().zip(of_head(&case, head)?) {
            assert_same_bits(&format!("{name} of head {head}"), &got, &want);
        }
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused_by_name() -> Result<()> {
    let case = Case::random(24, SMALL, Segments::continuous(1, 8), DType::F32)?;
    let wide = Case::random(24, Shape { rank: 4, ..SMALL }, Segments::continuous(1, 8), DType::F32)?;
    let longer = Segments::continuous(1, 9);
    let f64_state = case.state.to_dtype(DType::F64)?;
    for (inputs, expected) in [
        (
            Inputs { controls: &case.x, ..case.inputs() },
            "`controls` has shape [1, 8, 72], expected [B, T, 5, H]",
        ),
        (
            Inputs { transport: &wide.transport, ..case.inputs() },
            "`A_K` has shape [2, 4, 5], expected [H, R, K]",
        ),
        (Inputs { segments: &longer, ..case.inputs() }, "segments are of 1 rows of 9 tokens, x of 1 of 8"),
        (Inputs { state: Some(&f64_state), ..case.inputs() }, "dtype F64 is not supported"),
    ] {
        let message = forward(&SMALL, &inputs, false).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    Ok(())
}
