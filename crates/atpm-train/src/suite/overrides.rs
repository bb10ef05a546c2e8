//! `--set section.key=value` of commands whose settings are no run's.

use toml::{Table, Value};

use crate::run::exit::user;

/// One override.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Override<'a> {
    /// As it was given, for messages.
    setting: &'a str,
    /// Sections and key.
    pub(super) path: Vec<&'a str>,
    /// The value: TOML, or plain text if it is none.
    pub(super) value: Value,
}

impl<'a> Override<'a> {
    /// Takes a setting apart.
    ///
    /// # Errors
    /// No `=`, or an empty key.
    pub(super) fn parse(setting: &'a str) -> anyhow::Result<Self> {
        let wrong =
            |problem: &str| user(format!("--set {setting}: {problem}, such as --set train.steps=500"));
        let (path, text) = setting.split_once('=').ok_or_else(|| wrong("write it as section.key=value"))?;
        let text = text.trim();
        let parsed = format!("value = {text}").parse::<Table>().ok();
        // A value with a line break could smuggle in a second key.
        let value = parsed.filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
        let path: Vec<&str> = path.trim().split('.').collect();
        if path.iter().any(|key| key.is_empty()) {
            return Err(wrong("a key is empty; write it as section.key=value"));
        }
        Ok(Self { setting, path, value: value.unwrap_or_else(|| Value::String(text.into())) })
    }

    /// The error about this override.
    pub(super) fn refuse(&self, problem: &str) -> anyhow::Error {
        user(format!("--set {}: {problem}", self.setting))
    }

    /// A table with this key alone.
    pub(super) fn table(&self) -> Table {
        let mut sections = self.path.iter().rev();
        let key = sections.next().copied().unwrap_or_default();
        let innermost = Table::from_iter([(key.to_owned(), self.value.clone())]);
        sections.fold(innermost, |inner, section| {
            Table::from_iter([((*section).to_owned(), Value::Table(inner))])
        })
    }
}
