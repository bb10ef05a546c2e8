//! Exit codes: who has to act.
//!
//! 0 done · 1 a failure of the run or the machine · 2 a mistake of the user (config, shard, tokenizer,
//! checkpoint, flag) · 130 stopped by Ctrl-C · 143 stopped by SIGTERM, both after the steps since the last checkpoint were
//! saved, or at once and without that if it was the second signal.

use std::fmt::Display;
use std::process::ExitCode;

use crate::checkpoint;

/// A mistake that the user can correct; exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UserError(pub String);

/// Work that a signal ended in order; exit code 128 + signal.
#[derive(Debug, thiserror::Error)]
#[error("stopped by signal {signal}; {advice}")]
pub struct Interrupted {
    /// The signal's number.
    pub signal: i32,
    /// What is kept, and how to go on.
    pub advice: &'static str,
}

/// An [`anyhow::Error`] that exits with 2.
pub fn user(message: impl Display) -> anyhow::Error {
    anyhow::Error::new(UserError(message.to_string()))
}

/// Turns any error into the user's mistake.
pub trait OrUser<T> {
    /// The value, or the error's whole chain as one message that exits with 2.
    ///
    /// # Errors
    /// When `self` is one.
    fn or_user(self) -> anyhow::Result<T>;
}

impl<T, E: Into<anyhow::Error>> OrUser<T> for Result<T, E> {
    fn or_user(self) -> anyhow::Result<T> {
        self.map_err(|error| user(message(&error.into())))
    }
}

/// The whole chain in one line. Some errors tell their cause in their own words (what to do depends on it): such a cause is
/// not told again.
pub fn message(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !message.contains(&cause) {
            let separator = if message.is_empty() { "" } else { ": " };
            message.extend([separator, &cause]);
        }
    }
    message
}

/// The exit code that an error stands for.
pub fn code(error: &anyhow::Error) -> u8 {
    if let Some(Interrupted { signal, .. }) = error.downcast_ref() {
        return u8::try_from(128 + signal).unwrap_or(1);
    }
    if error.chain().any(is_users_mistake) { 2 } else { 1 }
}

fn is_users_mistake(error: &(dyn std::error::Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<checkpoint::Error>() {
        return error.is_user_mistake();
    }
    if let Some(error) = error.downcast_ref::<atpm_data::Error>() {
        return error.is_user_mistake();
    }
    error.is::<UserError>() || matches!(error.downcast_ref(), Some(atpm_model::Error::Config { .. }))
}

/// [`code`] for the operating system.
pub fn exit_code(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(code(error))
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let source = || std::io::Error::other("disk full");
        let own = atpm_data::Error::Io { path: "a/b".into(), action: "write", source: source() };
        let outer = anyhow::Error::new(own).context("cannot begin");
        assert_eq!(message(&outer), format!("cannot begin: {}", outer.chain().nth(1).unwrap()));
        assert_eq!(message(&outer).matches("disk full").count(), 1);
        let silent = anyhow::Error::new(source()).context("cannot read x");
        assert_eq!(message(&silent), "cannot read x: disk full");
    }

    #[test]
    fn codes_tell_mistakes_from_failures() {
        let failure = anyhow::anyhow!("disk full");
        let mistake = user("no such key");
        let wrapped = Err::<(), _>(user("no such key")).context("while reading the config").unwrap_err();
        let model =
            anyhow::Error::new(atpm_model::Error::Config { key: "heads", problem: "must not be 0".into() });
        for (error, expected) in [
            (failure, 1),
            (mistake, 2),
            (wrapped, 2),
            (model, 2),
            (atpm_data::Error::NoFiles { what: "data.train", pattern: "x".into() }.into(), 2),
            (atpm_data::Error::Stopped.into(), 1),
            (Interrupted { signal: 2, advice: "" }.into(), 130),
            (Interrupted { signal: 15, advice: "" }.into(), 143),
        ] {
            assert_eq!(code(&error), expected, "{error:#}");
        }
    }
}
