//! The mixer's golden files: float64 vectors of the recurrence and all thirteen gradients, made by an independent
//! implementation (`../shared/golden/make_golden.py`).

use std::collections::HashMap;
use std::path::PathBuf;

use candle_core::{Device, Tensor};

use crate::Result;
use crate::ops::mixer::{Shape, Transport};

/// Names of the files.
pub const GOLDEN_FILES: [&str; 10] = [
    "one_token",
    "ragged",
    "two_chunks",
    "long",
    "strong_decay",
    "document_reset",
    "no_decay",
    "repeated_address_full_write",
    "gdn_endpoint",
    "rcqp_endpoint",
];

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

/// Reads a file from `$ATPM_GOLDEN`, else from `../shared/golden` beside the checkout.
///
/// # Errors
/// No such file; a tensor that it lacks is a panic.
pub fn golden(name: &str) -> Result<Golden> {
    let beside_the_checkout = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/golden").into();
    let folder = std::env::var_os("ATPM_GOLDEN").unwrap_or(beside_the_checkout);
    let path = PathBuf::from(folder).join(format!("{name}.safetensors"));
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
