//! The golden files: float64 vectors of the recurrence and all thirteen gradients, made by an
//! independent implementation (`scripts/golden.py`).

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};

use super::{Case, forward, is_gradient};
use crate::ops::mixer::{Shape, Transport};
use crate::testing::assert_close;
use crate::{Result, Segments};

/// The project's own files; and others of the same form beside the checkout, where they are.
const FOLDERS: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/golden"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/golden"),
];

fn files() -> Vec<PathBuf> {
    let entries = FOLDERS.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    files.sort();
    assert!(files.len() >= 10, "there are {} golden files, see data/README.md", files.len());
    files
}

/// A golden file as a case of one row and one head, and the values it asks for.
fn load(path: &Path) -> Result<(Case, Vec<Tensor>)> {
    let file: HashMap<String, Tensor> = candle_core::safetensors::load(path, &Device::Cpu)?;
    let (tokens, address) = file["q0"].dims2()?;
    let (rank, key) = file["A_K"].dims2()?;
    let value = file["A_V"].dim(1)?;
    let shape = Shape { heads: 1, address, key, value, rank, query_norm: false };
    let reads = |prefix: &str| {
        let parts = ["q0", "s_raw", "k", "v"].map(|part| file[&format!("{prefix}{part}")].clone());
        Tensor::cat(&parts, 1)?.unsqueeze(0)
    };
    let controls = |prefix: &str| {
        let parts = ["log_alpha", "beta_k", "beta_v", "rho", "lambda"];
        let parts = parts.map(|part| file[&format!("{prefix}{part}")].clone());
        Tensor::stack(&parts, 1)?.reshape((1, tokens, 5, 1))
    };
    let head = |name: &str| file[name].unsqueeze(0);
    let state = |name: &str| file[name].unsqueeze(0)?.unsqueeze(0);
    let case = Case {
        shape,
        x: reads("")?,
        controls: controls("")?,
        transport: Transport { a_key: head("A_K")?, a_value: head("A_V")?, c: head("C")? },
        state: state("E0")?,
        segments: Segments::continuous(1, tokens),
        dy: head("dy")?,
        dstate: state("dE_T")?,
    };
    let want = vec![
        head("y")?,
        state("E_T")?,
        reads("grad.")?,
        controls("grad.")?,
        state("grad.E0")?,
        head("grad.A_K")?,
        head("grad.A_V")?,
        head("grad.C")?,
    ];
    Ok((case, want))
}

/// The gradients inside `dx` and `dcontrols` apart, so that a small one cannot hide behind a large one.
fn parts(shape: &Shape, name: &'static str, value: &Tensor) -> Result<Vec<(String, Tensor)>> {
    let cut = |dim: usize, parts: &[(&str, usize)]| {
        let mut start = 0;
        let mut cut = Vec::new();
        for &(part, len) in parts {
            cut.push((format!("{name}.{part}"), value.narrow(dim, start, len)?));
            start += len;
        }
        Ok(cut)
    };
    match name {
        "dx" => {
            cut(2, &[("q0", shape.address), ("s_raw", shape.address), ("k", shape.key), ("v", shape.value)])
        }
        "dcontrols" => cut(2, &[("log_alpha", 1), ("beta_k", 1), ("beta_v", 1), ("rho", 1), ("lambda", 1)]),
        _ => Ok(vec![(name.to_owned(), value.clone())]),
    }
}

fn assert_golden(
    dtype: DType,
    values: f64,
    gradients: f64,
    compute: impl Fn(&Case) -> Result<Vec<(&'static str, Tensor)>>,
) -> Result<()> {
    for path in files() {
        let (case, want) = load(&path)?;
        for ((name, got), want) in compute(&case.to(dtype)?)?.into_iter().zip(&want) {
            let tolerance = if is_gradient(name) { gradients } else { values };
            let got = parts(&case.shape, name, &got)?;
            for ((part, got), (_, want)) in got.into_iter().zip(parts(&case.shape, name, want)?) {
                assert_close(&format!("{}: {part}", path.display()), &got, &want, tolerance);
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
    let (case, want) = load(&Path::new(FOLDERS[0]).join("document_reset.safetensors"))?;
    let starts = vec![vec![40, 41]];
    let case = Case { segments: Segments::from_starts(96, starts)?, ..case }.with_log_alpha(|_, _| -0.05)?;
    let (outputs, _) = forward(&case.shape, &case.inputs(), false)?;
    assert_close("y", &outputs.y, &want[0], 1e-10);
    assert_close("E_T", &outputs.state, &want[1], 1e-10);
    Ok(())
}
