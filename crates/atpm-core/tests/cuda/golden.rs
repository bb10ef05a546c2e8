//! The mixer's f32 kernels against the golden files' float64, and its bf16 kernels on the files' inputs, rounded.

use atpm_core::ops::mixer::Transport;
use atpm_core::testing::{Golden, assert_close, golden, golden_files, golden_parts};
use atpm_core::{Result, Segments};
use candle_core::{DType, Device, Tensor};

use crate::mixer::Case;
use crate::on_kernels;
use crate::rounded::assert_mixer_near_cpu;

/// The file's inputs in f32.
fn case_of(file: &Golden) -> Result<Case> {
    let narrow = |tensor: &Tensor| tensor.to_dtype(DType::F32);
    let Transport { a_key, a_value, c } = &file.transport;
    Ok(Case {
        shape: file.shape,
        x: narrow(&file.x)?,
        controls: narrow(&file.controls)?,
        transport: Transport { a_key: narrow(a_key)?, a_value: narrow(a_value)?, c: narrow(c)? },
        states: Some((narrow(&file.state)?, narrow(&file.dstate)?)),
        segments: Segments::continuous(1, file.x.dim(1)?),
        dy: narrow(&file.dy)?,
    })
}

// What rounding the inputs changes is not the kernels' error: the CPU has the same numbers.
#[test]
fn the_bf16_kernels_hold_every_golden_file_rounded() -> Result<()> {
    for path in golden_files() {
        assert_mixer_near_cpu(&path.display().to_string(), &case_of(&golden(&path)?)?);
    }
    Ok(())
}

#[test]
fn the_kernels_hold_every_golden_file() -> Result<()> {
    for path in golden_files() {
        let file = golden(&path)?;
        let case = case_of(&file)?;
        let (got, _) = on_kernels(|| case.values());
        for ((output, got), want) in got?.into_iter().zip(&file.want) {
            let tolerance = if output.starts_with('d') { 1e-4 } else { 1e-5 };
            let got = golden_parts(&file.shape, output, &got.to_device(&Device::Cpu)?)?;
            for ((part, got), (_, want)) in got.iter().zip(golden_parts(&file.shape, output, want)?) {
                assert_close(&format!("{}: {part}", path.display()), got, &want, tolerance);
            }
        }
    }
    Ok(())
}
