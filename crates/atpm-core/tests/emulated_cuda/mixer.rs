//! The mixer.

use atpm_core::ops::mixer::{Inputs, Shape, Transport, backward, forward};
use atpm_core::testing::Random;
use atpm_core::{Result, Segments};
use candle_core::DType;

use crate::assert_same_as_cpu;

const KERNELS: [&str; 9] = [
    "mixer_addresses_f32",
    "mixer_prepare_f32",
    "mixer_scan_f32",
    "mixer_addresses_f32",
    "mixer_prepare_f32",
    "mixer_scan_backward_f32",
    "mixer_entity_backward_f32",
    "mixer_address_backward_f32",
    "mixer_addresses_backward_f32",
];

#[test]
fn mixer_launches() -> Result<()> {
    // Less than a chunk, chunks and a token, more chunks than a group; slices that are not full, and narrow scans.
    for (tokens, address, key, value, rank, query_norm) in [
        (7, 16, 8, 8, 3, true),
        (129, 32, 24, 72, 16, false),
        (520, 16, 8, 16, 5, true),
        (65, 208, 8, 40, 64, true),
    ] {
        let shape = Shape { heads: 2, address, key, value, rank, query_norm };
        let (batch, heads, entity) = (2, 2, key + value);
        let mut random = Random::new(51);
        let mut normal = |shape: &[usize]| random.normal(shape, DType::F32);
        let x = normal(&[batch, tokens, heads * shape.channels()])?;
        let dy = normal(&[batch, tokens, heads * entity])?;
        let state = normal(&[batch, heads, address, entity])?;
        let dstate = normal(&[batch, heads, address, entity])?;
        let transport = Transport {
            a_key: normal(&[heads, rank, key])?,
            a_value: normal(&[heads, rank, value])?,
            c: normal(&[heads, address, rank])?,
        };
        let strengths = random.uniform(0.05, 0.95, (batch, tokens, 4, heads), DType::F32)?;
        let decays = random.uniform(-0.5, -0.001, (batch, tokens, 1, heads), DType::F32)?;
        let controls = candle_core::Tensor::cat(&[&decays, &strengths], 2)?;
        let packed = Segments::from_starts(tokens, vec![vec![], vec![tokens / 2]])?;
        for (segments, given) in [(&packed, true), (&Segments::continuous(batch, tokens), false)] {
            let inputs = Inputs {
                x: &x,
                controls: &controls,
                transport: &transport,
                state: given.then_some(&state),
                segments,
            };
            let kernels = [&KERNELS[..], &["mixer_transport_gradients"]].concat();
            assert_same_as_cpu(&format!("mixer {shape:?} {tokens} {given}"), &kernels, || {
                let Transport { a_key, a_value, c } = &transport;
                let sums = Transport { a_key: a_key.copy()?, a_value: a_value.copy()?, c: c.copy()? };
                let (outputs, saved) = forward(&shape, &inputs, true)?;
                let saved = saved.expect("saved for backward");
                let gradients = backward(&shape, &inputs, &saved, &dy, given.then_some(&dstate), &sums)?;
                Ok(vec![
                    ("y", outputs.y),
                    ("state", outputs.state),
                    ("address_norm", outputs.address_norm),
                    ("dx", gradients.x),
                    ("dcontrols", gradients.controls),
                    ("dstate", gradients.state),
                    ("da_key", sums.a_key),
                    ("da_value", sums.a_value),
                    ("dc", sums.c),
                ])
            });
        }
    }
    Ok(())
}
