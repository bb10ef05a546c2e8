//! Ops around matrix products.

use atpm_core::ops::{cross_entropy, linear};
use atpm_core::testing::Random;
use atpm_core::{Precision, Result};
use candle_core::{DType, Device, Tensor};

use crate::{assert_refused, assert_same_as_cpu, has_empty_tensors, put};

#[test]
fn linear_launches() -> Result<()> {
    for (rows, inputs, outputs) in [(1, 1, 1), (3, 5, 7), (65, 16, 33), (0, 4, 6)] {
        if rows == 0 && !has_empty_tensors() {
            continue;
        }
        let mut random = Random::new(21);
        let x = random.normal((rows, inputs), DType::F32)?;
        let weight = random.normal((outputs, inputs), DType::F32)?;
        let dy = random.normal((rows, outputs), DType::F32)?;
        let products = if rows == 0 { 1 } else { 4 };
        let kernels = vec!["product"; products];
        assert_same_as_cpu(&format!("linear [{rows}, {inputs}] to {outputs}"), &kernels, || {
            let [x, weight, dy] = put([&x, &weight, &dy])?;
            let precision = Precision::F32;
            let y = linear::forward(&x, &weight, precision)?;
            let dx = linear::backward_input(&weight, &dy, precision)?;
            let (sum, dweight) = (x.copy()?, weight.copy()?);
            linear::backward_input_add(&weight, &dy, &sum, precision)?;
            linear::backward_weight(&x, &dy, &dweight, precision)?;
            Ok(vec![("y", y), ("dx", dx), ("dx added", sum), ("dweight", dweight)])
        });
    }
    Ok(())
}

#[test]
fn cross_entropy_launches() -> Result<()> {
    // Two blocks of tokens and a piece of one; a vocabulary that fills no block of threads.
    for (tokens, width, vocabulary) in [(1, 4, 3), (70, 9, 300), (1030, 6, 17)] {
        let mut random = Random::new(22);
        let x = random.normal((tokens, width), DType::F32)?;
        let weight = random.normal((vocabulary, width), DType::F32)?;
        let mut targets = random.ids(vocabulary, tokens)?.to_vec1::<u32>()?;
        targets.iter_mut().skip(3).step_by(5).for_each(|target| *target = cross_entropy::IGNORE);
        let targets = Tensor::new(targets, &Device::Cpu)?;
        let options = cross_entropy::Options { precision: Precision::F32, z_loss: 1e-3 };
        let blocks = tokens.div_ceil(cross_entropy::TOKENS_PER_BLOCK);
        let pass = ["product", "cross_entropy_gradient_f32", "product", "product"];
        let kernels = [["product", "cross_entropy_loss"].repeat(blocks), pass.repeat(blocks)].concat();
        assert_same_as_cpu(&format!("cross_entropy [{tokens}, {width}] {vocabulary}"), &kernels, || {
            let [x, weight] = put([&x, &weight])?;
            let alone = cross_entropy::forward(&x, &weight, &targets, Precision::F32)?;
            let dweight = weight.copy()?;
            let (losses, dx) =
                cross_entropy::forward_backward(&x, &weight, &targets, 0.125, options, &dweight)?;
            Ok(vec![("losses alone", alone), ("losses", losses), ("dx", dx), ("dweight", dweight)])
        });
    }
    Ok(())
}

#[test]
fn a_target_outside_the_vocabulary_is_refused_on_the_host() -> Result<()> {
    let (x, weight) =
        (Random::new(1).normal((2, 4), DType::F32)?, Random::new(2).normal((3, 4), DType::F32)?);
    let targets = Tensor::new(&[1u32, 3], &Device::Cpu)?;
    assert_refused("id 3 at position 1 is outside the table of 3 rows", || {
        let [x, weight] = put([&x, &weight])?;
        cross_entropy::forward(&x, &weight, &targets, Precision::F32)
    });
    Ok(())
}
