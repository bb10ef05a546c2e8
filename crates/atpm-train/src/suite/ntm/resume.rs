//! Whether a run may go on from a checkpoint: which of its settings differ, and which must not.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use toml::{Table, Value};

use super::settings::Settings;
use crate::run::exit::user;

/// Keys besides `[model]` that make other data: step N of such a run never had the batch that step N now gets.
const DATA: [&str; 6] = ["task", "seed", "train.rows", "train.least", "train.most", "train.curriculum"];

/// Lists what differs from the checkpoint's settings; refuses what makes another machine or other data.
///
/// # Errors
/// Every such setting, with both values.
pub fn compare(stored: &Settings, settings: &Settings, checkpoint: &Path) -> anyhow::Result<()> {
    let (old, new) = (flat(stored)?, flat(settings)?);
    let mut refused = Vec::new();
    for (path, value) in &new {
        let Some(before) = old.get(path).filter(|before| *before != value) else { continue };
        let change = format!("{path}: {before} → {value}");
        if path.starts_with("model.") || DATA.contains(&path.as_str()) {
            refused.push(change);
        } else {
            tracing::info!("changed since the checkpoint: {change}");
        }
    }
    if refused.is_empty() {
        return Ok(());
    }
    Err(user(format!(
        "{} is a checkpoint of another machine or of other data: {}; resume with the settings in its state.json, or \
         train anew in another run_dir",
        checkpoint.display(),
        refused.join("; ")
    )))
}

/// Every value by `section.key`; no setting is without one.
fn flat(settings: &Settings) -> anyhow::Result<BTreeMap<String, Value>> {
    let table = Table::try_from(settings).context("cannot write the settings as TOML")?;
    let mut flat = BTreeMap::new();
    for (name, value) in table {
        match value {
            Value::Table(section) => {
                flat.extend(section.into_iter().map(|(key, value)| (format!("{name}.{key}"), value)));
            }
            value => {
                flat.insert(name, value);
            }
        }
    }
    Ok(flat)
}
