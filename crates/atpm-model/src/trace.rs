//! What moved a layer's memory: the controllers of every head at every token, and what the token found there.
//!
//! Letters as in [`atpm_core::ops::mixer`]: `r = e − αE₋ᵀs` is what the token's entity `e = [k; v]` differs by from what the
//! memory held at its address `s`.

use atpm_core::ops::mixer::{Inputs, Transport, reference};
use candle_core::{D, Tensor};

use crate::telemetry::{Seen, on_host};
use crate::{Error, Result};

/// What is traced, per token and head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// ρ, the strength of transport.
    Rho,
    /// λ, the strength of the recall correction.
    Lambda,
    /// β_K, the write strength of the key block.
    BetaKey,
    /// β_V, the write strength of the value block.
    BetaValue,
    /// α, the factor by which the state decayed before the write; 0 at a document's first token.
    Alpha,
    /// `‖r‖`, how far the token's entity was from what the memory held at its address.
    Residual,
    /// `‖e‖`, the token's entity: what `‖r‖` would be with an empty memory.
    Entity,
}

impl Quantity {
    /// All of them, in the order of the enum.
    pub const ALL: [Self; 7] =
        [Self::Rho, Self::Lambda, Self::BetaKey, Self::BetaValue, Self::Alpha, Self::Residual, Self::Entity];

    /// What it is called in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rho => "rho",
            Self::Lambda => "lambda",
            Self::BetaKey => "beta_key",
            Self::BetaValue => "beta_value",
            Self::Alpha => "alpha",
            Self::Residual => "residual",
            Self::Entity => "entity",
        }
    }
}

/// One layer's memory over one row of `T` tokens, with `H` heads.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryTrace {
    heads: usize,
    tokens: usize,
    /// `[T,H]` each, in the order of [`Quantity::ALL`].
    values: [Vec<f64>; Quantity::ALL.len()],
}

impl MemoryTrace {
    /// From what a layer showed of one row. The controllers are those that the model computed; the residual is computed from
    /// them and from what the memory read, in f64, by the mixer's sequential definition ([`mod@reference`]).
    ///
    /// # Errors
    /// More rows than one, or whatever the definition refuses.
    pub fn of(seen: &Seen<'_>) -> Result<Self> {
        let Inputs { x, controls, transport, segments, .. } = seen.inputs;
        let (rows, tokens, channels) = x.dims3()?;
        if rows != 1 {
            return Err(Error::Input(format!("one row can be traced at a time, {rows} were given")));
        }
        let (x, controls) = (on_host(x)?, on_host(controls)?);
        let transport = Transport {
            a_key: on_host(&transport.a_key)?,
            a_value: on_host(&transport.a_value)?,
            c: on_host(&transport.c)?,
        };
        let inputs = Inputs { x: &x, controls: &controls, transport: &transport, state: None, segments };
        let residuals = reference::residuals(seen.shape, &inputs)?;

        let shape = seen.shape;
        let (heads, entity) = (shape.heads, shape.entity());
        let entities =
            x.reshape((1, tokens, heads, channels / heads))?.narrow(D::Minus1, 2 * shape.address, entity)?;
        let norms = |vectors: &Tensor| -> Result<Vec<f64>> {
            Ok(vectors.sqr()?.sum(D::Minus1)?.sqrt()?.flatten_all()?.to_vec1()?)
        };
        let control = |index: usize| -> Result<Vec<f64>> {
            Ok(controls.narrow(2, index, 1)?.flatten_all()?.to_vec1()?)
        };
        let decay = |(at, log_alpha): (usize, f64)| {
            if segments.is_start(0, at / heads) { 0.0 } else { log_alpha.exp() }
        };
        let alpha = control(0)?.into_iter().enumerate().map(decay).collect();
        Ok(Self {
            heads,
            tokens,
            values: [
                control(3)?,
                control(4)?,
                control(1)?,
                control(2)?,
                alpha,
                norms(&residuals)?,
                norms(&entities)?,
            ],
        })
    }

    /// `H`.
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// `T`.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// The value at a token and head.
    ///
    /// # Panics
    /// If there is no such token or head.
    pub fn at(&self, quantity: Quantity, token: usize, head: usize) -> f64 {
        assert!(head < self.heads, "head {head} of {}", self.heads);
        self.values[quantity as usize][token * self.heads + head]
    }
}
