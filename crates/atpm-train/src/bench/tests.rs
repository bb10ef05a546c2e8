//! The benchmarks on sizes that take no time: that they run, and that their figures hang together.

use super::cases::{Cases, Work};
use super::clock::{Resident, median, resident_bytes, seconds};
use super::sizes::Block;
use super::{decode, ops, step};
use atpm_core::Precision;
use atpm_model::ModelConfig;

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

#[test]
fn a_step_is_measured_with_all_of_its_ops() {
    let settings = step::Settings { steps: 1, ops: true, precision: Precision::F32, peak_side: 64 };
    let report = serde_json::to_value(step::measure(&tiny(), BLOCK, settings).unwrap()).unwrap();
    let number = |name: &str| report[name].as_f64().unwrap_or_else(|| panic!("{name}: {report}"));
    let expected: usize =
        atpm_model::specs(&tiny()).unwrap().iter().map(atpm_model::ParameterSpec::elements).sum();
    assert_eq!(number("params"), expected as f64);
    assert!((number("tokens_per_s") * number("s_per_step") - 40.0).abs() < 1e-6);
    assert!((number("share_of_peak") - number("gflop_per_s") / number("peak_gflop_per_s")).abs() < 1e-12);
    // Random targets over 64 ids.
    assert!((number("loss") - 64f64.ln()).abs() < 0.5, "{}", number("loss"));
    let ops: Vec<_> =
        report["ops"].as_array().unwrap().iter().map(|row| row["op"].as_str().unwrap()).collect();
    for op in
        ["linear in_proj", "mixer", "rms_norm", "short_conv", "swiglu", "cross_entropy", "embedding", "adamw"]
    {
        assert!(ops.contains(&op), "{op} is missing from {ops:?}");
    }
}

#[test]
fn every_op_with_a_reference_is_compared_both_ways() {
    let cases = Cases::new(&tiny(), BLOCK, Precision::F32).all().unwrap();
    let report = ops::measure(&cases, BLOCK, 1).unwrap();
    let compared = report.ops.iter().filter(|row| row.reference_seconds.is_some_and(|s| s > 0.0));
    let both: Vec<_> = compared.filter(|row| row.pass == "both").map(|row| row.op).collect();
    assert!(
        both.contains(&"rms_norm") && both.contains(&"mixer") && both.contains(&"cross_entropy"),
        "{both:?}"
    );
    assert!(report.ops.iter().all(|row| row.seconds > 0.0));
}

#[test]
fn decoding_keeps_its_state_at_one_size() {
    let points = decode::measure(&tiny(), Precision::F32, &[70, 0, 7], 1).unwrap();
    assert_eq!(points.iter().map(|point| point.read).collect::<Vec<_>>(), [0, 7, 70]);
    assert!(points[0].state_bytes > 0);
    assert!(points.iter().all(|point| point.state_bytes == points[0].state_bytes));
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
    assert_eq!(Work::Bytes(2e9).rate(0.5), (4.0, "GB/s"));
    assert!(resident_bytes(Resident::Now) <= resident_bytes(Resident::Peak));
}
