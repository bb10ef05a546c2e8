//! The mixer's golden files: float64 vectors of the recurrence and all thirteen gradients, made by an independent
//! implementation (`scripts/golden.py`).

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor};

use crate::Result;
use crate::ops::mixer::{Shape, Transport};

/// The project's own files; and others of the same form beside the checkout, where they are.
const FOLDERS: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/golden"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/golden"),
];

/// The files of `$ATPM_GOLDEN`, else those of `data/golden` and, where it is, of `../shared/golden` beside the checkout.
///
/// # Panics
/// If there are fewer than ten.
#[must_use]
pub fn golden_files() -> Vec<PathBuf> {
    let chosen = std::env::var_os("ATPM_GOLDEN");
    let folders = chosen.map_or_else(|| FOLDERS.map(PathBuf::from).to_vec(), |folder| vec![folder.into()]);
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "safetensors"));
    files.sort();
    assert!(files.len() >= 10, "there are {} golden files in {folders:?}, see data/README.md", files.len());
    files
}

/// A golden file in f64: inputs of one row and one head in the layout of [`crate::ops::mixer`], and what comes out.
#[expect(missing_docs, reason = "the names are those of the op's inputs and outputs")]
pub struct Golden {
    pub shape: Shape,
    pub x: Tensor,
    pub controls: Tensor,
    pub transport: Transport,
    pub state: Tensor,
    pub dy: Tensor,
    pub dstate: Tensor,
    /// `y`, the final state, `dx`, `dcontrols`, the gradients of the state, `a_key`, `a_value` and `c`.
    pub want: [Tensor; 8],
}

/// Reads a file.
///
/// # Errors
/// No such file; a tensor that it lacks is a panic.
pub fn golden(path: &Path) -> Result<Golden> {
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
    Ok(Golden {
        shape,
        x: reads("")?,
        controls: controls("")?,
        transport: Transport { a_key: head("A_K")?, a_value: head("A_V")?, c: head("C")? },
        state: state("E0")?,
        dy: head("dy")?,
        dstate: state("dE_T")?,
        want: [
            head("y")?,
            state("E_T")?,
            reads("grad.")?,
            controls("grad.")?,
            state("grad.E0")?,
            head("grad.A_K")?,
            head("grad.A_V")?,
            head("grad.C")?,
        ],
    })
}

/// The gradients inside `dx` and `dcontrols` apart, so that a small one cannot hide behind a large one; any other
/// tensor as it is.
///
/// # Errors
/// Shapes that are not the mixer's.
pub fn golden_parts(shape: &Shape, name: &'static str, value: &Tensor) -> Result<Vec<(String, Tensor)>> {
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
