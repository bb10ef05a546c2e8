//! The smoke bar of the memory suite: ATPM learns key → value recall within the steps of configs/suite/smoke.toml.

use std::path::Path;

use atpm_train::run::cli::ConfigArgs;
use atpm_train::suite::config::SuiteConfig;
use atpm_train::suite::protocol;
use atpm_train::training::signals::StopFlag;

#[test]
fn atpm_learns_key_value_recall() {
    let out = tempfile::tempdir().unwrap();
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/suite/smoke.toml");
    let set = vec![format!("out={}", out.path().display())];
    let config = SuiteConfig::load(&ConfigArgs { config: Some(config), set }).unwrap();
    let findings = protocol::run(&config, &StopFlag::default()).unwrap();
    let outcome = &findings.outcomes[0];
    let scores = outcome.scores.unwrap();
    let curve: Vec<f64> = outcome.curve.iter().map(|point| point.cross_entropy).collect();
    assert!(scores.iid.exact_match >= 0.95, "{scores:?}; validation {curve:?}");
    // Exact match wants four answers right, token accuracy one.
    assert!(scores.stress.exact_match < scores.stress.token_accuracy, "{scores:?}");
}
