//! The mixer's f32 kernels against the golden files' float64.

use atpm_core::ops::mixer::Transport;
use atpm_core::testing::{GOLDEN_FILES, assert_close, golden, golden_parts};
use atpm_core::{Result, Segments};
use candle_core::{DType, Device, Tensor};

use crate::mixer::Case;
use crate::on_kernels;

#[test]
fn the_kernels_hold_every_golden_file() -> Result<()> {
    for name in GOLDEN_FILES {
        let file = golden(name)?;
        let narrow = |tensor: &Tensor| tensor.to_dtype(DType::F32);
        let case = Case {
            shape: file.shape,
            x: narrow(&file.x)?,
            controls: narrow(&file.controls)?,
            transport: Transport {
                a_key: narrow(&file.transport.a_key)?,
                a_value: narrow(&file.transport.a_value)?,
                c: narrow(&file.transport.c)?,
            },
            states: Some((narrow(&file.state)?, narrow(&file.dstate)?)),
            segments: Segments::continuous(1, file.x.dim(1)?),
            dy: narrow(&file.dy)?,
        };
        let (got, _) = on_kernels(|| case.values());
        for ((output, got), want) in got?.into_iter().zip(&file.want) {
            let tolerance = if output.starts_with('d') { 1e-4 } else { 1e-5 };
            let got = golden_parts(&file.shape, output, &got.to_device(&Device::Cpu)?)?;
            for ((part, got), (_, want)) in got.iter().zip(golden_parts(&file.shape, output, want)?) {
                assert_close(&format!("{name}: {part}"), got, &want, tolerance);
            }
        }
    }
    Ok(())
}
