//! The frozen list of commands and flags: scripts rely on it, so a change must be meant.

use clap::CommandFactory;

use super::cli::Cli;

fn collect(command: &clap::Command, path: &str, list: &mut Vec<String>) {
    for argument in command.get_arguments().filter(|argument| argument.get_id() != "help") {
        let flag = argument
            .get_long()
            .map_or_else(|| format!("<{}>", argument.get_id()), |long| format!("--{long}"));
        list.push(format!("{path} {flag}"));
    }
    for sub in command.get_subcommands() {
        collect(sub, &format!("{path} {}", sub.get_name()), list);
    }
}

#[test]
fn commands_and_flags_are_frozen() {
    Cli::command().debug_assert();
    let mut list = Vec::new();
    collect(&Cli::command(), "atpm-train", &mut list);
    let frozen: Vec<_> = include_str!("flags.txt").lines().collect();
    assert_eq!(list, frozen, "\nif the change is meant, src/run/flags.txt becomes:\n{}\n", list.join("\n"));
}
