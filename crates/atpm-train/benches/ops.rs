//! Every op of a training step by criterion: forward and backward on the CPU, its reference in plain candle operations
//! beside it, and its floor printed before it.
//!
//! ```text
//! make bench-ops                       all ops
//! make bench-ops OP=short_conv         those with this in their name
//! ```
//!
//! The floor is what the op's formula needs at the machine's own peaks, measured first: its FLOPs at the rate of a large
//! matrix product or its bytes at the rate of memory, whichever takes longer. The sizes are small, so that the whole takes minutes; an op whose
//! tensors fit into the caches can then be below its floor of bytes.

#[path = "../src/allocator.rs"]
mod allocator;

use std::time::Duration;

use atpm_core::Precision;
use atpm_model::ModelConfig;
use atpm_train::bench::cases::{Case, Cases};
use atpm_train::bench::clock::{PeakSizes, Peaks};
use atpm_train::bench::sizes::Block;
use atpm_train::report::output;
use candle_core::Device;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime};

const BLOCK: Block = Block { rows: 2, tokens: 256 };

/// Half of the reference step's width and heads.
fn model() -> ModelConfig {
    ModelConfig {
        vocab: 2048,
        d_model: 256,
        layers: 1,
        heads: 4,
        address: 64,
        key: 32,
        value: 32,
        rank: 16,
        mlp: 704,
        ..ModelConfig::default()
    }
}

fn ops(criterion: &mut Criterion) -> anyhow::Result<()> {
    let (device, precision) = (Device::Cpu, Precision::F32);
    let peaks = Peaks::measure(&device, precision, PeakSizes::of(&device))?;
    output::line(format_args!("peaks: {:.1} GFLOP/s, {:.1} GB/s", peaks.gflop_per_s, peaks.memory.mixed))?;
    Cases::new(&model(), BLOCK, precision, &device)?.each(|case| {
        let mut group = criterion.benchmark_group(case.name);
        group
            .sample_size(10)
            .warm_up_time(Duration::from_millis(200))
            .measurement_time(Duration::from_millis(500));
        measure(&mut group, &case, &peaks)?;
        group.finish();
        Ok(())
    })
}

fn measure(group: &mut BenchmarkGroup<'_, WallTime>, case: &Case, peaks: &Peaks) -> anyhow::Result<()> {
    for (direction, pass) in [("forward", &case.forward), ("backward", &case.backward)] {
        if let Some(pass) = pass {
            let floor = Duration::from_secs_f64(pass.work.floors(peaks).higher());
            output::line(format_args!("{}/{direction}: floor {floor:.3?}", case.name))?;
            group.bench_function(direction, |bencher| bencher.iter(|| (pass.run)().is_ok()));
        }
    }
    if let Some(reference) = &case.reference {
        group.bench_function("reference, forward", |bencher| bencher.iter(|| (reference.value)()));
        group.bench_function("reference, forward and backward", |bencher| {
            bencher.iter(|| (reference.value)().and_then(|value| Ok(value.sum_all()?.backward()?)));
        });
    }
    Ok(())
}

fn run(criterion: &mut Criterion) {
    allocator::keep_memory();
    if let Err(error) = ops(criterion) {
        panic!("an op refused its inputs: {error:#}");
    }
}

criterion_group!(benches, run);
criterion_main!(benches);
