//! How the memory of each layer fares: what it writes, how long it keeps it, how large it grows.
//!
//! Transport keeps the mean-square growth of a state at or below one, but not the worst case (an
//! adversarial sequence of addresses can grow it while nothing decays), so norms are watched.

use atpm_core::ops::mixer::{Inputs, Outputs, Shape};
use candle_core::{DType, Device, Tensor};
use serde::Serialize;

use crate::Result;

/// Below this mean decay a token, a head counts as keeping everything; it bounds the half-life
/// that is reported.
const LEAST_DECAY: f64 = 1e-9;

/// The memory of one layer over one batch: means over rows, tokens and heads unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MemoryHealth {
    /// Half-life of a memory in tokens, `ln 2 / −mean(log α)` of a head; mean over heads.
    pub half_life: f64,
    /// The shortest half-life among the heads.
    pub half_life_min: f64,
    /// The longest half-life among the heads.
    pub half_life_max: f64,
    /// ρ, the strength of transport.
    pub rho: f64,
    /// λ, the strength of the recall correction.
    pub lambda: f64,
    /// β_K, the write strength of the key block.
    pub beta_key: f64,
    /// β_V, the write strength of the value block.
    pub beta_value: f64,
    /// `‖d‖` of the write address; between 1 and √2.
    pub address_norm: f64,
    /// The largest mean `‖d‖` of a row and head.
    pub address_norm_max: f64,
    /// How many directions the source addresses of the first row spread over: `(Σσ²)² / Σσ⁴` of their singular values,
    /// 1 if all tokens have one address. Mean over heads.
    pub address_rank: f64,
    /// Frobenius norm of the state after the last token.
    pub state_norm: f64,
    /// The largest state norm of a row and head.
    pub state_norm_max: f64,
}

/// What a layer with a memory shows of one forward pass that began with an empty memory.
pub struct Seen<'a> {
    /// Sizes of a head.
    pub shape: &'a Shape,
    /// What the memory read.
    pub inputs: Inputs<'a>,
    /// What it gave.
    pub outputs: &'a Outputs,
}

/// Someone who looks at each memory that a pass goes through.
pub type See<'a> = &'a mut dyn FnMut(&Seen<'_>) -> Result<()>;

/// [`MemoryHealth`] of the layer with this index.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LayerTelemetry {
    /// Index of the block, from 0.
    pub layer: usize,
    /// Its memory.
    #[serde(flatten)]
    pub memory: MemoryHealth,
}

impl MemoryHealth {
    /// From what a layer showed.
    ///
    /// # Errors
    /// Whatever a reduction or a device refuses.
    pub fn of(seen: &Seen<'_>) -> Result<Self> {
        let outputs = seen.outputs;
        let heads: Vec<Vec<f64>> = on_host(seen.inputs.controls)?.mean((0, 1))?.to_vec2()?;
        let half_lives: Vec<f64> =
            heads[0].iter().map(|log_alpha| std::f64::consts::LN_2 / (-log_alpha).max(LEAST_DECAY)).collect();
        let address_norms = flat(&on_host(&outputs.address_norm)?)?;
        let state_norms = flat(&on_host(&outputs.state)?.sqr()?.sum((2, 3))?.sqrt()?)?;
        Ok(Self {
            half_life: mean(&half_lives),
            half_life_min: -largest(half_lives.iter().map(|x| -x)),
            half_life_max: largest(half_lives.iter().copied()),
            beta_key: mean(&heads[1]),
            beta_value: mean(&heads[2]),
            rho: mean(&heads[3]),
            lambda: mean(&heads[4]),
            address_norm: mean(&address_norms),
            address_norm_max: largest(address_norms.iter().copied()),
            address_rank: mean(&address_ranks(seen.inputs.x, seen.shape)?),
            state_norm: mean(&state_norms),
            state_norm_max: largest(state_norms.iter().copied()),
        })
    }
}

/// [`MemoryHealth::address_rank`] of each head, from the mixer's input `[B,T,H·(2S+K+V)]`. One row is enough to see
/// whether addresses tell tokens apart, and a batch of a large model is slow to go through.
fn address_ranks(x: &Tensor, shape: &Shape) -> Result<Vec<f64>> {
    let row = on_host(&x.get(0)?)?;
    let tokens = row.dim(0)?;
    let source = row.reshape((tokens, shape.heads, ()))?.narrow(2, shape.address, shape.address)?;
    let source = source.transpose(0, 1)?.contiguous()?;
    let length = (source.sqr()?.sum_keepdim(2)? + f64::MIN_POSITIVE)?.sqrt()?;
    let source = source.broadcast_div(&length)?;
    // Both sums come from the Gram matrix: its trace is Σσ², the number of tokens, its squared norm Σσ⁴.
    let gram = source.transpose(1, 2)?.matmul(&source)?;
    let fourth: Vec<f64> = gram.sqr()?.sum((1, 2))?.to_vec1()?;
    Ok(fourth.iter().map(|fourth| (tokens * tokens) as f64 / fourth).collect())
}

/// Small enough to be copied: whichever device it comes from, it is looked at here, in f64.
pub(crate) fn on_host(tensor: &Tensor) -> Result<Tensor> {
    Ok(tensor.to_device(&Device::Cpu)?.to_dtype(DType::F64)?)
}

fn flat(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(tensor.flatten_all()?.to_vec1()?)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The largest value; a NaN among them is the largest, so that it is seen.
fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::NEG_INFINITY, |a, b| if a.is_nan() || a > b { a } else { b })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_ranks_count_the_directions_in_use() {
        let shape = Shape { heads: 3, address: 4, key: 1, value: 2, rank: 1, query_norm: true };
        // Of four tokens: the first head always points one way, at any length; the second takes turns between two
        // directions; the third has one of its own for each. What stands around the source must not matter.
        let x: Vec<f32> = (0..4)
            .flat_map(|token| {
                [0, token % 2, token].into_iter().flat_map(move |direction| {
                    let mut head = [7.0; 11];
                    head[4..8].fill(0.0);
                    head[4 + direction] = 1.0 + token as f32;
                    head
                })
            })
            .collect();
        let row = Tensor::from_vec(x, (1, 4, 33), &Device::Cpu).unwrap();
        let other = Tensor::ones((1, 4, 33), DType::F32, &Device::Cpu).unwrap();
        let ranks = address_ranks(&Tensor::cat(&[row, other], 0).unwrap(), &shape).unwrap();
        for (rank, expected) in ranks.iter().zip([1.0, 2.0, 4.0]) {
            assert!((rank - expected).abs() < 1e-12, "{ranks:?}");
        }
    }
}
