//! What an inspection counts and reports.

use super::*;
use crate::Tokenizer;
use crate::testing::{folder, raw_shard, shard};

#[test]
fn an_inspection_counts_everything_once() {
    let dir = folder();
    shard(dir.path(), "a.parquet", &[Some("one"), None, Some(""), Some("three")], 2);
    raw_shard(dir.path(), "b.parquet", &[b"x\xff"]);
    std::fs::write(dir.path().join("c.parquet"), "no parquet").unwrap();
    let tokenizer = Tokenizer::open("bytes").unwrap();
    let report = inspect(&[dir.path().display().to_string()], "text", &tokenizer).unwrap();
    assert_eq!((report.rows, report.row_groups, report.documents), (5, 3, 3));
    assert_eq!((report.nulls, report.empties, report.invalid_utf8), (1, 1, 1));
    assert_eq!((report.tokens, report.text_bytes, report.longest_document_tokens), (12, 12, 5));
    assert_eq!(report.bytes_per_token, 1.0);
    assert_eq!(
        report.schema,
        [ColumnReport { name: "text".into(), kind: "byte_array, string".into(), nullable: true }]
    );
    assert_eq!(report.files.len(), 3);
    assert!(report.files[2].problem.as_ref().unwrap().contains("c.parquet"));
    assert_eq!(report.problems.len(), 2);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!((json["documents"].as_u64(), json["tokens"].as_u64()), (Some(3), Some(12)));
    assert!(inspect(&["/no/such/*.parquet".into()], "text", &tokenizer).is_err());
}
