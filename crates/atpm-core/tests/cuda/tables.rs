//! Ops whose launches read tables that the host makes: ids by use, tensors by address.

use atpm_core::ops::embedding;
use atpm_core::optim::adamw;
use atpm_core::testing::{Random, assert_same_bits};
use atpm_core::{Precision, Result};
use candle_core::{DType, Device, Tensor};

use crate::{assert_refused, assert_same_as_cpu, has_empty_tensors, on_kernels, put};

#[test]
fn embedding_launches() -> Result<()> {
    for (positions, rows, width) in [(1, 1, 2), (65, 7, 32), (130, 50, 258), (20, 3, 770)] {
        let mut random = Random::new(31);
        // Half of the uses are of one id, as a separator's would be.
        let mut ids = random.ids(rows, positions)?.to_vec1::<u32>()?;
        ids.iter_mut().step_by(2).for_each(|id| *id = rows as u32 / 2);
        let ids = Tensor::new(ids, &Device::Cpu)?;
        let table = random.normal((rows, width), DType::F32)?;
        let dy = random.normal((positions, width), DType::F32)?;
        let kernels = ["embedding_forward_f32", "embedding_backward_f32"];
        assert_same_as_cpu(&format!("embedding {positions} of [{rows}, {width}]"), &kernels, || {
            let [table, dy] = put([&table, &dy])?;
            let (y, dtable) = (embedding::forward(&ids, &table, Precision::F32)?, table.copy()?);
            embedding::backward(&ids, &dy, &dtable)?;
            Ok(vec![("y", y), ("dtable", dtable)])
        });
    }
    let ids = Tensor::new(&[1u32, 9], &Device::Cpu)?;
    let table = Random::new(3).normal((9, 4), DType::F32)?;
    assert_refused("id 9 at position 1 is outside the table of 9 rows", || {
        let [table] = put([&table])?;
        embedding::forward(&ids, &table, Precision::F32)
    });
    Ok(())
}

#[test]
fn adamw_launches() -> Result<()> {
    // One part, parts that end on a block's edge and beside it; without and with weight decay.
    for (elements, weight_decay) in [(1, 0.0), (1000, 0.1), (8192, 0.1), (8193, 0.0), (20_000, 0.1)] {
        let mut random = Random::new(32);
        let config = adamw::Config {
            lr: 1e-2,
            beta1: 0.9,
            beta2: 0.95,
            eps: 1e-8,
            weight_decay,
            grad_scale: 0.5,
            step: 3,
        };
        let [parameter, first, gradient] =
            [(); 3].map(|()| random.normal(elements, DType::F32).expect("normal numbers"));
        let second = random.uniform(1e-3, 1.0, elements, DType::F32)?;
        assert_same_as_cpu(&format!("adamw {elements}"), &["adamw_update"], || {
            let [parameter, first, second, gradient] = put([&parameter, &first, &second, &gradient])?;
            let (p, m, v) = (parameter.copy()?, first.copy()?, second.copy()?);
            adamw::update(&config, &p, &m, &v, &gradient)?;
            Ok(vec![("parameter", p), ("m", m), ("v", v)])
        });
        let (norm, launched) = norm_on_kernels(&gradient);
        assert!((norm? / adamw::squared_norm(&gradient)? - 1.0).abs() < 1e-12);
        assert!(launched.is_none_or(|launched| launched == ["squared_norm"]));
    }
    Ok(())
}

// What a training step does: all parameters in one launch, decaying ones and others, and their norm in another.
#[test]
fn adamw_launches_for_all_at_once() -> Result<()> {
    let config = adamw::Config {
        lr: 1e-2,
        beta1: 0.9,
        beta2: 0.95,
        eps: 1e-8,
        weight_decay: 0.1,
        grad_scale: 0.5,
        step: 3,
    };
    let mut random = Random::new(33);
    let nothing = if has_empty_tensors() { 0 } else { 2 };
    let sizes = [1, 8193, nothing, 30, 20_000];
    let mut normals = || sizes.map(|size| random.normal(size, DType::F32).expect("normal numbers"));
    let (parameters, firsts, gradients) = (normals(), normals(), normals());
    let seconds = firsts.each_ref().map(|first| first.sqr().expect("squares"));
    assert_same_as_cpu("adamw of five", &["adamw_update"], || {
        let copies =
            |tensors: &[Tensor; 5]| tensors.iter().map(Tensor::copy).collect::<candle_core::Result<Vec<_>>>();
        let p = copies(&put(parameters.each_ref())?)?;
        let (m, v) = (copies(&put(firsts.each_ref())?)?, copies(&put(seconds.each_ref())?)?);
        let gradients = put(gradients.each_ref())?;
        let bf16_like = |p: &Tensor| Tensor::zeros(p.dims(), DType::BF16, p.device());
        let rounded = p.iter().map(bf16_like).collect::<candle_core::Result<Vec<_>>>()?;
        let member = |i: usize| adamw::Member {
            parameter: &p[i],
            m: &m[i],
            v: &v[i],
            gradient: &gradients[i],
            decays: i % 2 == 1,
            // Of some alone, as in a model.
            rounded: (i != 3).then_some(&rounded[i]),
        };
        adamw::update_all(&config, &[0, 1, 2, 3, 4].map(member))?;
        for (p, rounded) in p.iter().zip(&rounded).take(3) {
            let [p, rounded] = [p, rounded].map(|tensor| tensor.to_device(&Device::Cpu));
            let want = p?.to_dtype(DType::BF16)?.to_dtype(DType::F32)?;
            assert_same_bits("bf16 copy", &rounded?.to_dtype(DType::F32)?, &want);
        }
        let named = |name, tensors: Vec<Tensor>| tensors.into_iter().map(move |tensor| (name, tensor));
        Ok(named("parameter", p).chain(named("m", m)).chain(named("v", v)).collect())
    });
    let all = gradients.each_ref();
    let (norm, launched) = on_kernels(|| adamw::squared_norm_of_all(&put(all)?.each_ref()));
    assert!((norm? / adamw::squared_norm_of_all(&all)? - 1.0).abs() < 1e-12);
    assert!(launched.is_none_or(|launched| launched == ["squared_norm"]));
    Ok(())
}

#[test]
fn a_gradient_that_is_no_number_has_no_norm() -> Result<()> {
    let gradient = Tensor::new(&[1.0f32, f32::NAN, 3.0], &Device::Cpu)?;
    let (norm, _) = norm_on_kernels(&gradient);
    assert!(norm?.is_nan());
    Ok(())
}

fn norm_on_kernels(gradient: &Tensor) -> (Result<f64>, Option<Vec<&'static str>>) {
    on_kernels(|| {
        let [gradient] = put([gradient])?;
        adamw::squared_norm(&gradient)
    })
}
