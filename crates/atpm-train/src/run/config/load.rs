//! From a file and overrides to a checked [`Run`].

use anyhow::Context;
use toml::{Table, Value};

use super::keys::{Default, KEYS, Key, find};
use super::{Run, check, resolve};
use crate::run::cli::ConfigArgs;
use crate::run::exit::{OrUser, user};

const NO_CONFIG: &str = "no config given; try `atpm-train --config configs/debug.toml` (a small run on demo data), \
    or see `atpm-train --help`";

/// Reads the config file and applies the overrides.
///
/// # Errors
/// A missing file or a mistake in it, named with file, section and key.
pub fn load(args: &ConfigArgs) -> anyhow::Result<Run> {
    let Some(path) = &args.config else { return Err(user(NO_CONFIG)) };
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the config {}", path.display()))
        .or_user()?;
    from_text(&text, &path.display().to_string(), path.file_stem().and_then(|stem| stem.to_str()), &args.set)
}

/// Settings from text and overrides; `name` is what a run folder is called that the text does not name.
pub(super) fn from_text<S: AsRef<str>>(
    text: &str,
    origin: &str,
    name: Option<&str>,
    overrides: &[S],
) -> anyhow::Result<Run> {
    let table: Table = text.parse().map_err(|error| user(syntax_error(text, origin, &error)))?;
    let mut table = check::normalise(table).map_err(|problem| user(format!("{origin}: {problem}")))?;
    for setting in overrides {
        apply(&mut table, setting.as_ref())?;
    }
    fill_in(&mut table, name).map_err(|problem| user(format!("{origin}: {problem}")))?;
    let sections = table.try_into().with_context(|| origin.to_string()).or_user()?;
    let run = Run { sections };
    resolve::validate(&run).map_err(|problem| user(format!("{origin}: {problem}")))?;
    Ok(run)
}

/// Lays `section.key=value` over the table.
fn apply(table: &mut Table, setting: &str) -> anyhow::Result<()> {
    let refuse = |problem: String| user(format!("--set {setting}: {problem}"));
    let Some((path, text)) = setting.split_once('=') else {
        return Err(refuse("write it as section.key=value, such as train.steps=500".into()));
    };
    let path = path.trim();
    let (section, name) = path.split_once('.').unwrap_or(("", path));
    let Some(key) = find(section, name) else {
        let known = section.is_empty() || KEYS.iter().any(|key| key.section == section);
        return Err(refuse(if known {
            check::unknown_key(section, name)
        } else {
            check::unknown_section(section)
        }));
    };
    let value = check::parse_override(key, text.trim());
    let value = check::normalise_value(section, name, value).map_err(refuse)?;
    insert(table, key, value);
    Ok(())
}

/// Puts a default wherever a key is not given.
fn fill_in(table: &mut Table, run_name: Option<&str>) -> Result<(), String> {
    for key in KEYS {
        if has(table, key) {
            continue;
        }
        match key.default {
            Default::Of(text) => insert(table, key, default_value(key, text)?),
            Default::Absent(_) if key.name == "run_dir" => {
                let name = run_name.unwrap_or("run");
                insert(table, key, Value::String(format!("runs/{name}")));
            }
            Default::Absent(_) => {}
            Default::Required => {
                let path = key.path();
                return Err(format!("`{path}` is missing: give it in the file, or with --set {path}=…"));
            }
        }
    }
    Ok(())
}

fn default_value(key: &Key, text: &str) -> Result<Value, String> {
    let mut parsed: Table =
        format!("value = {text}").parse().map_err(|error| format!("default of {}: {error}", key.path()))?;
    parsed.remove("value").ok_or_else(|| format!("default of {} is empty", key.path()))
}

fn has(table: &Table, key: &Key) -> bool {
    if key.section.is_empty() {
        return table.contains_key(key.name);
    }
    table.get(key.section).and_then(Value::as_table).is_some_and(|section| section.contains_key(key.name))
}

fn insert(table: &mut Table, key: &Key, value: Value) {
    if key.section.is_empty() {
        table.insert(key.name.into(), value);
        return;
    }
    let section = table.entry(key.section).or_insert_with(|| Value::Table(Table::new()));
    if let Some(section) = section.as_table_mut() {
        section.insert(key.name.into(), value);
    }
}

/// A mistake in the TOML itself, with line, section and the line's text.
fn syntax_error(text: &str, origin: &str, error: &toml::de::Error) -> String {
    let Some(span) = error.span() else { return format!("{origin}: {}", error.message()) };
    let before = text.get(..span.start).unwrap_or(text);
    let line = before.matches('\n').count();
    let content = text.lines().nth(line).unwrap_or_default().trim();
    let section = before.lines().rev().find(|line| line.trim_start().starts_with('['));
    let section = section.map_or_else(|| "at the top level".into(), |header| format!("in {}", header.trim()));
    format!("{origin}, line {}, {section}: {} (`{content}`)", line + 1, error.message())
}
