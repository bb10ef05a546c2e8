//! Demo shards: the same bytes every time, facts that hold, a schema like FineWeb's.

use std::collections::HashMap;

use super::words::KINDS;
use super::*;
use crate::shards::{RowReader, Shard};
use crate::testing::folder;
use crate::{Tokenizer, inspect};

#[test]
fn demo_data_is_the_same_every_time() {
    let options =
        DemoOptions { train_bytes: 60_000, val_bytes: 20_000, row_group: 16, ..DemoOptions::default() };
    let (one, two) = (folder(), folder());
    let first = write(one.path(), &options).unwrap();
    let second = write(&two.path().join("made"), &options).unwrap();
    assert_eq!((first.train.len(), first.val.len()), (2, 1));
    for (a, b) in first.train.iter().chain(&first.val).zip(second.train.iter().chain(&second.val)) {
        assert_eq!(std::fs::read(a).unwrap(), std::fs::read(b).unwrap());
    }
    let other = write(two.path(), &DemoOptions { seed: 2, ..options }).unwrap();
    assert_ne!(std::fs::read(&first.val[0]).unwrap(), std::fs::read(&other.val[0]).unwrap());
}

#[test]
fn demo_data_has_the_promised_sizes_and_columns() {
    let dir = folder();
    let report = write(dir.path(), &DemoOptions::default()).unwrap();
    let files: Vec<String> = report.train.iter().map(|path| path.display().to_string()).collect();
    let inspection = inspect(&files, "text", &Tokenizer::open("bytes").unwrap()).unwrap();
    assert!((3_000_000..3_010_000).contains(&inspection.text_bytes), "{}", inspection.text_bytes);
    assert!(inspection.row_groups >= 8 && inspection.problems.is_empty(), "{inspection:?}");
    let names: Vec<_> = inspection.schema.iter().map(|column| column.name.as_str()).collect();
    let expected =
        ["text", "id", "dump", "url", "date", "file_path", "language", "language_score", "token_count"];
    assert_eq!(names, expected);
}

/// What a sentence says of a subject; `value` and `before` are empty where it does not tell them.
#[derive(Debug, Default)]
struct Said<'a> {
    subject: &'a str,
    value: &'a str,
    before: &'a str,
}

/// Reads a sentence that was made of `template`.
fn fit<'a>(template: &str, sentence: &'a str) -> Option<Said<'a>> {
    let (parts, words): (Vec<&str>, Vec<&str>) =
        (template.split(' ').collect(), sentence.split(' ').collect());
    let mut said = Said::default();
    for (part, &word) in parts.iter().zip(&words) {
        match part.find('{') {
            None if *part == word => {}
            None => return None,
            Some(at) => {
                let filled = word.strip_prefix(&part[..at])?.strip_suffix(&part[at + 3..])?;
                match &part[at..at + 3] {
                    "{s}" => said.subject = filled,
                    "{v}" => said.value = filled,
                    _ => said.before = filled,
                }
            }
        }
    }
    (parts.len() == words.len()).then_some(said)
}

/// Checks every answer of a story against what it said last; gives the number of answers, and of those that are not what
/// it said first.
fn check(story: &str) -> (usize, usize) {
    let (mut first, mut last) = (HashMap::new(), HashMap::new());
    let (mut answers, mut revised) = (0, 0);
    let mut asked = None;
    for sentence in story.split_inclusive(['.', '?']).map(str::trim) {
        if let Some(place) = asked.take() {
            let (kind, subject): (usize, &str) = place;
            let answer = fit(KINDS[kind].answer, sentence).unwrap();
            assert_eq!((answer.subject, answer.value), (subject, last[&place]), "{story}");
            answers += 1;
            revised += usize::from(first[&place] != answer.value);
            continue;
        }
        for (index, kind) in KINDS.iter().enumerate() {
            let find = |templates: &[&str]| {
                let mut fitting = templates.iter().filter_map(|template| fit(template, sentence));
                fitting.find(|said| said.value.is_empty() || kind.values.contains(&said.value))
            };
            if let Some(said) = find(kind.state) {
                assert!(first.insert((index, said.subject), said.value).is_none(), "{story}");
                last.insert((index, said.subject), said.value);
            } else if let Some(said) = find(kind.revise) {
                let before = last.insert((index, said.subject), said.value).unwrap();
                assert!(before != said.value && (said.before.is_empty() || said.before == before), "{story}");
            } else if let Some(said) = find(kind.ask) {
                asked = Some((index, said.subject));
            }
        }
    }
    (answers, revised)
}

/// A generator that answers with the first value, or with any other than the last, fails here.
#[test]
fn stories_answer_with_the_last_value() {
    let dir = folder();
    let report = write(dir.path(), &DemoOptions { train_bytes: 50_000, ..DemoOptions::default() }).unwrap();
    let shard = Shard::open(&report.val[0], "text").unwrap();
    let texts = RowReader::open(&shard, 0, 0).unwrap().read(100).unwrap();
    let (mut answers, mut revised) = (0, 0);
    for text in &texts {
        let text = std::str::from_utf8(text.bytes().unwrap()).unwrap();
        assert!(!text.contains(['{', '}']), "{text}");
        let counts = check(text);
        assert_eq!(counts.0, text.matches('?').count(), "{text}");
        answers += counts.0;
        revised += counts.1;
    }
    assert!(answers > 3 * texts.len() && revised > texts.len(), "{revised} of {answers}");
    assert!(write(dir.path(), &DemoOptions { shards: 0, ..DemoOptions::default() }).is_err());
}
