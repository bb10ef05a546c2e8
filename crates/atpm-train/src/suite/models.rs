//! The models of a suite: what each changes about the reference, and the widths that match them.

use anyhow::Context;
use atpm_data::synthetic::vocabulary;
use atpm_model::{Flops, ModelConfig, ModelKind, baselines};
use serde::Serialize;
use toml::{Table, Value};

use super::config::{Matched, SuiteConfig};
use crate::run::config::Run;
use crate::run::exit::{OrUser, user};
use crate::run::nearest::nearest;

/// A model of the suite, its widths settled.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Parameters that can learn.
    pub parameters: usize,
    /// FLOPs of training a token, in documents of `match_tokens` tokens.
    pub training_flop_per_token: f64,
    /// Its sizes and switches.
    pub model: ModelConfig,
}

/// Every model that has a name of its own, with the keys of `[model]` that it sets, its kind first: the reference may be
/// of any. The corners of ATPM are named by (λ, ρ).
pub(super) const NAMED: [(&str, &str); 9] = [
    ("atpm", "kind = \"atpm\""),
    ("gdn", "kind = \"atpm\"\nrho = 0.0\nlambda = 0.0\ntie_beta = true"),
    ("psm", "kind = \"atpm\"\nrho = 0.0\nlambda = 0.0\ntie_beta = false"),
    ("stable_revision", "kind = \"atpm\"\nlambda = 1.0\nrho = 0.0"),
    ("directed", "kind = \"atpm\"\nlambda = 0.0\nrho = 1.0"),
    ("rcqp", "kind = \"atpm\"\nlambda = 1.0\nrho = 1.0"),
    ("transformer", "kind = \"transformer\""),
    ("lstm", "kind = \"lstm\""),
    ("ntm", "kind = \"ntm\"\nlayers = 1"),
];

impl Entry {
    /// Its sizes in words.
    pub fn sizes(&self) -> String {
        let Self { name, parameters, training_flop_per_token, model } = self;
        let (key, width) = baselines::matched_width(model);
        let mflop = training_flop_per_token / 1e6;
        format!("{name}: {parameters} parameters, {mflop:.3} MFLOP a token, {key} = {width}")
    }
}

/// The models that the config names, in its order.
///
/// # Errors
/// A name that stands for nothing, keys that no model has, or widths that cannot be matched.
pub fn entries(config: &SuiteConfig) -> anyhow::Result<Vec<Entry>> {
    let reference = settings(config, "the reference", &Table::new())?;
    for name in config.sweep.chosen.keys() {
        changes(config, name, "`sweep.chosen`")?;
    }
    config
        .models
        .iter()
        .map(|name| {
            let model = settings(config, name, &changes(config, name, "`models`")?)?;
            let model = matched(model, &reference, config.matched, config.match_tokens)
                .with_context(|| format!("model `{name}` cannot be matched to the reference"))
                .or_user()?;
            let parameters = baselines::learning_parameters(&model)?;
            let training_flop_per_token = Flops::of_documents(&model, config.match_tokens).training();
            Ok(Entry { name: name.clone(), parameters, training_flop_per_token, model })
        })
        .collect()
}

/// The model as large as the reference; FLOPs are those in documents of `tokens` tokens.
///
/// # Errors
/// No width that comes near enough, or a model that cannot be built.
pub(super) fn matched(
    model: ModelConfig,
    reference: &ModelConfig,
    by: Matched,
    tokens: usize,
) -> atpm_model::Result<ModelConfig> {
    match by {
        Matched::Params => baselines::match_parameters(&model, baselines::learning_parameters(reference)?),
        Matched::Flops => {
            baselines::match_flops(&model, Flops::of_documents(reference, tokens).training(), tokens)
        }
        Matched::None => Ok(model),
    }
}

/// What the model of this name changes about the reference. A variant that has the name of a model here is that
/// model with the variant's keys: an `lstm` with an embedding of its own is still an LSTM. `place` says where the name stands.
fn changes(config: &SuiteConfig, name: &str, place: &str) -> anyhow::Result<Table> {
    let keys = NAMED.iter().find(|(known, _)| *known == name).map(|(_, keys)| *keys);
    let variant = config.variants.get(name);
    if keys.is_none() && variant.is_none() {
        return Err(unknown(config, name, place));
    }
    let mut changes: Table = keys.unwrap_or("").parse().with_context(|| format!("the keys of `{name}`"))?;
    changes.extend(variant.cloned().unwrap_or_default());
    Ok(changes)
}

/// What is said of a name that stands for nothing.
fn unknown(config: &SuiteConfig, name: &str, place: &str) -> anyhow::Error {
    let named = || NAMED.iter().map(|(known, _)| *known);
    let added =
        config.variants.keys().map(String::as_str).filter(|variant| named().all(|known| known != *variant));
    let known = || named().chain(added.clone());
    let hint = nearest(name, known()).map_or(String::new(), |near| format!("did you mean `{near}`? "));
    let all = known().collect::<Vec<_>>().join(", ");
    user(format!(
        "{place} names `{name}`, which is none; {hint}The models are {all}; a section [variants.{name}] would make \
         it one"
    ))
}

/// Takes the keys out of `[model]` that belong to its kind and not to the one that `changes` make of it: a Transformer has
/// no controllers to pin, and an ATPM no slots. Gives their names.
pub(super) fn drop_foreign(model: &mut Table, changes: &Table) -> Vec<&'static str> {
    let kind = |keys: &Table| keys.get("kind").and_then(Value::as_str).map(str::to_owned);
    let before = kind(model).unwrap_or_else(|| ModelKind::Atpm.name().into());
    let after = kind(changes).unwrap_or_else(|| before.clone());
    let own: &[&'static str] = match before.as_str() {
        "atpm" if before != after => &["rho", "lambda", "tie_beta"],
        "ntm" if before != after => &["hidden", "slots", "slot_width"],
        _ => &[],
    };
    // A switch that is off pins nothing.
    let is_given = |key: &&str| model.get(*key).is_some_and(|value| value.as_bool() != Some(false));
    let foreign: Vec<_> = own.iter().copied().filter(is_given).collect();
    model.retain(|key, _| !foreign.contains(&key));
    foreign
}

/// The reference with `changes` laid over it, checked as a run's `[model]` is.
fn settings(config: &SuiteConfig, name: &str, changes: &Table) -> anyhow::Result<ModelConfig> {
    let mut model = config.model.clone();
    drop_foreign(&mut model, changes);
    model.extend(changes.clone());
    model.insert("vocab".into(), Value::Integer(i64::try_from(vocabulary::SIZE)?));
    let mut run = Table::new();
    run.insert("model".into(), Value::Table(model));
    run.insert("data".into(), unread_data());
    let run = Run::from_toml(&run.to_string(), &format!("[model] of `{name}`"))?;
    Ok(run.model().clone())
}

/// A run's `[data]` where samples are made and nothing is read.
pub(super) fn unread_data() -> Value {
    let mut data = Table::new();
    data.insert("train".into(), Value::String("made on the fly".into()));
    Value::Table(data)
}
