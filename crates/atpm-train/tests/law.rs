//! The law of the house: what reviews would have to watch for otherwise.
//!
//! Dependency directions, one form for every op, paths named in documents, where `unsafe` and
//! feature gates may stand, module docs, file lengths, reasons for dependencies. A breach is
//! reported with its place; the rule's reason is in ARCHITECTURE.md or CONTRIBUTING.md.

#![expect(clippy::unwrap_used, reason = "a test file: what cannot be read is a failed test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Which crates of the workspace a crate may use, and which others it must do without.
const DIRECTIONS: [(&str, &[&str], &[&str]); 4] = [
    ("atpm-core", &[], &["serde", "parquet", "tokenizers", "anyhow", "clap"]),
    (
        "atpm-model",
        &["atpm-core"],
        &["parquet", "arrow", "tokenizers", "safetensors", "tempfile", "anyhow", "clap"],
    ),
    ("atpm-data", &[], &["candle-core", "candle-nn", "gemm", "anyhow", "clap"]),
    ("atpm-train", &["atpm-core", "atpm-model", "atpm-data"], &["candle-nn"]),
];

/// Lines of a source file, without its inline tests, from which on it needs to be taken apart.
const MOST_LINES: usize = 500;
/// Lines in the workspace that may mention a feature gate.
const MOST_FEATURE_GATES: usize = 7;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files below `folder` with this extension, in a fixed order.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Every Rust file of the workspace but this one, which names what it forbids.
fn sources() -> Vec<(String, String)> {
    let root = root();
    let name = |path: &Path| path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
    let all = files(&root.join("crates"), "rs").into_iter().map(|path| (name(&path), read(&path)));
    let found: Vec<_> = all.filter(|(name, _)| !name.ends_with("tests/law.rs")).collect();
    assert!(found.len() > 20, "the sources are where they are looked for");
    found
}

/// A line without its comment (a `//` inside a string cuts too early, which no rule here minds).
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or(line)
}

/// Lines of code that hold `needle` as a whole word, as `file:line`.
fn places(sources: &[(String, String)], needle: &str) -> Vec<String> {
    let word = |text: &str| {
        text.match_indices(needle).any(|(at, _)| {
            let joins = |c: char| c.is_alphanumeric() || c == '_';
            let before = text[..at].chars().next_back();
            let after = text[at + needle.len()..].chars().next();
            !(before.is_some_and(joins) || needle.ends_with(joins) && after.is_some_and(joins))
        })
    };
    let mut found = Vec::new();
    for (name, text) in sources {
        let hits = text.lines().enumerate().filter(|(_, line)| word(code(line)));
        found.extend(hits.map(|(index, _)| format!("{name}:{}", index + 1)));
    }
    found
}

fn assert_none(rule: &str, breaches: &[String]) {
    assert!(breaches.is_empty(), "{rule}:\n  {}", breaches.join("\n  "));
}

#[test]
fn dependencies_point_one_way() {
    let metadata = cargo_metadata::MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .unwrap();
    let packages: BTreeMap<String, _> =
        metadata.packages.iter().map(|package| (package.name.to_string(), package)).collect();
    let known: BTreeSet<&str> = DIRECTIONS.iter().map(|(name, ..)| *name).collect();
    assert_eq!(
        packages.keys().map(String::as_str).collect::<BTreeSet<_>>(),
        known,
        "a new crate needs its rule"
    );
    for (name, may_use, must_not) in DIRECTIONS {
        for dependency in &packages[name].dependencies {
            let used = dependency.name.as_str();
            let inside = known.contains(used);
            assert!(!inside || may_use.contains(&used), "{name} must not use {used}");
            assert!(!must_not.contains(&used), "{name} must do without {used}");
        }
    }
}

#[test]
fn data_reaches_no_tensors_by_any_way() {
    let lock: toml::Table = read(&root().join("Cargo.lock")).parse().unwrap();
    let mut uses: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in lock["package"].as_array().unwrap() {
        let dependencies = package.get("dependencies").and_then(toml::Value::as_array);
        let first_word = |text: &toml::Value| text.as_str().unwrap().split(' ').next().unwrap().to_owned();
        let names = dependencies.into_iter().flatten().map(first_word);
        uses.entry(package["name"].as_str().unwrap().to_owned()).or_default().extend(names);
    }
    let (mut reached, mut open) = (BTreeSet::new(), vec!["atpm-data".to_owned()]);
    while let Some(name) = open.pop() {
        if reached.insert(name.clone()) {
            open.extend(uses[&name].iter().cloned());
        }
    }
    assert!(reached.contains("parquet") && !reached.contains("candle-core"), "{reached:?}");
}

#[test]
fn every_op_has_the_one_form() {
    let root = root();
    let mut breaches = Vec::new();
    let mut seen = 0;
    for (room, parts) in [("ops", &["reference", "cpu", "tests"][..]), ("optim", &["cpu", "tests"])] {
        let room_path = root.join("crates/atpm-core/src").join(room);
        let list = read(&room_path.join("mod.rs"));
        for folder in std::fs::read_dir(&room_path).unwrap().map(|entry| entry.unwrap().path()) {
            if !folder.is_dir() {
                continue;
            }
            seen += 1;
            let op = folder.file_name().unwrap().to_string_lossy().into_owned();
            let has = |part: &str| {
                folder.join(format!("{part}.rs")).is_file() || folder.join(part).join("mod.rs").is_file()
            };
            let missing = parts.iter().chain(&["mod"]).filter(|part| !has(part));
            breaches.extend(missing.map(|part| format!("{room}/{op} has no {part}.rs")));
            if !list.lines().any(|line| line == format!("pub mod {op};")) {
                breaches.push(format!("{room}/mod.rs does not name {op}"));
            }
            // A matrix product is the vendor's.
            if has("cuda") && op != "linear" && !root.join(format!("kernels/{op}.cu")).is_file() {
                breaches.push(format!("{room}/{op}: cuda.rs launches kernels/{op}.cu, which is not there"));
            }
        }
    }
    assert!(seen > 5, "the ops are where they are looked for");
    assert_none("an op is a folder of mod, reference, cpu and tests", &breaches);
}

#[test]
fn paths_named_in_documents_exist() {
    let root = root();
    let mut documents = files(&root.join("docs"), "md");
    documents.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root.join(name)),
    );
    let rooms = ["crates/", "docs/", "configs/", "scripts/", "kernels/", ".ci/", ".config/"];
    let mut breaches = Vec::new();
    let mut named = 0;
    for document in documents {
        let text = read(&document);
        let ends_word = |c: char| c.is_whitespace() || "`()[]<>\"',;|=".contains(c);
        for word in text.split(ends_word) {
            let word = word
                .trim_end_matches(['.', ':', '/', '#'])
                .trim_start_matches("./")
                .trim_start_matches("../");
            let is_document = Path::new(word).extension().is_some_and(|e| e == "md") && !word.contains('/');
            let is_path = is_document || rooms.iter().any(|room| word.starts_with(room));
            if !is_path || word.contains(['*', '{', '$', '…']) {
                continue;
            }
            named += 1;
            let beside = document.parent().unwrap().join(word);
            if !root.join(word).exists() && !beside.exists() {
                breaches.push(format!("{}: {word}", document.strip_prefix(&root).unwrap().display()));
            }
        }
    }
    assert!(named > 20, "documents name paths");
    assert_none("a document names a path that does not exist", &breaches);
}

#[test]
fn unsafe_code_stays_in_its_rooms() {
    let sources = sources();
    let mut breaches = places(&sources, "unsafe");
    breaches.extend(places(&sources, "unsafe_code"));
    let rooms =
        ["crates/atpm-core/src/vector/", "crates/atpm-core/src/cuda/", "crates/atpm-train/src/allocator.rs"];
    breaches.retain(|place| !rooms.iter().any(|room| place.starts_with(room)));
    assert_none(
        "unsafe code belongs in atpm-core/src/vector and atpm-core/src/cuda, or is the allocator's one setting",
        &breaches,
    );
}

#[test]
fn shortcuts_stay_out() {
    // D7: text is validated where it enters; nothing may skip that.
    let mut sources = sources();
    // Printing is how a build script talks to cargo.
    sources.retain(|(name, _)| !name.ends_with("/build.rs"));
    for banned in [
        "from_utf8_unchecked",
        "todo!",
        "unimplemented!",
        "dbg!",
        "println!",
        "print!",
        "#[allow(",
        "#![allow(",
    ] {
        assert_none(&format!("`{banned}` is banned"), &places(&sources, banned));
    }
}

#[test]
fn feature_gates_are_few() {
    let gates: Vec<String> = sources()
        .iter()
        .flat_map(|(name, text)| {
            let gated = |line: &&str| code(line).contains("cfg") && code(line).contains("feature =");
            text.lines().filter(gated).map(|line| format!("{name}: {}", line.trim())).collect::<Vec<_>>()
        })
        .collect();
    assert!(gates.len() <= MOST_FEATURE_GATES, "too many feature gates:\n  {}", gates.join("\n  "));
    let mut elsewhere = gates;
    let rooms = ["crates/atpm-core/src/cuda/mod.rs:", "crates/atpm-core/tests/cuda/main.rs:"];
    elsewhere.retain(|gate| !rooms.iter().any(|room| gate.starts_with(room)));
    assert_none(
        "which backend a build has is asked in atpm-core/src/cuda/mod.rs and its tests alone",
        &elsewhere,
    );
}

#[test]
fn every_file_says_what_it_is_and_is_not_too_long() {
    let mut breaches = Vec::new();
    for (name, text) in sources() {
        if !text.starts_with("//! ") {
            breaches.push(format!("{name} does not begin with its module doc"));
        }
        let is_test = name.contains("/tests/") || name.ends_with("/tests.rs");
        let lines = text.lines().take_while(|line| !line.starts_with("#[cfg(test)]")).count();
        if !is_test && lines > MOST_LINES {
            breaches.push(format!("{name} has {lines} lines; take it apart (at most {MOST_LINES})"));
        }
    }
    assert_none("files are short and begin with `//!`", &breaches);
}

#[test]
fn every_dependency_has_its_reason_and_its_one_place() {
    let root = root();
    let workspace = read(&root.join("Cargo.toml"));
    let table = workspace.split("[workspace.dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let declared = table.lines().filter(|line| line.contains('=') && !line.starts_with('#'));
    let mut breaches: Vec<String> = declared
        .filter(|line| !line.contains("path = ") && !line.contains("# "))
        .map(|line| format!("no reason: {line}"))
        .collect();
    for manifest in files(&root.join("crates"), "toml").iter().filter(|path| path.ends_with("Cargo.toml")) {
        let text = read(manifest);
        let sections = text.split("\n[").filter(|section| section.contains("dependencies]"));
        let lines = sections.flat_map(|section| section.lines().skip(1)).filter(|line| line.contains('='));
        let foreign = lines.filter(|line| !line.contains("workspace = true"));
        breaches.extend(foreign.map(|line| format!("{}: {line}", manifest.display())));
    }
    assert_none("dependencies are declared once, in the workspace table, with a reason", &breaches);
}
