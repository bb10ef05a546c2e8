//! Shards, whole and damaged.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Decimal128Array, DictionaryArray, Int32Array, LargeStringArray, ListBuilder,
    NullArray, StringArray, StringBuilder, StringViewArray, StructArray,
};
use arrow::datatypes::{DataType, Field, Int32Type};

use super::*;
use crate::OnInvalidUtf8;
use crate::testing::{folder, raw_shard, shard, write_columns};

/// All texts of a shard, three rows at a time.
fn read_all(shard: &Shard) -> Result<Vec<Option<Vec<u8>>>> {
    let mut all = Vec::new();
    for row_group in 0..shard.row_groups.len() {
        let mut reader = RowReader::open(shard, row_group, 0)?;
        loop {
            let texts = reader.read(3)?;
            if texts.is_empty() {
                break;
            }
            all.extend(texts.iter().map(|text| text.bytes().map(<[u8]>::to_vec)));
        }
    }
    Ok(all)
}

#[test]
fn every_string_type_reads_the_same() {
    let dir = folder();
    let texts = [Some("one"), None, Some(""), Some("two"), Some("two"), None, Some("größe"), Some("three")];
    let columns: [(&str, ArrayRef); 5] = [
        ("utf8", Arc::new(StringArray::from(texts.to_vec()))),
        ("large", Arc::new(LargeStringArray::from(texts.to_vec()))),
        ("view", Arc::new(StringViewArray::from(texts.to_vec()))),
        ("binary", Arc::new(BinaryArray::from_iter(texts))),
        ("dictionary", Arc::new(texts.into_iter().collect::<DictionaryArray<Int32Type>>())),
    ];
    let expected: Vec<_> = texts.iter().map(|text| text.map(|text| text.as_bytes().to_vec())).collect();
    for (name, column) in columns {
        let path = dir.path().join(name).with_extension("parquet");
        write_columns(&path, vec![("text", column)], 5, 2);
        let shard = Shard::open(&path, "text").unwrap();
        assert_eq!(shard.row_groups.len(), 2, "{name}");
        assert_eq!(read_all(&shard).unwrap(), expected, "{name}");
        for first in 0..5 {
            let rest = RowReader::open(&shard, 0, first).unwrap().read(10).unwrap();
            let rest: Vec<_> = rest.iter().map(|text| text.bytes().map(<[u8]>::to_vec)).collect();
            assert_eq!(rest, expected[first..5], "{name} from row {first}");
        }
    }
}

/// D3: a missing column is an error that lists the real ones, and the policy holds for any shard of many.
#[test]
fn a_missing_text_column_is_told_at_open() {
    let dir = folder();
    for index in 0..10 {
        let name = if index == 1 { "content" } else { "text" };
        let path = dir.path().join(format!("{index}.parquet"));
        let numbers = Arc::new(Int32Array::from(vec![1, 2]));
        write_columns(
            &path,
            vec![(name, Arc::new(StringArray::from(vec!["a", "b"]))), ("n", numbers)],
            10,
            10,
        );
    }
    let files = [dir.path().display().to_string()];
    let error = Shards::open("data.train", &files, "text", OnBadShard::Fail).unwrap_err().to_string();
    for part in
        ["1.parquet", "\"text\"", "\"content\" (byte_array, string)", "\"n\" (int32)", "data.text_column"]
    {
        assert!(error.contains(part), "{part} is not in: {error}");
    }
    let shards = Shards::open("data.train", &files, "text", OnBadShard::Skip).unwrap();
    assert_eq!((shards.list.len(), shards.skipped, shards.rows()), (9, 1, 18));
    let error = Shards::open("data.train", &files, "n", OnBadShard::Fail).unwrap_err().to_string();
    assert!(error.contains("cannot hold text"), "{error}");
}

/// A shard that cannot be opened (a link that leads nowhere, removed meanwhile) is a bad shard like a broken one.
#[test]
#[cfg(unix)]
fn a_file_that_is_not_there_follows_the_policy() {
    let dir = folder();
    for name in ["a.parquet", "c.parquet"] {
        shard(dir.path(), name, &[Some("text")], 10);
    }
    std::os::unix::fs::symlink(dir.path().join("gone"), dir.path().join("b.parquet")).unwrap();
    let files = [dir.path().display().to_string()];
    let open = |policy| Shards::open("data.train", &files, "text", policy);
    let error = open(OnBadShard::Fail).unwrap_err();
    assert!(matches!(error, Error::Io { .. }) && error.is_user_mistake(), "{error}");
    for part in ["b.parquet", "cannot open", "--on-bad-shard skip"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let mut shards = open(OnBadShard::Skip).unwrap();
    assert_eq!((shards.list.len(), shards.skipped), (2, 1));

    std::fs::remove_file(dir.path().join("c.parquet")).unwrap();
    assert_eq!(shards.digests(OnBadShard::Skip).unwrap().len(), 1);
    assert_eq!((shards.list.len(), shards.skipped), (1, 2));
    std::fs::remove_file(dir.path().join("a.parquet")).unwrap();
    let error = shards.digests(OnBadShard::Skip).unwrap_err().to_string();
    assert!(error.contains("no usable shard among 3 files (3 skipped"), "{error}");
}

#[test]
fn copies_of_a_shard_are_told() {
    let dir = folder();
    let path = shard(dir.path(), "a.parquet", &[Some("one")], 10);
    shard(dir.path(), "b.parquet", &[Some("two")], 10);
    std::fs::copy(&path, dir.path().join("c.parquet")).unwrap();
    let files = [dir.path().display().to_string()];
    let mut shards = Shards::open("data.train", &files, "text", OnBadShard::Fail).unwrap();
    let digests = shards.digests(OnBadShard::Fail).unwrap();
    assert_eq!(shards.twins(&digests), [(path.as_path(), dir.path().join("c.parquet").as_path())]);
}

/// D4: columns beside the text are never decoded, whatever their type and state.
#[test]
fn other_columns_do_not_matter() {
    let dir = folder();
    let path = dir.path().join("a.parquet");
    let part = Arc::new(StringArray::from(vec!["x", "y", "z"])) as ArrayRef;
    let record = StructArray::from(vec![(Arc::new(Field::new("part", DataType::Utf8, true)), part)]);
    let mut list = ListBuilder::new(StringBuilder::new());
    for _ in 0..3 {
        list.values().append_value("item");
        list.append(true);
    }
    let metadata = "METADATA THAT IS EASY TO FIND ".repeat(20);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("nothing", Arc::new(NullArray::new(3))),
        ("record", Arc::new(record)),
        ("list", Arc::new(list.finish())),
        ("metadata", Arc::new(StringArray::from(vec![metadata.as_str(); 3]))),
        ("price", Arc::new(Decimal128Array::from(vec![1, 2, 3]).with_precision_and_scale(20, 2).unwrap())),
        ("text", Arc::new(StringArray::from(vec![Some("a"), None, Some("b")]))),
    ];
    write_columns(&path, columns, 10, 10);
    let expected = vec![Some(b"a".to_vec()), None, Some(b"b".to_vec())];
    assert_eq!(read_all(&Shard::open(&path, "text").unwrap()).unwrap(), expected);

    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes.windows(20).position(|window| window == &metadata.as_bytes()[..20]).unwrap();
    bytes[at - 30..at + 300].fill(0xee);
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(read_all(&Shard::open(&path, "text").unwrap()).unwrap(), expected);
    assert!(Shard::open(&path, "metadata").and_then(|shard| read_all(&shard)).is_err());
}

/// D6: a cut, flipped or foreign file is an error that names it, never a panic.
#[test]
fn broken_files_are_errors() {
    let dir = folder();
    let texts: Vec<_> =
        (0..200).map(|index| Some(if index % 2 == 0 { "some text" } else { "other text" })).collect();
    let whole = std::fs::read(shard(dir.path(), "whole.parquet", &texts, 50)).unwrap();
    let path = dir.path().join("broken.parquet");
    let check = |what: &str, content: &[u8], must_fail: bool| {
        std::fs::write(&path, content).unwrap();
        match Shard::open(&path, "text").and_then(|shard| read_all(&shard)) {
            Ok(_) => assert!(!must_fail, "{what} was read"),
            Err(error) => assert!(error.to_string().contains("broken.parquet"), "{what}: {error}"),
        }
    };
    for cut in (0..20).map(|cut| whole.len() * cut / 20).chain([1, 8, whole.len() - 8, whole.len() - 1]) {
        check(&format!("cut at {cut}"), &whole[..cut], true);
    }
    for at in whole.len().saturating_sub(1500)..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 0x55;
        check(&format!("byte {at} flipped"), &flipped, at >= whole.len() - 4);
    }
    check("JSON", b"{\"text\": \"not parquet\"}", true);
    check("zstd", &[0x28, 0xb5, 0x2f, 0xfd, 4, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9], true);
}

/// D7: invalid UTF-8 is an error or a replacement, by policy. D14: so are surrogates written as bytes.
#[test]
fn invalid_utf8_follows_the_policy() {
    let dir = folder();
    let path = raw_shard(dir.path(), "a.parquet", &[b"fine", b"he\xfflo", b"\xed\xa0\x80x"]);
    let shard = Shard::open(&path, "text").unwrap();
    let texts = RowReader::open(&shard, 0, 0).unwrap().read(3).unwrap();
    let decode = |index: usize, policy| {
        let text = texts[index].decode(&shard, 0, policy);
        text.map(|text| text.unwrap().into_owned()).map_err(|error| error.to_string())
    };
    assert_eq!(decode(0, OnInvalidUtf8::Fail).unwrap(), "fine");
    assert!(decode(1, OnInvalidUtf8::Fail).unwrap_err().contains("row 1 of row group 0"));
    assert_eq!(decode(1, OnInvalidUtf8::Replace).unwrap(), "he\u{fffd}lo");
    assert!(decode(2, OnInvalidUtf8::Replace).unwrap().ends_with("\u{fffd}x"));
}

/// D8: more text than 2^31 bytes in one row group: the values are shared, so no offset overflows and memory stays small.
#[test]
fn a_row_group_may_hold_more_than_two_gibibytes() {
    let dir = folder();
    let path = dir.path().join("a.parquet");
    let long = "a".repeat(4 << 20);
    let mut keys: Vec<Option<i32>> = vec![Some(0); 520];
    keys.extend(vec![None; 480]);
    let values = StringArray::from(vec![long.as_str()]);
    let texts = DictionaryArray::<Int32Type>::new(Int32Array::from(keys), Arc::new(values));
    write_columns(&path, vec![("text", Arc::new(texts))], 1000, 100);
    let shard = Shard::open(&path, "text").unwrap();
    let texts = RowReader::open(&shard, 0, 0).unwrap().read(1000).unwrap();
    let bytes: usize = texts.iter().filter_map(Text::bytes).map(<[u8]>::len).sum();
    assert_eq!((texts.len(), bytes), (1000, 520 * (4 << 20)));
    assert!(bytes > i32::MAX as usize);

    let plain: Vec<_> = (0..12).map(|_| Some(&long[..3 << 20])).collect();
    let path = dir.path().join("b.parquet");
    write_columns(&path, vec![("text", Arc::new(StringArray::from(plain)))], 100, 2);
    let shards = Shards::open("data.train", &[path.display().to_string()], "text", OnBadShard::Fail).unwrap();
    assert_eq!(read_all(&shards.list[0]).unwrap().len(), 12);
}

/// D9: a column that is almost all null gives as many rows as its metadata says, over pages and row groups.
#[test]
fn null_runs_keep_their_length() {
    let dir = folder();
    let texts: Vec<_> = (0..3000).map(|row| (row % 33 == 7).then_some("word")).collect();
    let path = dir.path().join("a.parquet");
    write_columns(&path, vec![("text", Arc::new(StringArray::from(texts.clone())))], 1100, 50);
    let shard = Shard::open(&path, "text").unwrap();
    let expected: Vec<_> = texts.iter().map(|text| text.map(|text| text.as_bytes().to_vec())).collect();
    assert_eq!(read_all(&shard).unwrap(), expected);
}
