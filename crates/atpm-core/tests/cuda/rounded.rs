//! Every op's launches with activations in bf16, against the same op on the CPU in f32.

use atpm_core::ops::mixer::Shape;
use atpm_core::ops::{cross_entropy, embedding, gated_norm, linear, rms_norm, short_conv, swiglu};
use atpm_core::testing::{Random, assert_close};
use atpm_core::{Precision, Result, Segments};
use candle_core::{DType, Device, Tensor};

use crate::mixer::{Case, DECAYS, KERNELS};
use crate::{Named, on_kernels, put};

const EPS: f64 = 1e-5;

/// Relative RMS errors that bf16 may make: of values, of gradients of inputs and weights, of those of the gates.
const VALUE: f64 = 5e-3;
const GRADIENT: f64 = 8e-3;
const GATE_GRADIENT: f64 = 2e-2;

/// What an op is given: activations in f32 and rounded to bf16, which hold the same numbers, and what is f32 with both.
struct Given {
    wide: Vec<Tensor>,
    rounded: Vec<Tensor>,
    parameters: Vec<Tensor>,
}

impl Given {
    fn new(activations: &[Tensor], parameters: &[&Tensor]) -> Result<Self> {
        let cast = |tensors: &[Tensor], dtype| {
            tensors.iter().map(|tensor| tensor.to_dtype(dtype)).collect::<candle_core::Result<Vec<_>>>()
        };
        let rounded = cast(activations, DType::BF16)?;
        let parameters = parameters.iter().map(|&tensor| tensor.clone()).collect();
        Ok(Self { wide: cast(&rounded, DType::F32)?, rounded, parameters })
    }
}

fn put_all(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    tensors.iter().map(|tensor| put([tensor]).map(|[tensor]| tensor)).collect()
}

/// Runs `op` on the CPU in f32, and on kernels in bf16, which must be these in this order; compares what it returns,
/// and what that is stored in. It gets the activations, then the parameters.
#[track_caller]
fn assert_near_cpu(
    case: &str,
    kernels: &[&str],
    given: &Given,
    op: impl Fn(&[Tensor], &[Tensor], Precision) -> Result<Vec<(Named, DType)>>,
) {
    let want = op(&given.wide, &given.parameters, Precision::F32);
    let want = want.unwrap_or_else(|error| panic!("{case} on the CPU: {error}"));
    let (got, launched) =
        on_kernels(|| op(&put_all(&given.rounded)?, &put_all(&given.parameters)?, Precision::Bf16));
    let got = got.unwrap_or_else(|error| panic!("{case} on kernels: {error}"));
    assert!(launched.as_ref().is_none_or(|launched| launched == kernels), "{case}: launched {launched:?}");
    for (((name, got), dtype), ((_, want), _)) in got.iter().zip(&want) {
        assert_near(case, name, got, (want, *dtype));
    }
}

/// That `got` is near the CPU's and stored in this type.
#[track_caller]
fn assert_near(case: &str, name: &str, got: &Tensor, (want, dtype): (&Tensor, DType)) {
    assert_eq!(got.dtype(), dtype, "{case}: {name}");
    let tolerance = match name {
        "dcontrols" => GATE_GRADIENT,
        name if name.starts_with('d') => GRADIENT,
        _ => VALUE,
    };
    let got = got.to_device(&Device::Cpu).and_then(|got| got.to_dtype(DType::F32));
    let got = got.unwrap_or_else(|error| panic!("{case}: {name}: {error}"));
    assert_close(&format!("{case}: {name}"), &got, want, tolerance);
}

const ROUNDED: DType = DType::BF16;
const WIDE: DType = DType::F32;

#[test]
fn norms_and_swiglu_in_bf16() -> Result<()> {
    for (rows, width) in [(1, 2), (7, 40), (65, 130)] {
        let mut random = Random::new(61);
        let weight = random.uniform(0.5, 1.5, width, WIDE)?;
        let mut normal = |width: usize| random.normal((rows, width), WIDE);
        let case = format!("[{rows}, {width}]");
        let inputs = Given::new(&[normal(width)?, normal(width)?, normal(width)?], &[&weight])?;
        let kernels = ["rms_norm_forward_bf16", "rms_norm_backward_bf16", "add_partials"];
        assert_near_cpu(&format!("rms_norm {case}"), &kernels, &inputs, |t, p, _| {
            let (y, dweight) = (rms_norm::forward(&t[0], &p[0], EPS)?, p[0].copy()?);
            let dx = rms_norm::backward(&t[0], &p[0], EPS, &t[1], Some(&t[2]), &dweight)?;
            Ok(vec![(("y", y), ROUNDED), (("dx", dx), ROUNDED), (("dweight", dweight), WIDE)])
        });
        let forward = "gated_norm_forward_bf16";
        let kernels = [forward, "gated_norm_backward_bf16", "add_partials", forward];
        assert_near_cpu(&format!("gated_norm {case}"), &kernels, &inputs, |t, p, _| {
            let (out, dweight) = (gated_norm::forward(&t[0], &t[1], &p[0], EPS)?, p[0].copy()?);
            let (dy, dgate, again) = gated_norm::backward(&t[0], &t[1], &p[0], EPS, &t[2], &dweight)?;
            Ok(vec![
                (("out", out), ROUNDED),
                (("dy", dy), ROUNDED),
                (("dgate", dgate), ROUNDED),
                (("dweight", dweight), WIDE),
                (("again", again), ROUNDED),
            ])
        });
        let inputs = Given::new(&[normal(2 * width)?, normal(width)?], &[])?;
        let kernels = ["swiglu_forward_bf16", "swiglu_backward_bf16", "swiglu_forward_bf16"];
        assert_near_cpu(&format!("swiglu {case}"), &kernels, &inputs, |t, _, _| {
            let out = swiglu::forward(&t[0])?;
            let (dx, again) = swiglu::backward(&t[0], &t[1])?;
            Ok(vec![(("out", out), ROUNDED), (("dx", dx), ROUNDED), (("again", again), ROUNDED)])
        });
    }
    Ok(())
}

#[test]
fn products_in_bf16() -> Result<()> {
    for (rows, inputs, outputs) in [(1, 1, 1), (3, 5, 7), (65, 48, 33)] {
        let mut random = Random::new(62);
        let weight = random.normal((outputs, inputs), WIDE)?;
        let dlogits = random.normal((rows, outputs), WIDE)?;
        let activations = [random.normal((rows, inputs), WIDE)?, random.normal((rows, outputs), WIDE)?];
        let activations = Given::new(&activations, &[&weight, &dlogits])?;
        let round = "cast_f32_to_bf16";
        let kernels = [
            &[round, "product"][..],          // y
            &["cast_bf16_to_f32", "product"], // logits
            &[round, "product"],              // dx
            &[round, round, "product"],       // dx of the logits, added
            &["product"],                     // dweight
            &[round, "product"],              // dweight of the logits
        ]
        .concat();
        let case = format!("linear [{rows}, {inputs}] to {outputs}");
        assert_near_cpu(&case, &kernels, &activations, |t, p, precision| {
            let (weight, dlogits) = (&p[0], &p[1]);
            let y = linear::forward(&t[0], weight, precision)?;
            // In full precision: what comes out is f32, what goes back is rounded.
            let logits = linear::forward(&t[0], weight, Precision::F32)?;
            let dx = linear::backward_input(weight, &t[1], precision)?;
            let sum = dx.copy()?;
            linear::backward_input_add(weight, dlogits, &sum, Precision::F32)?;
            let (dweight, dcontrols) = (weight.copy()?, weight.copy()?);
            linear::backward_weight(&t[0], &t[1], &dweight, precision)?;
            linear::backward_weight(&t[0], dlogits, &dcontrols, Precision::F32)?;
            Ok(vec![
                (("y", y), ROUNDED),
                (("logits", logits), WIDE),
                (("dx", dx), ROUNDED),
                (("dx added", sum), ROUNDED),
                (("dweight", dweight), WIDE),
                (("dweight of logits", dcontrols), WIDE),
            ])
        });
    }
    Ok(())
}

#[test]
fn cross_entropy_in_bf16() -> Result<()> {
    for (tokens, width, vocabulary) in [(1, 4, 3), (70, 10, 300), (1030, 6, 17)] {
        let mut random = Random::new(63);
        let weight = random.normal((vocabulary, width), WIDE)?;
        let x = Given::new(&[random.normal((tokens, width), WIDE)?], &[&weight])?;
        let mut targets = random.ids(vocabulary, tokens)?.to_vec1::<u32>()?;
        targets.iter_mut().skip(3).step_by(5).for_each(|target| *target = cross_entropy::IGNORE);
        let targets = Tensor::new(targets, &Device::Cpu)?;
        let blocks = tokens.div_ceil(cross_entropy::TOKENS_PER_BLOCK);
        let pass = ["product", "cross_entropy_gradient_bf16", "product", "product"];
        let alone = ["product", "cross_entropy_loss"].repeat(blocks);
        let round = ["cast_f32_to_bf16"];
        let kernels = [&round[..], &alone, &round, &pass.repeat(blocks)].concat();
        let case = format!("cross_entropy [{tokens}, {width}] {vocabulary}");
        assert_near_cpu(&case, &kernels, &x, |t, p, precision| {
            let weight = &p[0];
            let alone = cross_entropy::forward(&t[0], weight, &targets, precision)?;
            let dweight = weight.copy()?;
            let options = cross_entropy::Options { precision, z_loss: 1e-3 };
            let (losses, dx) =
                cross_entropy::forward_backward(&t[0], weight, &targets, 0.125, options, &dweight)?;
            Ok(vec![
                (("losses alone", alone), WIDE),
                (("losses", losses), WIDE),
                (("dx", dx), ROUNDED),
                (("dweight", dweight), WIDE),
            ])
        });
    }
    Ok(())
}

#[test]
fn embedding_in_bf16() -> Result<()> {
    let (positions, rows, width) = (130, 50, 258);
    let mut random = Random::new(64);
    let (ids, table) = (random.ids(rows, positions)?, random.normal((rows, width), WIDE)?);
    let dy = Given::new(&[random.normal((positions, width), WIDE)?], &[&table])?;
    assert_near_cpu(
        "embedding",
        &["embedding_forward_bf16", "embedding_backward_bf16"],
        &dy,
        |t, p, precision| {
            let (y, dtable) = (embedding::forward(&ids, &p[0], precision)?, p[0].copy()?);
            embedding::backward(&ids, &t[0], &dtable)?;
            Ok(vec![(("y", y), ROUNDED), (("dtable", dtable), WIDE)])
        },
    );
    Ok(())
}

#[test]
fn short_conv_in_bf16() -> Result<()> {
    let (batch, tokens, channels, width) = (2, 70, 130, 4);
    let mut random = Random::new(65);
    let weight = random.normal((channels, width), WIDE)?;
    let mut normal = |tokens: usize| random.normal((batch, tokens, channels), WIDE);
    let inputs = [normal(tokens)?, normal(width - 1)?, normal(tokens)?, normal(width - 1)?];
    let inputs = Given::new(&inputs, &[&weight])?;
    let segments = Segments::from_starts(tokens, vec![vec![], vec![33]])?;
    let kernels = ["short_conv_forward_bf16", "short_conv_backward_bf16", "add_partials"];
    assert_near_cpu("short_conv", &kernels, &inputs, |t, p, _| {
        let (y, last) = short_conv::forward(&t[0], &p[0], Some(&t[1]), &segments)?;
        let dweight = p[0].copy()?;
        let (dx, dstate) =
            short_conv::backward(&t[0], &p[0], Some(&t[1]), &segments, &t[2], Some(&t[3]), &dweight)?;
        Ok(vec![
            (("y", y), ROUNDED),
            (("last", last), ROUNDED),
            (("dx", dx), ROUNDED),
            (("dstate", dstate), ROUNDED),
            (("dweight", dweight), WIDE),
        ])
    });
    Ok(())
}

/// The mixer's bf16 kernels on the case's activations, rounded, near the CPU in f32 on the same numbers.
#[track_caller]
pub(crate) fn assert_mixer_near_cpu(name: &str, case: &Case) {
    let kernels = KERNELS.map(|kernel| kernel.replace("_f32", "_bf16"));
    let [wide, narrow] = case.rounded().unwrap_or_else(|error| panic!("{name}: {error}"));
    let want = wide.values().unwrap_or_else(|error| panic!("{name} on the CPU: {error}"));
    let (got, launched) = on_kernels(|| narrow.values());
    let got = got.unwrap_or_else(|error| panic!("{name} on kernels: {error}"));
    assert!(
        launched.as_ref().is_none_or(|launched| kernels == launched[..]),
        "{name}: launched {launched:?}"
    );
    for ((output, got), (_, want)) in got.iter().zip(&want) {
        let dtype = if ["y", "dx"].contains(output) { ROUNDED } else { WIDE };
        assert_near(name, output, got, (want, dtype));
    }
}

#[test]
fn mixer_in_bf16() -> Result<()> {
    for (tokens, address, key, value, rank, query_norm) in
        [(7, 16, 8, 8, 3, true), (129, 32, 24, 72, 16, false), (65, 208, 8, 40, 64, true)]
    {
        let shape = Shape { heads: 2, address, key, value, rank, query_norm };
        let segments = Segments::from_starts(tokens, vec![vec![], vec![tokens / 2]])?;
        assert_mixer_near_cpu(&format!("mixer {shape:?} {tokens}"), &Case::random(shape, segments)?);
    }
    Ok(())
}

// What tensor cores make of the inverse where addresses repeat and β → 1, and of decays of any size.
#[test]
fn mixer_in_bf16_at_its_edges() -> Result<()> {
    for (noise, beta) in [(0.0, 1.0), (0.01, 0.835)] {
        let case = Case::repeated_addresses(130, noise, beta)?;
        assert_mixer_near_cpu(&format!("address noise {noise}, beta {beta}"), &case);
    }
    for once in [false, true] {
        for log_alpha in DECAYS {
            let case = Case::decays(log_alpha, once)?;
            assert_mixer_near_cpu(&format!("log alpha {log_alpha}, once: {once}"), &case);
        }
    }
    Ok(())
}
