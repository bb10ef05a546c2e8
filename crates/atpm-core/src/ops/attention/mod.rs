//! Causal softmax attention with rotary positions: the baseline that keeps everything it has read.
//!
//! Shapes: `qkv [B,T,3C]` (queries, then keys, then values), `C = H·D`, `y [B,T,C]`. dtype f32 (f64 in tests),
//! accumulated in the same. Rotary positions (RoFormer, arXiv:2104.09864) turn channels `i` and `i + D/2` of a query
//! or key at place `p` by the angle `p·10000^(−2i/D)`; a token sees itself and the earlier tokens of its document.
//! With rotated `q`, `k`, and `w = 1/√D`, per head:
//!
//! ```text
//! P_tj = exp(w q_t·k_j − l_t)      l_t = ln Σ_j exp(w q_t·k_j)      y_t = Σ_j P_tj v_j
//! δ_t  = dy_t·y_t      dS_tj = w P_tj (dy_t·v_j − δ_t)
//! dq_t = Σ_j dS_tj k_j      dk_j = Σ_t dS_tj q_t      dv_j = Σ_t P_tj dy_t
//! ```
//!
//! Saved for backward: the rotated `qkv`, `l` and `y`; `P` is computed again, in blocks of queries, so that memory
//! grows with `T` and not with its square (FlashAttention, arXiv:2205.14135). There is no CUDA kernel.

mod cpu;
pub mod reference;
#[cfg(test)]
mod tests;

use candle_core::{DType, Tensor};

use crate::elements::{Element, expect_shape, read_all, real_dtype, tensor, with_real};
use crate::vector::unset;
use crate::{Error, Result, Segments};
use cpu::Sizes;

const OP: &str = "attention";

/// What was read before a row: it grows by each token.
#[derive(Debug, Clone)]
pub struct Past {
    /// Rotated keys `[B,L,C]`.
    pub keys: Tensor,
    /// Values `[B,L,C]`.
    pub values: Tensor,
    /// The first token of the `L` that a row's open document still sees, `[B]`, `L` where it sees none of them; of any
    /// dtype that holds it.
    pub first: Tensor,
}

/// What backward needs.
#[derive(Debug, Clone)]
pub struct Saved {
    /// `[B,T,3C]`, queries and keys rotated.
    pub rotated: Tensor,
    /// `l [B,H,T]`.
    pub log_sums: Tensor,
    /// The output `[B,T,C]`.
    pub y: Tensor,
}

/// `y [B,T,C]` of `qkv [B,T,3C]` for `heads` heads, behind `past`; and what backward needs.
///
/// # Errors
/// Shapes or dtypes that do not fit, a head of an odd number of channels, a first token of the past that is none of its
/// places, a device without an implementation.
pub fn forward(
    qkv: &Tensor,
    heads: usize,
    past: Option<&Past>,
    segments: &Segments,
) -> Result<(Tensor, Saved)> {
    let sizes = check(qkv, heads, past, segments)?;
    let dtype = real_dtype(OP, &[qkv, past.map_or(qkv, |past| &past.keys)])?;
    with_real!(dtype, T => forward_as::<T>(qkv, past, segments, sizes))
}

fn forward_as<T: Element>(
    qkv: &Tensor,
    past: Option<&Past>,
    segments: &Segments,
    sizes: Sizes,
) -> Result<(Tensor, Saved)> {
    let Sizes { batch, tokens, heads, .. } = sizes;
    let channels = sizes.channels();
    let mut rotated = unset::<T>(batch * tokens * 3 * channels);
    read_all(OP, [qkv], |[qkv]| {
        rotated.copy_from_slice(qkv);
        cpu::rotate(&sizes, &mut rotated, false);
        Ok(())
    })?;
    let first = first_seen(past, segments, sizes.past)?;
    let mut y = unset::<T>(batch * tokens * channels);
    let mut log_sums = unset::<T>(batch * heads * tokens);
    let none = || Tensor::zeros(0, qkv.dtype(), qkv.device());
    let (keys, values) = match past {
        Some(past) => (past.keys.clone(), past.values.clone()),
        None => (none()?, none()?),
    };
    read_all(OP, [&keys, &values], |[keys, values]| {
        let inputs = cpu::Inputs { sizes, rotated: &rotated, past: (keys, values), first: &first };
        cpu::forward(&inputs, &mut y, &mut log_sums);
        Ok(())
    })?;
    let y = tensor(y, (batch, tokens, channels))?;
    let saved = Saved {
        rotated: tensor(rotated, qkv.shape())?,
        log_sums: tensor(log_sums, (batch, heads, tokens))?,
        y: y.clone(),
    };
    Ok((y, saved))
}

/// `dqkv [B,T,3C]` from `dy [B,T,C]`, for rows that began with nothing behind them.
///
/// # Errors
/// As [`forward`].
pub fn backward(saved: &Saved, heads: usize, dy: &Tensor, segments: &Segments) -> Result<Tensor> {
    let sizes = check(&saved.rotated, heads, None, segments)?;
    expect_shape(OP, "dy", dy, saved.y.dims(), "[B,T,C]")?;
    let dtype = real_dtype(OP, &[&saved.rotated, &saved.y, dy])?;
    with_real!(dtype, T => backward_as::<T>(saved, dy, segments, sizes))
}

fn backward_as<T: Element>(saved: &Saved, dy: &Tensor, segments: &Segments, sizes: Sizes) -> Result<Tensor> {
    let first = first_seen(None, segments, 0)?;
    let mut dqkv = vec![T::zero(); saved.rotated.elem_count()];
    read_all(OP, [&saved.rotated, &saved.log_sums, &saved.y, dy], |[rotated, log_sums, y, dy]| {
        let inputs = cpu::Inputs { sizes, rotated, past: (&[], &[]), first: &first };
        cpu::backward(&inputs, log_sums, y, dy, &mut dqkv);
        cpu::rotate(&sizes, &mut dqkv, true);
        Ok(())
    })?;
    tensor(dqkv, saved.rotated.shape())
}

/// What a row that goes on behind these tokens has read: the tokens of `saved` after `past`.
///
/// # Errors
/// Shapes that do not fit.
pub fn remember(past: &Past, saved: &Saved, segments: &Segments) -> Result<Past> {
    let triple = saved.rotated.dim(2)?;
    let part = |index| saved.rotated.narrow(2, index * (triple / 3), triple / 3);
    let length = past.keys.dim(1)?;
    let append = |old: &Tensor, new: Tensor| {
        if length == 0 { new.contiguous() } else { Tensor::cat(&[old, &new], 1) }
    };
    let mut first = places(past)?;
    for (row, first) in first.iter_mut().enumerate() {
        if let Some(start) = segments.row(row).last() {
            *first = (length + start) as u32;
        }
    }
    Ok(Past {
        keys: append(&past.keys, part(1)?)?,
        values: append(&past.values, part(2)?)?,
        first: Tensor::new(first, past.first.device())?.to_dtype(past.first.dtype())?,
    })
}

/// For each token, the first of all tokens (those of the past and the row's own) that it sees.
fn first_seen(past: Option<&Past>, segments: &Segments, length: usize) -> Result<Vec<usize>> {
    let open = match past {
        Some(past) => places(past)?,
        None => vec![0; segments.batch()],
    };
    let mut first = Vec::with_capacity(segments.batch() * segments.tokens());
    for (row, &open) in open.iter().enumerate() {
        for (token, position) in segments.row_positions(row).enumerate() {
            first.push(if position.continues { open as usize } else { length + token - position.in_row });
        }
    }
    Ok(first)
}

fn places(past: &Past) -> Result<Vec<u32>> {
    Ok(past.first.to_dtype(DType::U32)?.to_vec1()?)
}

fn check(qkv: &Tensor, heads: usize, past: Option<&Past>, segments: &Segments) -> Result<Sizes> {
    let (batch, tokens) = (segments.batch(), segments.tokens());
    let triple = qkv.dims().last().copied().unwrap_or(0);
    expect_shape(OP, "qkv", qkv, &[batch, tokens, triple], "[B,T,3C]")?;
    let width = triple / 3 / heads.max(1);
    if width == 0 || triple != 3 * heads * width || !width.is_multiple_of(2) {
        let problem =
            format!("{triple} channels are no three times {heads} heads of an even number of channels each");
        return Err(Error::Argument { op: OP, problem });
    }
    let length = past.map_or(0, |past| past.keys.dims().get(1).copied().unwrap_or(0));
    if let Some(past) = past {
        for (name, part) in [("past.keys", &past.keys), ("past.values", &past.values)] {
            expect_shape(OP, name, part, &[batch, length, heads * width], "[B,L,C]")?;
        }
        expect_shape(OP, "past.first", &past.first, &[batch], "[B]")?;
        check_first(past, length)?;
    }
    Ok(Sizes { batch, tokens, past: length, heads, width })
}

/// Refuses a first token that is no place of the past, nor the one after it: it may come out of a damaged file.
fn check_first(past: &Past, length: usize) -> Result<()> {
    let first = past.first.to_dtype(DType::F64)?.to_vec1::<f64>()?;
    let is_place = |&first: &f64| first.fract() == 0.0 && (0.0..=length as f64).contains(&first);
    match first.iter().position(|first| !is_place(first)) {
        None => Ok(()),
        Some(row) => {
            let problem = format!("`past.first` of row {row} is {}, not from 0 to {length}", first[row]);
            Err(Error::Argument { op: OP, problem })
        }
    }
}
