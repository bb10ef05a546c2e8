//! The golden files ([`crate::testing::golden`]).

use candle_core::{DType, Tensor};

use super::{Case, forward, is_gradient};
use crate::testing::{GOLDEN_FILES, assert_close, golden, golden_parts};
use crate::{Result, Segments};

/// A golden file as a case, and the values it asks for.
fn load(name: &str) -> Result<(Case, [Tensor; 8])> {
    let file = golden(name)?;
    let segments = Segments::continuous(1, file.x.dim(1)?);
    let case = Case {
        shape: file.shape,
        x: file.x,
        controls: file.controls,
        transport: file.transport,
        state: file.state,
        segments,
        dy: file.dy,
        dstate: file.dstate,
    };
    Ok((case, file.want))
}

fn assert_golden(
    dtype: DType,
    values: f64,
    gradients: f64,
    compute: impl Fn(&Case) -> Result<Vec<(&'static str, Tensor)>>,
) -> Result<()> {
    for file in GOLDEN_FILES {
        let (case, want) = load(file)?;
        for ((name, got), want) in compute(&case.to(dtype)?)?.into_iter().zip(&want) {
            let tolerance = if is_gradient(name) { gradients } else { values };
            let got = golden_parts(&case.shape, name, &got)?;
            for ((part, got), (_, want)) in got.into_iter().zip(golden_parts(&case.shape, name, want)?) {
                assert_close(&format!("{file}: {part}"), &got, &want, tolerance);
            }
        }
    }
    Ok(())
}

#[test]
fn the_reference_holds_every_golden_file() -> Result<()> {
    assert_golden(DType::F64, 1e-10, 1e-10, Case::sequential_values)
}

#[test]
fn the_chunked_path_holds_every_golden_file_in_f64() -> Result<()> {
    assert_golden(DType::F64, 1e-10, 1e-10, Case::chunked_values)
}

#[test]
fn the_chunked_path_holds_every_golden_file_in_f32() -> Result<()> {
    assert_golden(DType::F32, 1e-5, 1e-4, Case::chunked_values)
}

#[test]
fn a_document_start_is_the_golden_reset() -> Result<()> {
    let (case, want) = load("document_reset")?;
    let starts = vec![vec![40, 41]];
    let case = Case { segments: Segments::from_starts(96, starts)?, ..case }.with_log_alpha(|_, _| -0.05)?;
    let (outputs, _) = forward(&case.shape, &case.inputs(), false)?;
    assert_close("y", &outputs.y, &want[0], 1e-10);
    assert_close("E_T", &outputs.state, &want[1], 1e-10);
    Ok(())
}
