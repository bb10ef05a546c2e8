//! Ops with tokens in order: the convolution, and the gates that feed the mixer.

use atpm_core::ops::gates::{self, Pins};
use atpm_core::ops::short_conv;
use atpm_core::testing::Random;
use atpm_core::{Result, Segments};
use candle_core::DType;

use crate::{assert_same_as_cpu, put, put_optional};

#[test]
fn short_conv_launches() -> Result<()> {
    for (tokens, channels, width) in [(1, 5, 4), (3, 5, 4), (65, 130, 2), (130, 3, 8)] {
        let mut random = Random::new(41);
        let [x, dy] = [(); 2].map(|()| random.normal((2, tokens, channels), DType::F32).expect("numbers"));
        let [state, dfinal] =
            [(); 2].map(|()| random.normal((2, width - 1, channels), DType::F32).expect("numbers"));
        let weight = random.normal((channels, width), DType::F32)?;
        let starts = vec![vec![], vec![tokens / 3, tokens - 1]];
        let starts = starts.into_iter().map(|mut row: Vec<usize>| {
            row.dedup();
            row
        });
        let packed = Segments::from_starts(tokens, starts.collect())?;
        let kernels = ["short_conv_forward_f32", "short_conv_backward_f32", "add_partials"];
        for (segments, given) in [(&packed, true), (&Segments::continuous(2, tokens), false)] {
            let (state, dfinal) = (given.then_some(&state), given.then_some(&dfinal));
            assert_same_as_cpu(&format!("short_conv {tokens} {channels} {width} {given}"), &kernels, || {
                let [x, weight, dy] = put([&x, &weight, &dy])?;
                let (state, dfinal) = (put_optional(state)?, put_optional(dfinal)?);
                let (state, dfinal) = (state.as_ref(), dfinal.as_ref());
                let dweight = weight.copy()?;
                let (y, last) = short_conv::forward(&x, &weight, state, segments)?;
                let (dx, dstate) = short_conv::backward(&x, &weight, state, segments, &dy, dfinal, &dweight)?;
                Ok(vec![("y", y), ("state", last), ("dx", dx), ("dstate", dstate), ("dweight", dweight)])
            });
        }
    }
    Ok(())
}

#[test]
fn gates_launch() -> Result<()> {
    let free = Pins::default();
    let pinned = Pins { rho: Some(0.25), lambda: None, tie_beta: true };
    for (tokens, heads, pins) in [(1, 1, free), (65, 3, free), (33, 40, pinned), (130, 2, pinned)] {
        let mut random = Random::new(42);
        let [logits, dcontrols] =
            [(); 2].map(|()| random.normal((2, tokens, 5, heads), DType::F32).expect("numbers"));
        let [a_log, dt_bias] = [(); 2].map(|()| random.normal(heads, DType::F32).expect("numbers"));
        let bias = random.normal((4, heads), DType::F32)?;
        // Sums over blocks, then one addition for each of three parameters.
        let kernels =
            [&["gates_forward", "gates_backward"][..], ["add_partials"].repeat(4).as_slice()].concat();
        assert_same_as_cpu(&format!("gates {tokens} {heads} {pins:?}"), &kernels, || {
            let [logits, a_log, dt_bias] = put([&logits, &a_log, &dt_bias])?;
            let [bias, dcontrols] = put([&bias, &dcontrols])?;
            let controls = gates::forward(&logits, &a_log, &dt_bias, &bias, pins)?;
            let (da_log, ddt_bias, dbias) = (a_log.copy()?, dt_bias.copy()?, bias.copy()?);
            let sums = (&da_log, &ddt_bias, &dbias);
            let dlogits =
                gates::backward(&logits, &a_log, &dt_bias, &bias, pins, &dcontrols, sums.0, sums.1, sums.2)?;
            Ok(vec![
                ("controls", controls),
                ("dlogits", dlogits),
                ("da_log", da_log),
                ("ddt_bias", ddt_bias),
                ("dbias", dbias),
            ])
        });
    }
    Ok(())
}
