//! The LSTM in plain candle operations: the definition of correct.

use candle_core::{Device, Tensor};
use candle_nn::ops::sigmoid;

use super::State;
use crate::{Result, Segments};

/// `h [B,T,d]` of `x [B,T,4d]`, `weight [4d,d]`, `bias [4,d]` and `state` (zeros when absent), of any floating-point
/// dtype.
///
/// # Errors
/// Whatever candle refuses.
pub fn forward(
    x: &Tensor,
    weight: &Tensor,
    bias: &Tensor,
    state: Option<&State>,
    segments: &Segments,
) -> Result<Tensor> {
    let (batch, tokens, _) = x.dims3()?;
    let width = weight.dim(1)?;
    let zeros = || Tensor::zeros((batch, width), x.dtype(), x.device());
    let (mut h, mut c) = match state {
        Some(state) => (state.h.clone(), state.c.clone()),
        None => (zeros()?, zeros()?),
    };
    let mut outputs = Vec::new();
    for token in 0..tokens {
        let goes_on: Vec<f64> = (0..batch).map(|row| f64::from(!segments.is_start(row, token))).collect();
        let goes_on = Tensor::from_vec(goes_on, (batch, 1), &Device::Cpu)?.to_dtype(x.dtype())?;
        h = h.broadcast_mul(&goes_on)?;
        c = c.broadcast_mul(&goes_on)?;
        let z = (x.narrow(1, token, 1)?.squeeze(1)? + h.matmul(&weight.t()?)?)?;
        let z = z.broadcast_add(&bias.flatten_all()?)?;
        let gate = |index: usize| z.narrow(1, index * width, width);
        let (i, f, o) = (sigmoid(&gate(0)?)?, sigmoid(&gate(1)?)?, sigmoid(&gate(3)?)?);
        c = ((f * &c)? + (i * gate(2)?.tanh()?)?)?;
        h = (o * c.tanh()?)?;
        outputs.push(h.clone());
    }
    Ok(Tensor::stack(&outputs, 1)?)
}
