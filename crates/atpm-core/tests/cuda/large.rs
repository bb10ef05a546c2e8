//! Long sequences and wide heads, rows and vocabularies. On a GPU they take seconds, by emulation long: run them with
//! `--include-ignored`.

use atpm_core::ops::mixer::Shape;
use atpm_core::ops::{cross_entropy, rms_norm};
use atpm_core::testing::Random;
use atpm_core::{Precision, Result, Segments};
use candle_core::DType;

use crate::mixer::{Case, KERNELS};
use crate::rounded::assert_mixer_near_cpu;
use crate::{assert_same_as_cpu, put};

#[test]
#[ignore = "for a GPU: long by emulation"]
fn a_long_sequence() -> Result<()> {
    let shape = Shape { heads: 4, address: 64, key: 32, value: 32, rank: 16, query_norm: true };
    let segments = Segments::from_starts(16 * 1024 + 1, vec![vec![9000]])?;
    let case = Case::random(shape, segments)?;
    assert_same_as_cpu("a long sequence", &KERNELS, || case.values());
    Ok(())
}

// Where 16 bits, and twice as many tokens, would have been a grid's limit or an offset's.
#[test]
#[ignore = "for a GPU: long by emulation"]
fn around_65536_tokens_and_beyond() -> Result<()> {
    let shape = Shape { heads: 1, address: 16, key: 8, value: 8, rank: 4, query_norm: true };
    for tokens in [65_535, 65_536, 65_537, 131_073] {
        let case = Case::random(shape, Segments::continuous(1, tokens))?;
        assert_same_as_cpu(&format!("{tokens} tokens"), &KERNELS, || case.values());
        assert_mixer_near_cpu(&format!("{tokens} tokens in bf16"), &case);
    }
    Ok(())
}

#[test]
#[ignore = "for a GPU: long by emulation"]
fn addresses_that_repeat_for_long() -> Result<()> {
    for noise in [0.0, 0.01] {
        for beta in [0.835, 1.0] {
            let (case, name) =
                (Case::repeated_addresses(8192, noise, beta)?, format!("address noise {noise}, beta {beta}"));
            assert_same_as_cpu(&name, &KERNELS, || case.values());
            assert_mixer_near_cpu(&format!("{name} in bf16"), &case);
        }
    }
    Ok(())
}

#[test]
#[ignore = "for a GPU: long by emulation"]
fn the_widest_head() -> Result<()> {
    let shape = Shape { heads: 2, address: 256, key: 256, value: 256, rank: 64, query_norm: true };
    let case = Case::random(shape, Segments::continuous(3, 200))?;
    assert_same_as_cpu("the widest head", &KERNELS, || case.values());
    Ok(())
}

#[test]
#[ignore = "for a GPU: long by emulation"]
fn many_rows_and_a_large_vocabulary() -> Result<()> {
    let mut random = Random::new(61);
    let (rows, width) = (100_000, 1024);
    let (x, dy) = (random.normal((rows, width), DType::F32)?, random.normal((rows, width), DType::F32)?);
    let weight = random.uniform(0.5, 1.5, width, DType::F32)?;
    let kernels = ["rms_norm_forward_f32", "rms_norm_backward_f32", "add_partials"];
    assert_same_as_cpu("rms_norm of many rows", &kernels, || {
        let [x, dy, weight] = put([&x, &dy, &weight])?;
        let (y, dweight) = (rms_norm::forward(&x, &weight, 1e-5)?, weight.zeros_like()?);
        let dx = rms_norm::backward(&x, &weight, 1e-5, &dy, None, &dweight)?;
        Ok(vec![("y", y), ("dx", dx), ("dweight", dweight)])
    });

    let (tokens, vocabulary) = (cross_entropy::TOKENS_PER_BLOCK, 50_257);
    let x = random.normal((tokens, 256), DType::F32)?;
    let weight = (random.normal((vocabulary, 256), DType::F32)? * 0.05)?;
    let targets = random.ids(vocabulary, tokens)?;
    let options = cross_entropy::Options { precision: Precision::F32, z_loss: 0.0 };
    let kernels = ["product", "cross_entropy_gradient_f32", "product", "product"];
    assert_same_as_cpu("cross_entropy of a large vocabulary", &kernels, || {
        let [x, weight] = put([&x, &weight])?;
        let dweight = weight.zeros_like()?;
        let scale = 1.0 / tokens as f64;
        let (losses, dx) = cross_entropy::forward_backward(&x, &weight, &targets, scale, options, &dweight)?;
        Ok(vec![("losses", losses), ("dx", dx), ("dweight", dweight)])
    });
    Ok(())
}
