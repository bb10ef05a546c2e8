//! Whether a table of settings has only keys that exist, with values of their kind; and what to say if not.

use toml::{Table, Value};

use super::keys::{KEYS, Key, Kind, SECTIONS, find};
use crate::run::nearest::nearest;

/// Checks every key and brings its value into normal form. The message names section and key, and the
/// nearest key that exists.
pub(super) fn normalise(table: Table) -> Result<Table, String> {
    let mut normal = Table::new();
    for (name, value) in table {
        let value = match value {
            Value::Table(section) if SECTIONS[1..].contains(&name.as_str()) => {
                Value::Table(normalise_section(&name, section)?)
            }
            Value::Table(_) if find("", &name).is_none() => return Err(unknown_section(&name)),
            _ if SECTIONS[1..].contains(&name.as_str()) => {
                return Err(format!("`{name}` is a section: write [{name}] and its keys below"));
            }
            value => normalise_value("", &name, value)?,
        };
        normal.insert(name, value);
    }
    Ok(normal)
}

fn normalise_section(section: &str, table: Table) -> Result<Table, String> {
    table
        .into_iter()
        .map(|(name, value)| {
            let value = normalise_value(section, &name, value)?;
            Ok((name, value))
        })
        .collect()
}

/// One value in its normal form.
pub(super) fn normalise_value(section: &str, name: &str, value: Value) -> Result<Value, String> {
    let Some(key) = find(section, name) else { return Err(unknown_key(section, name)) };
    let shown = show(&value);
    let expected = key.kind.words();
    key.kind
        .normalise(value)
        .ok_or_else(|| format!("{}: expected {expected}, got {shown}", location(section, name)))
}

/// What a `--set` value stands for: TOML, or the plain text where the key takes text.
pub(super) fn parse_override(key: &Key, text: &str) -> Value {
    let parsed = format!("value = {text}").parse::<Table>().ok().and_then(|mut table| {
        // A value with a line break could smuggle in a second key.
        (table.len() == 1).then(|| table.remove("value")).flatten()
    });
    match (key.kind, parsed) {
        (Kind::Texts, Some(value @ Value::Array(_))) | (_, Some(value @ Value::String(_))) => value,
        (Kind::Text | Kind::Texts | Kind::Choice(_), _) | (_, None) => Value::String(text.into()),
        (_, Some(value)) => value,
    }
}

/// The sentence about a key that does not exist.
pub(super) fn unknown_key(section: &str, name: &str) -> String {
    let place = if section.is_empty() { "at the top level".into() } else { format!("in [{section}]") };
    let wanted = name.replace('-', "_");
    let nearest = nearest(&wanted, KEYS.iter().filter(|key| key.section == section).map(|key| key.name));
    let elsewhere: Vec<_> = KEYS.iter().filter(|key| key.name == wanted && key.section != section).collect();
    let hint = if nearest == Some(wanted.as_str()) {
        format!("did you mean `{wanted}`?")
    } else if let [first, ..] = elsewhere.as_slice() {
        match (first.section, section) {
            ("", _) => format!("`{wanted}` belongs at the top level, before all sections"),
            (home, _) => format!("`{wanted}` belongs in [{home}]"),
        }
    } else if let Some(nearest) = nearest {
        format!("did you mean `{nearest}`?")
    } else if let Some(path) = nearest_anywhere(&wanted) {
        format!("did you mean `{path}`?")
    } else {
        let names: Vec<_> = KEYS.iter().filter(|key| key.section == section).map(|key| key.name).collect();
        format!("its keys are {}", names.join(", "))
    };
    format!("unknown key `{name}` {place}; {hint}")
}

/// The sentence about a section that does not exist.
pub(super) fn unknown_section(name: &str) -> String {
    let hint = match nearest(&name.replace('-', "_"), SECTIONS[1..].iter().copied()) {
        Some(nearest) => format!("did you mean [{nearest}]?"),
        None => format!("the sections are {}", SECTIONS[1..].join(", ")),
    };
    format!("unknown section [{name}]; {hint}")
}

fn nearest_anywhere(wanted: &str) -> Option<String> {
    let name = nearest(wanted, KEYS.iter().map(|key| key.name))?;
    KEYS.iter().find(|key| key.name == name).map(Key::path)
}

fn location(section: &str, name: &str) -> String {
    if section.is_empty() { format!("`{name}`") } else { format!("`{name}` in [{section}]") }
}

fn show(value: &Value) -> String {
    match value {
        Value::Table(_) => "a section".into(),
        value => value.to_string(),
    }
}
