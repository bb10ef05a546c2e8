//! What differs between the settings of a checkpoint and those of the run that resumes it.

use std::collections::BTreeMap;
use std::fmt;

use toml::{Table, Value};

use super::Run;

/// Keys of `[model]` that a resumed run may change: they matter at the first step, or not at all.
const FREE: &[&str] = &[
    "model.rho_logit",
    "model.lambda_logit",
    "model.beta_logit",
    "model.half_life",
    "model.embedding_std",
    "model.activation_checkpointing",
];

/// One key with two values.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    path: String,
    old: Option<Value>,
    new: Option<Value>,
}

impl Change {
    /// Whether it would make another function or other shapes of the checkpoint's parameters.
    pub fn changes_the_model(&self) -> bool {
        self.path.starts_with("model.") && !FREE.contains(&self.path.as_str())
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |value: &Option<Value>| value.as_ref().map_or("not set".into(), Value::to_string);
        write!(f, "{}: {} → {}", self.path, show(&self.old), show(&self.new))
    }
}

/// All keys whose values differ, by path.
///
/// # Errors
/// Settings that TOML cannot hold.
pub fn between(old: &Run, new: &Run) -> anyhow::Result<Vec<Change>> {
    let (old, new) = (flatten(&old.to_toml()?.parse()?), flatten(&new.to_toml()?.parse()?));
    let paths: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    Ok(paths
        .into_iter()
        .filter(|path| old.get(*path) != new.get(*path))
        .map(|path| Change { path: path.clone(), old: old.get(path).cloned(), new: new.get(path).cloned() })
        .collect())
}

/// `section.key` of every value.
pub(super) fn flatten(table: &Table) -> BTreeMap<String, Value> {
    let mut flat = BTreeMap::new();
    for (name, value) in table {
        match value {
            Value::Table(section) => {
                flat.extend(section.iter().map(|(key, value)| (format!("{name}.{key}"), value.clone())));
            }
            value => {
                flat.insert(name.clone(), value.clone());
            }
        }
    }
    flat
}
