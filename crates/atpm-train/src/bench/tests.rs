//! The benchmarks on sizes that take no time: that they run, and that their figures hang together.

use super::cases::Cases;
use super::clock::{MemoryPeak, PeakSizes, Peaks, Resident, median, memory_peak, resident_bytes, seconds};
use super::sizes::{Block, SizeArgs};
use super::work::{Products, Work};
use super::{decode, ops, step};
use atpm_core::Precision;
use atpm_model::{Flops, ModelConfig, ModelKind};
use candle_core::Device;

fn tiny() -> ModelConfig {
    ModelConfig {
        vocab: 64,
        d_model: 16,
        layers: 2,
        heads: 2,
        address: 8,
        key: 4,
        value: 4,
        rank: 2,
        mlp: 24,
        ..ModelConfig::default()
    }
}

const BLOCK: Block = Block { rows: 2, tokens: 20 };
const SMALL: PeakSizes = PeakSizes { side: 64, elements: 4096 };

#[test]
fn a_step_is_measured_with_all_of_its_ops() {
    let settings = step::Settings { steps: 1, ops: true, precision: Precision::F32, peaks: SMALL };
    let report =
        serde_json::to_value(step::measure(&tiny(), BLOCK, settings, &Device::Cpu).unwrap()).unwrap();
    let number = |name: &str| report[name].as_f64().unwrap_or_else(|| panic!("{name}: {report}"));
    let expected: usize =
        atpm_model::specs(&tiny()).unwrap().iter().map(atpm_model::ParameterSpec::elements).sum();
    assert_eq!(number("params"), expected as f64);
    assert!((number("tokens_per_s") * number("s_per_step") - 40.0).abs() < 1e-6);
    assert!((number("share_of_peak") - number("gflop_per_s") / number("peak_gflop_per_s")).abs() < 1e-12);
    // Random targets over 64 ids.
    assert!((number("loss") - 64f64.ln()).abs() < 0.5, "{}", number("loss"));
    let table = &report["table"];
    let ops: Vec<_> =
        table["ops"].as_array().unwrap().iter().map(|row| row["op"].as_str().unwrap()).collect();
    for op in
        ["linear in_proj", "mixer", "rms_norm", "short_conv", "swiglu", "cross_entropy", "embedding", "adamw"]
    {
        assert!(ops.contains(&op), "{op} is missing from {ops:?}");
    }
    let share = |keep: fn(&serde_json::Value) -> bool| {
        let rows = table["ops"].as_array().unwrap().iter().filter(|row| keep(row));
        rows.map(|row| row["share"].as_f64().unwrap()).sum::<f64>()
    };
    let not_products = share(|row| row["flop"].is_null());
    assert!((table["not_products_share"].as_f64().unwrap() - not_products).abs() < 1e-9, "{table}");
    assert!((table["unlisted_share"].as_f64().unwrap() - (1.0 - share(|_| true))).abs() < 1e-9, "{table}");
    for row in table["ops"].as_array().unwrap() {
        assert_eq!(row["flop"].is_null(), !products_in(row["op"].as_str().unwrap()), "{row}");
        let rate = row["bytes"].as_f64().unwrap() * row["calls"].as_f64().unwrap()
            / row["seconds"].as_f64().unwrap();
        assert!((row["gb_per_s"].as_f64().unwrap() * 1e9 / rate - 1.0).abs() < 1e-9, "{row}");
    }
}

#[test]
fn other_kinds_have_a_step_but_no_ops() {
    let peaks = PeakSizes { side: 64, elements: 4096 };
    let settings = step::Settings { steps: 1, ops: true, precision: Precision::F32, peaks };
    for kind in ModelKind::ALL.into_iter().filter(|kind| *kind != ModelKind::Atpm) {
        let model = ModelConfig { kind, ..tiny() };
        let report = step::measure(&model, BLOCK, settings, &Device::Cpu).unwrap();
        let report = serde_json::to_value(report).unwrap();
        assert!(report["table"].is_null() && report["tokens_per_s"].as_f64() > Some(0.0), "{report}");
        let flop = Flops::of_documents(&model, BLOCK.tokens).training();
        assert_eq!(report["flop_per_token"].as_f64(), Some(flop), "{}", kind.name());
    }
}

// 40 tokens of 16 channels, two embeddings of them and one table of 64: counted by hand.
#[test]
fn bytes_are_those_of_the_formula() {
    let (model, mut cases) = (tiny(), Vec::new());
    let makers = Cases::new(&model, BLOCK, Precision::F32, &Device::Cpu).unwrap();
    makers
        .each(|case| {
            cases.push(case);
            Ok(())
        })
        .unwrap();
    let bytes = |name: &str| {
        let case = cases.iter().find(|case| case.name == name).unwrap();
        [&case.forward, &case.backward].map(|pass| pass.as_ref().unwrap().work.bytes)
    };
    // x, y; and x, dy, the skip's gradient, dx.
    assert_eq!(bytes("rms_norm"), [2.0, 4.0].map(|tensors| 4.0 * tensors * 40.0 * 16.0));
    // x, W, y; and those three twice, with the weight's gradient read and written.
    let (x, weight, y) = (40.0 * 16.0, 16.0 * 48.0, 40.0 * 48.0);
    assert_eq!(bytes("linear mlp.up"), [4.0 * (x + weight + y), 4.0 * (2.0 * (x + weight + y) + weight)]);
    // x, controls, y and the states before both rows' one chunk; in backward dy is read, and dx and dcontrols are written.
    let (x, controls, y, states) = (40.0 * 48.0, 40.0 * 10.0, 40.0 * 16.0, 2.0 * 2.0 * 8.0 * 8.0);
    assert_eq!(
        bytes("mixer"),
        [x + controls + y + states, 2.0 * (x + controls) + y + states].map(|n| 4.0 * n)
    );
}

#[test]
fn every_op_with_a_reference_is_compared_both_ways() {
    let (model, device, precision) = (tiny(), Device::Cpu, Precision::F32);
    let cases = Cases::new(&model, BLOCK, precision, &device).unwrap();
    let peaks = Peaks::measure(&device, precision, SMALL).unwrap();
    let rows = ops::measure(cases, &device, &peaks, 1).unwrap();
    let compared = rows.iter().filter(|row| row.reference_seconds.is_some_and(|s| s > 0.0));
    let both: Vec<_> = compared.filter(|row| row.pass == "both").map(|row| row.op).collect();
    assert!(
        both.contains(&"rms_norm") && both.contains(&"mixer") && both.contains(&"cross_entropy"),
        "{both:?}"
    );
    assert!(rows.iter().all(|row| row.seconds > 0.0));
    for row in rows {
        let products = row.product_floor_seconds;
        assert_eq!(products.is_some(), products_in(row.op), "{row:?}");
        let floor = row.memory_floor_seconds.max(products.unwrap_or(0.0));
        assert!((row.times_floor * floor / row.seconds - 1.0).abs() < 1e-9, "{row:?}");
    }
}

#[test]
fn one_op_can_be_asked_for() {
    let (model, mut names) = (tiny(), Vec::new());
    let cases = Cases::new(&model, BLOCK, Precision::F32, &Device::Cpu).unwrap().only("linear mlp");
    cases
        .each(|case| {
            names.push(case.name);
            Ok(())
        })
        .unwrap();
    assert_eq!(names, ["linear mlp.up", "linear mlp.down"]);
}

/// Whether an op is made of matrix products.
fn products_in(op: &str) -> bool {
    ["linear", "mixer", "cross_entropy"].iter().any(|name| op.starts_with(name))
}

// Two passes need what each of them needs; a floor is counted from the peaks by hand.
#[test]
fn floors_are_those_of_the_peaks() {
    let memory = MemoryPeak { mixed: 2.0, read: 3.0 };
    let peaks = Peaks { f32_gflop_per_s: 10.0, gflop_per_s: 40.0, memory };
    let work = |products, bytes| Work { products, bytes };
    let products = |precision| Some(Products { flop: 4e9, precision });
    let wide = work(products(Precision::F32), 1e9).floors(&peaks);
    assert_eq!((wide.memory, wide.products, wide.higher()), (0.5, Some(0.4), 0.5));
    let rounded = work(products(Precision::Bf16), 1e8).floors(&peaks);
    assert_eq!((rounded.products, rounded.higher()), (Some(0.1), 0.1));
    let plain = work(None, 2e9).floors(&peaks);
    assert_eq!((plain.products, plain.higher()), (None, 1.0));
    assert_eq!((plain.and(wide).memory, plain.and(wide).products), (1.5, Some(0.4)));
    assert_eq!(wide.and(plain).products, Some(0.4));
}

#[test]
fn decoding_keeps_its_state_at_one_size() {
    let points = decode::measure(&tiny(), Precision::F32, 3, &[70, 0, 7], 1, &Device::Cpu).unwrap();
    assert_eq!(points.iter().map(|point| point.read).collect::<Vec<_>>(), [0, 7, 70]);
    assert!(points[0].state_bytes > 0);
    assert!(points.iter().all(|point| point.state_bytes == points[0].state_bytes));
}

#[test]
fn a_config_brings_its_precision_and_the_flag_wins() {
    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        sizes: SizeArgs,
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.toml");
    let config = include_str!("../../../../configs/debug.toml");
    std::fs::write(&file, config.replace("[train]", "[train]\ndtype = \"bf16\"")).unwrap();
    let precision = |more: &[&str]| {
        let flags = ["bench", "--config", file.to_str().unwrap()];
        let flags = <Flags as clap::Parser>::try_parse_from(flags.iter().chain(more)).unwrap();
        flags.sizes.resolve(&Device::Cpu).map(|sizes| sizes.precision)
    };
    // As in training, f32 where there are no bf16 products.
    let configured = if Precision::Bf16.supported() { Precision::Bf16 } else { Precision::F32 };
    assert_eq!(precision(&[]).unwrap(), configured);
    assert_eq!(precision(&["--dtype", "f32"]).unwrap(), Precision::F32);
    assert_eq!(precision(&["--dtype", "bf16"]).is_ok(), Precision::Bf16.supported());
}

#[test]
fn memory_has_a_speed() {
    let peak = memory_peak(1 << 20).unwrap();
    assert!(peak.mixed.is_finite() && peak.mixed > 0.1, "{peak:?}");
    assert!(peak.read.is_finite() && peak.read > 0.1, "{peak:?}");
}

#[test]
fn times_are_counted_after_the_warm_up() {
    let mut runs = 0;
    let times = seconds(2, 3, || {
        runs += 1;
        Ok(())
    });
    assert_eq!((times.unwrap().len(), runs), (3, 5));
    assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    assert_eq!(Work { products: None, bytes: 2e9 }.rate(0.5), (4.0, "GB/s"));
    assert!(resident_bytes(Resident::Now) <= resident_bytes(Resident::Peak));
}
