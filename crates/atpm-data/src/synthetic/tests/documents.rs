//! The examples in documents are what the command prints, and the sizes are the tasks'.

use std::path::Path;

use super::*;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Checks every `atpm-train suite show … --count 1` with the line below it, and gives the tasks that were shown.
fn shown(document: &str) -> Vec<Task> {
    let mut lines = document.lines().map(|line| line.strip_prefix("//! ").unwrap_or(line));
    let mut tasks = Vec::new();
    while let Some(line) = lines.next() {
        let Some(flags) = line.strip_prefix("atpm-train suite show ") else { continue };
        let flags: Vec<_> = flags.split(' ').collect();
        let ["--task", task, "--split", split, "--seed", seed, "--count", "1"] = flags[..] else {
            continue;
        };
        let task = Task::ALL.into_iter().find(|known| known.name() == task).unwrap();
        let split = Split::ALL.into_iter().find(|known| known.name() == split).unwrap();
        assert_eq!(lines.next().unwrap(), task.sample(split, seed.parse().unwrap(), 0).text(), "{line}");
        tasks.push(task);
    }
    tasks
}

#[test]
fn examples_are_what_the_command_prints() {
    for task in Task::ALL {
        let module = read(&format!("src/synthetic/{}.rs", task.name()));
        assert_eq!(shown(&module), [task], "{}", task.name());
    }
    assert_eq!(shown(&read("../../docs/suite.md")), Task::ALL);
}

#[test]
fn documented_sizes_are_the_tasks() {
    let document = read("../../docs/suite.md");
    for task in single() {
        let (unit, sizes) = task.sizes().unwrap();
        let range = |split| {
            let (least, most) = sizes.of(split);
            format!("{least}–{most}")
        };
        let ranges = [Split::Iid, Split::Ood, Split::Stress].map(range).join(" | ");
        let row = format!("| `{}` | {unit} | {ranges} |", task.name());
        assert!(document.contains(&row), "docs/suite.md lacks\n{row}");
    }
}
