//! Demo shards: the same bytes every time, facts that hold, a schema like FineWeb's.

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

#[test]
fn stories_answer_with_the_last_value() {
    let dir = folder();
    let report = write(dir.path(), &DemoOptions { train_bytes: 50_000, ..DemoOptions::default() }).unwrap();
    let shard = Shard::open(&report.val[0], "text").unwrap();
    let texts = RowReader::open(&shard, 0, 0).unwrap().read(100).unwrap();
    let mut asked = 0;
    for text in &texts {
        let text = std::str::from_utf8(text.bytes().unwrap()).unwrap();
        assert!(!text.contains(['{', '}']), "{text}");
        asked += text.matches('?').count();
        for (_, after) in text.match_indices("Where does ").map(|(at, _)| text.split_at(at)) {
            let subject = after["Where does ".len()..].split(' ').next().unwrap();
            let answer = after.split_once("? ").unwrap().1.split('.').next().unwrap();
            let city = answer.strip_prefix(&format!("{subject} lives in ")).unwrap();
            assert!(text[..text.len() - after.len()].contains(city), "{text}");
        }
    }
    assert!(asked > 3 * texts.len());
    assert!(write(dir.path(), &DemoOptions { shards: 0, ..DemoOptions::default() }).is_err());
}
