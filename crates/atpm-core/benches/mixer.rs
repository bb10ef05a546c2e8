//! The mixer at one layer's share of the reference step: B 4, T 1024, H 8, S 64, K = V = 32, R 16.
//!
//! ```text
//! cargo bench -p atpm-core --bench mixer
//! ```

use atpm_core::Segments;
use atpm_core::ops::mixer::{Inputs, Shape, Transport, backward, forward};
use atpm_core::testing::Random;
use candle_core::{DType, Tensor};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const SHAPE: Shape = Shape { heads: 8, address: 64, key: 32, value: 32, rank: 16, query_norm: true };
const BATCH: usize = 4;
const TOKENS: usize = 1024;

fn mixer(criterion: &mut Criterion) -> atpm_core::Result<()> {
    let mut random = Random::new(1);
    let mut normal = |dims: &[usize]| random.normal(dims, DType::F32);
    let Shape { heads, address, key, value, rank, .. } = SHAPE;
    let x = normal(&[BATCH, TOKENS, heads * SHAPE.channels()])?;
    let transport = Transport {
        a_key: normal(&[heads, rank, key])?,
        a_value: normal(&[heads, rank, value])?,
        c: normal(&[heads, address, rank])?,
    };
    let dy = normal(&[BATCH, TOKENS, heads * SHAPE.entity()])?;
    let log_alpha = random.uniform(-0.3, 0.0, (BATCH, TOKENS, 1, heads), DType::F32)?;
    let others = random.uniform(0.0, 1.0, (BATCH, TOKENS, 4, heads), DType::F32)?;
    let controls = Tensor::cat(&[log_alpha, others], 2)?;
    let segments = Segments::continuous(BATCH, TOKENS);
    let inputs =
        Inputs { x: &x, controls: &controls, transport: &transport, state: None, segments: &segments };
    let gradient_of = |tensor: &Tensor| tensor.zeros_like();
    let dtransport = Transport {
        a_key: gradient_of(&transport.a_key)?,
        a_value: gradient_of(&transport.a_value)?,
        c: gradient_of(&transport.c)?,
    };

    let mut group = criterion.benchmark_group("mixer");
    group.throughput(Throughput::Elements((BATCH * TOKENS) as u64)).sample_size(10);
    group.bench_function("forward", |bencher| bencher.iter(|| forward(&SHAPE, &inputs, true)));
    let (_, saved) = forward(&SHAPE, &inputs, true)?;
    if let Some(saved) = saved {
        group.bench_function("backward", |bencher| {
            bencher.iter(|| backward(&SHAPE, &inputs, &saved, &dy, None, &dtransport));
        });
    }
    group.finish();
    Ok(())
}

fn run(criterion: &mut Criterion) {
    if let Err(error) = mixer(criterion) {
        panic!("the mixer refused its inputs: {error}");
    }
}

criterion_group!(benches, run);
criterion_main!(benches);
