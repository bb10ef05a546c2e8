//! Tokenizers: equality with their libraries, awkward texts, streams, files and mistakes.

use std::fmt::Write as _;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::OnBadShard;
use crate::shards::{RowReader, Shard, Shards};
use crate::testing::{Template, bytes, corpus, documents, folder, numbered, shard, templated};

/// Texts that tokenizers trip over. D14: NUL, BOM, line separators, right-to-left marks, piled-up accents.
fn awkward() -> Vec<String> {
    let mut texts: Vec<String> = [
        "",
        " ",
        "   ",
        "a",
        " a  b   c\n\n d\t\te \u{a0}f\u{3000}\u{3000}g",
        "don't we'll I'd they've you're it's 'tis 'SHE'LL'",
        "x1y22z333 ½ Ⅷ ٣٤ 4️⃣ Ⓐ ⓑ",
        "naïve café Ελληνικά русский 中文字符 日本語テキスト हिन्दी עברית العربية ไทย",
        "👍 👨‍👩‍👧‍👦 🇩🇪",
        "\u{0}nul\u{feff}bom\u{2028}line\u{2029}par\u{200f}rtl\u{202e}",
        "<|endoftext|> is text </s> too",
        "trailing   ",
        "\n\n\n",
        "\r\n\r\n  x",
    ]
    .map(String::from)
    .into();
    texts.push(format!("e{}", "\u{301}".repeat(10_000)));
    texts.push("a".repeat(20_000));
    texts.push(" ".repeat(5_000));
    texts
}

/// The first texts of a corpus shard.
fn corpus_texts(name: &str, count: usize) -> Vec<String> {
    let Some(path) = corpus(name) else { return Vec::new() };
    let shard = Shard::open(&path, "text").unwrap();
    let texts = RowReader::open(&shard, 0, 0).unwrap().read(count).unwrap();
    texts.iter().map(|text| String::from_utf8(text.bytes().unwrap().to_vec()).unwrap()).collect()
}

#[test]
fn gpt2_equals_tiktoken() {
    let tokenizer = Tokenizer::open("gpt2").unwrap();
    assert_eq!(tokenizer.encode("Hello world").unwrap(), [15496, 995]);
    assert_eq!((tokenizer.eos_id(), tokenizer.max_id(), tokenizer.vocab_size()), (50256, 50256, 50257));
    let reference = tiktoken_rs::r50k_base_singleton();
    let mut words = WordCache::default();
    for text in awkward().iter().chain(&corpus_texts("val_00000.parquet", 32)) {
        let mut ids = Vec::new();
        tokenizer.encode_with(&mut words, text, &mut ids).unwrap();
        assert!(ids == reference.encode_ordinary(text), "{text:.80}");
        assert_eq!(tokenizer.decode(&ids).unwrap(), *text);
        assert_eq!(ids.iter().map(|&id| tokenizer.token_bytes(id)).sum::<usize>(), text.len());
    }
}

proptest! {
    #[test]
    fn gpt2_equals_tiktoken_on_any_text(text in "(\\PC|\\s|'|[a-z ]){0,60}") {
        static GPT2: std::sync::LazyLock<Tokenizer> = std::sync::LazyLock::new(|| Tokenizer::open("gpt2").unwrap());
        let expected: Vec<u32> = tiktoken_rs::r50k_base_singleton().encode_ordinary(&text);
        prop_assert_eq!(GPT2.encode(&text).unwrap(), expected);
    }
}

#[test]
fn saved_tokenizers_give_the_same_ids() {
    for name in ["gpt2", "bytes"] {
        let dir = folder();
        let tokenizer = Tokenizer::open(name).unwrap();
        tokenizer.save(dir.path()).unwrap();
        let reopened = Tokenizer::open(&dir.path().display().to_string()).unwrap();
        assert!(matches!(reopened.engine, Engine::Bpe(_)));
        assert_eq!((reopened.eos_id(), reopened.max_id()), (tokenizer.eos_id(), tokenizer.max_id()));
        let text = std::fs::read_to_string(dir.path().join(FILE)).unwrap();
        let library = HuggingFace::new(&text).unwrap();
        for text in awkward().iter().chain(&corpus_texts("val_00000.parquet", 4)) {
            let ids = tokenizer.encode(text).unwrap();
            assert!(reopened.encode(text).unwrap() == ids, "{name}: {text:.80}");
            // The library splits by its own, older table of characters, so only texts within it can be compared.
            if text.len() < 20_000 && !text.contains('\u{202e}') {
                assert!(library.encode(text).unwrap() == ids, "{name}, library: {text:.80}");
            }
        }
        for id in 0..=tokenizer.max_id() {
            assert_eq!(reopened.token_bytes(id), tokenizer.token_bytes(id), "{name}: {id}");
        }
    }
}

/// D13: whatever a tokenizer's template adds, text gets no special token; the pipeline alone adds them.
#[test]
fn templates_add_nothing() {
    let dir = folder();
    let templates = [Template::Nothing, Template::Bos, Template::BosAndEos];
    for (template, lower) in templates.iter().flat_map(|&template| [(template, false), (template, true)]) {
        let path = templated(dir.path(), template, lower);
        let tokenizer = Tokenizer::open(&path.display().to_string()).unwrap();
        assert_eq!(matches!(tokenizer.engine, Engine::Library(_)), lower);
        let text = "ab <s> <|endoftext|>";
        let expected: Vec<u32> = text.bytes().map(u32::from).collect();
        assert_eq!(tokenizer.encode(text).unwrap(), expected);
        // D23: the largest id counts added tokens.
        assert_eq!((tokenizer.max_id(), tokenizer.vocab_size()), (257, 258));
        assert_eq!((tokenizer.eos_id(), tokenizer.bos_id()), (256, Some(257)));
        assert_eq!([256, 257, 97].map(|id| tokenizer.token_bytes(id)), [0, 0, 1]);
    }
}

/// The names of special tokens come from the file beside the tokenizer, and survive being saved.
#[test]
fn special_tokens_are_named_beside_the_tokenizer() {
    let dir = folder();
    let path = templated(dir.path(), Template::Nothing, false);
    let names = r#"{"eos_token": "<s>", "bos_token": {"content": "<|endoftext|>"}}"#;
    std::fs::write(dir.path().join(CONFIG_FILE), names).unwrap();
    let tokenizer = Tokenizer::open(&path.display().to_string()).unwrap();
    assert_eq!((tokenizer.eos_id(), tokenizer.bos_id()), (257, Some(256)));
    let copy = folder();
    tokenizer.save(copy.path()).unwrap();
    let reopened = Tokenizer::open(&copy.path().display().to_string()).unwrap();
    assert_eq!((reopened.eos_id(), reopened.bos_id()), (257, Some(256)));
    // A piece of ordinary text that looks like one is none.
    let mut root: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    root["added_tokens"].as_array_mut().unwrap().pop();
    root["model"]["vocab"]["<s>"] = 258.into();
    std::fs::write(&path, root.to_string()).unwrap();
    std::fs::remove_file(dir.path().join(CONFIG_FILE)).unwrap();
    let tokenizer = Tokenizer::open(&path.display().to_string()).unwrap();
    assert_eq!((tokenizer.max_id(), tokenizer.bos_id()), (258, None));
}

#[test]
fn tokenizers_of_other_forms_go_through_the_library() {
    let dir = folder();
    let root = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"unk": 0, "hello": 1, "world": 2, "stop": 9}, "unk_token": "unk"}
    });
    let path = dir.path().join(FILE);
    std::fs::write(&path, root.to_string()).unwrap();
    let spec = path.display().to_string();
    let error = Tokenizer::open(&spec).unwrap_err().to_string();
    assert!(error.contains("no end-of-text token") && error.contains("<|endoftext|>"), "{error}");
    std::fs::write(dir.path().join("tokenizer_config.json"), r#"{"eos_token": {"content": "stop"}}"#)
        .unwrap();
    let tokenizer = Tokenizer::open(&spec).unwrap();
    assert_eq!(tokenizer.encode("hello there world").unwrap(), [1, 0, 2]);
    assert_eq!((tokenizer.eos_id(), tokenizer.max_id()), (9, 9));
    assert_eq!(tokenizer.token_bytes(1), 5);
    assert_eq!(tokenizer.decode(&[1, 2]).unwrap(), "hello world");
    let mut stream = tokenizer.stream();
    assert_eq!([1, 2].map(|id| stream.push(id).unwrap()), ["hello", " world"]);
}

/// A tokenizer with this model, its special tokens added; `extra` stands beside the model.
fn written(dir: &Path, model: &Value, specials: &[(u32, &str)], extra: &Value) -> String {
    let added = specials.iter().map(|(id, content)| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
               "normalized": false, "special": true})
    });
    let mut root = json!({"version": "1.0", "added_tokens": added.collect::<Vec<_>>(), "model": model});
    for (key, value) in extra.as_object().unwrap() {
        root[key] = value.clone();
    }
    let path = dir.join(FILE);
    std::fs::write(&path, root.to_string()).unwrap();
    path.display().to_string()
}

/// Unigram pieces as SentencePiece's: control tokens at 0 beat anything that text could be made of.
fn unigram(extra: &[&str]) -> Value {
    let mut vocab = vec![json!(["<unk>", 0.0]), json!(["<s>", 0.0]), json!(["</s>", 0.0])];
    vocab.extend(["▁", "a", "b", "s", "<", "/", ">"].iter().chain(extra).map(|piece| json!([piece, -3.0])));
    json!({"type": "Unigram", "unk_id": 0, "vocab": vocab})
}

/// The model of a Unigram tokenizer finds `</s>` in text by itself, whatever is said of added tokens.
#[test]
fn text_that_spells_a_special_token_is_text_to_every_model() {
    let dir = folder();
    let metaspace =
        json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
    let extra = json!({"pre_tokenizer": metaspace, "decoder": metaspace});
    let specials = [(0, "<unk>"), (1, "<s>"), (2, "</s>")];
    let tokenizer = Tokenizer::open(&written(dir.path(), &unigram(&[]), &specials, &extra)).unwrap();
    assert_eq!((tokenizer.eos_id(), tokenizer.bos_id()), (2, Some(1)));
    for text in ["ab", "a</s>b", "</s>", "<s>a </s></s> b<s>", "<</s>s>"] {
        let ids = tokenizer.encode(text).unwrap();
        assert!(ids.iter().all(|id| ![0, 1, 2].contains(id)), "{text}: {ids:?}");
        assert_eq!(tokenizer.decode(&ids).unwrap(), text);
        assert_eq!(ids.iter().map(|&id| tokenizer.token_bytes(id)).sum::<usize>(), text.len() + 1, "{text}");
    }
    // What is unknown stays so, also beside a spelling.
    assert_eq!(tokenizer.encode("a?").unwrap(), [3, 4, 0]);
    assert_eq!(tokenizer.encode("?</s>").unwrap(), [3, 0, 7, 8, 6, 9]);

    let words =
        json!({"type": "WordLevel", "vocab": {"unk": 0, "hello": 1, "stop": 2, ".": 3}, "unk_token": "unk"});
    let spec = written(dir.path(), &words, &[], &json!({"pre_tokenizer": {"type": "Whitespace"}}));
    for (eos, text, expected) in [("stop", "hello stop", Some(vec![1, 0, 0])), (".", "hello .", None)] {
        std::fs::write(dir.path().join(CONFIG_FILE), json!({"eos_token": eos}).to_string()).unwrap();
        let tokenizer = Tokenizer::open(&spec).unwrap();
        assert_eq!(tokenizer.token_bytes(tokenizer.eos_id()), 0);
        // A spelling of one character cannot be cut.
        match (tokenizer.encode(text), expected) {
            (Ok(ids), Some(expected)) => assert_eq!(ids, expected),
            (Err(error), None) => {
                assert!(error.to_string().contains("special token \".\" (id 3)"), "{error}");
            }
            (result, _) => panic!("{eos}: {result:?}"),
        }
    }
}

/// Byte-level tables know no special tokens, so a tokenizer whose end-of-text is an ordinary entry does not run on them.
#[test]
fn an_ordinary_entry_as_end_of_text_is_not_given_for_text() {
    let dir = folder();
    bytes().save(dir.path()).unwrap();
    let path = dir.path().join(FILE);
    let mut root: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    root["model"]["vocab"]["ab"] = 257.into();
    root["model"]["merges"] = json!([["a", "b"]]);
    std::fs::write(&path, root.to_string()).unwrap();
    let spec = path.display().to_string();
    assert_eq!(Tokenizer::open(&spec).unwrap().encode("ab").unwrap(), [257]);
    std::fs::write(dir.path().join(CONFIG_FILE), r#"{"eos_token": "ab"}"#).unwrap();
    let tokenizer = Tokenizer::open(&spec).unwrap();
    assert_eq!(tokenizer.encode("xab").unwrap(), [120, 97, 98]);
    assert_eq!((tokenizer.eos_id(), tokenizer.token_bytes(257)), (257, 0));
}

/// Dropout would draw other ids at every call: no resume could be exact.
#[test]
fn dropout_is_off() {
    for lower in [false, true] {
        let dir = folder();
        let files =
            [shard(dir.path(), "a.parquet", &[Some("abababab abab abab"); 9], 10).display().to_string()];
        let path = dir.path().join(FILE);
        train_bpe(&files, &path, &BpeOptions { vocab_size: 262, ..BpeOptions::default() }).unwrap();
        let spec = path.display().to_string();
        let expected = Tokenizer::open(&spec).unwrap().encode("abababab abab").unwrap();
        assert!(expected.len() < 8);
        let mut root: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        root["model"]["dropout"] = json!(0.9);
        if lower {
            root["normalizer"] = json!({"type": "Lowercase"});
        }
        std::fs::write(&path, root.to_string()).unwrap();
        let tokenizer = Tokenizer::open(&spec).unwrap();
        assert_eq!(matches!(tokenizer.engine, Engine::Library(_)), lower);
        for _ in 0..5 {
            assert_eq!(tokenizer.encode("abababab abab").unwrap(), expected);
        }
    }
}

/// `##` goes on with a word in WordPiece; in any other vocabulary it is text.
#[test]
fn a_mark_that_is_text_has_bytes() {
    let dir = folder();
    let specials = [(2, "</s>")];
    let tokenizer =
        Tokenizer::open(&written(dir.path(), &unigram(&["##", "##x"]), &specials, &json!({}))).unwrap();
    assert_eq!([10, 11, 3].map(|id| tokenizer.token_bytes(id)), [2, 3, 1]);
    let vocab = json!({"[UNK]": 0, "a": 1, "</s>": 2, "##b": 3});
    let model = json!({"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                       "max_input_chars_per_word": 100, "vocab": vocab});
    let tokenizer = Tokenizer::open(&written(dir.path(), &model, &specials, &json!({}))).unwrap();
    assert_eq!([1, 3].map(|id| tokenizer.token_bytes(id)), [1, 1]);
    assert_eq!(tokenizer.encode("ab").unwrap(), [1, 3]);
}

/// Names that cannot be used are told, never passed over; DeepSeek's have a full-width bar.
#[test]
fn names_of_special_tokens_are_checked() {
    let dir = folder();
    let specials = [(1, "<｜begin▁of▁sentence｜>"), (2, "<｜end▁of▁sentence｜>")];
    let vocab = json!({"unk": 0, "<｜begin▁of▁sentence｜>": 1, "<｜end▁of▁sentence｜>": 2, "</s>": 3});
    let model = json!({"type": "WordLevel", "vocab": vocab, "unk_token": "unk"});
    let spec = written(dir.path(), &model, &specials, &json!({}));
    let tokenizer = Tokenizer::open(&spec).unwrap();
    // `</s>` stands before it in the list, but is a word of this tokenizer and no special token.
    assert_eq!((tokenizer.eos_id(), tokenizer.bos_id()), (2, Some(1)));

    let config = dir.path().join(CONFIG_FILE);
    let refused = |content: &[u8], parts: [&str; 2]| {
        std::fs::write(&config, content).unwrap();
        let error = Tokenizer::open(&spec).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    refused(br#"{"bos_token": "<bos>"}"#, ["no token \"<bos>\"", "bos_token"]);
    refused(br#"{"eos_token": {"content": "<eos>"}}"#, ["no token \"<eos>\"", "eos_token"]);
    refused(br#"{"eos_token": 2}"#, ["tokenizer_config.json", "eos_token is no token"]);
    refused(b"{", ["tokenizer_config.json", "not valid JSON"]);
    refused(b"\xff", ["tokenizer_config.json", "cannot be read"]);
    std::fs::write(&config, r#"{"eos_token": "</s>", "bos_token": null}"#).unwrap();
    let tokenizer = Tokenizer::open(&spec).unwrap();
    assert_eq!((tokenizer.eos_id(), tokenizer.bos_id()), (3, Some(1)));
}

#[test]
fn bad_specs_are_one_clear_error() {
    let dir = folder();
    let spec = dir.path().join("none.json").display().to_string();
    assert!(Tokenizer::open(&spec).unwrap_err().to_string().contains("none.json"));
    for content in ["", "{", "[]", "{}", r#"{"model": 1}"#] {
        std::fs::write(&spec, content).unwrap();
        assert!(Tokenizer::open(&spec).unwrap_err().to_string().contains("none.json"), "{content}");
    }
    let error = Tokenizer::open("bytes").unwrap().decode(&[300]).unwrap_err().to_string();
    assert!(error.contains("300") && error.contains("256"), "{error}");
}

#[test]
fn a_stream_never_gives_half_a_character() {
    for name in ["bytes", "gpt2"] {
        let tokenizer = Tokenizer::open(name).unwrap();
        for text in awkward() {
            let mut stream = tokenizer.stream();
            let mut given = String::new();
            for id in tokenizer.encode(&text).unwrap() {
                let piece = stream.push(id).unwrap();
                assert!(!piece.contains(char::REPLACEMENT_CHARACTER), "{name}: {text:.80}");
                given += &piece;
            }
            given += &stream.finish().unwrap();
            assert!(given == text, "{name}: {text:.80}");
        }
    }
    let tokenizer = Tokenizer::open("bytes").unwrap();
    let mut stream = tokenizer.stream();
    let given: String = [0xff, 0x80, u32::from(b'a'), 0xe2, 0x82].map(|id| stream.push(id).unwrap()).concat();
    assert!(given.ends_with('a'), "{given:?}");
    assert_eq!(stream.finish().unwrap(), "\u{fffd}");
}

/// D11: what is remembered of words has a fixed size, however many there are.
#[test]
fn the_word_cache_is_bounded() {
    let tokenizer = Tokenizer::open("gpt2").unwrap();
    let mut words = WordCache::default();
    let mut ids = Vec::new();
    for round in 0..300_u64 {
        let mut text = String::new();
        for word in 0..800 {
            write!(text, " w{:x}", (round * 800 + word).wrapping_mul(0x9e37_79b9_7f4a_7c15)).unwrap();
        }
        ids.clear();
        tokenizer.encode_with(&mut words, &text, &mut ids).unwrap();
    }
    assert_eq!(
        tokenizer.decode(&ids).unwrap().len(),
        ids.iter().map(|&id| tokenizer.token_bytes(id)).sum::<usize>()
    );
    assert!(words.bytes() < 2 << 20, "{} bytes", words.bytes());
}

#[test]
fn a_trained_bpe_is_deterministic_and_byte_level() {
    let dir = folder();
    numbered(dir.path(), 200, 2, 30);
    let files = [dir.path().display().to_string()];
    let output = dir.path().join("a.json");
    let options = BpeOptions { vocab_size: 265, ..BpeOptions::default() };
    let report = train_bpe(&files, &output, &options).unwrap();
    let texts = documents(200);
    let bytes: usize = texts.iter().map(String::len).sum();
    assert_eq!((report.vocab_size, report.documents, report.text_bytes), (265, 200, bytes as u64));
    let again = dir.path().join("b.json");
    train_bpe(&files, &again, &options).unwrap();
    assert_eq!(std::fs::read(&output).unwrap(), std::fs::read(&again).unwrap());

    let tokenizer = Tokenizer::open(&output.display().to_string()).unwrap();
    assert!(matches!(tokenizer.engine, Engine::Bpe(_)));
    assert_eq!((tokenizer.eos_id(), tokenizer.vocab_size()), (264, 265));
    let library = HuggingFace::new(&std::fs::read_to_string(&output).unwrap()).unwrap();
    for text in awkward().iter().chain(&texts) {
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(tokenizer.decode(&ids).unwrap(), *text);
        if text.len() < 5_000 {
            assert!(library.encode(text).unwrap() == ids, "{text:.80}");
        }
    }
    assert!(tokenizer.encode("ab ab ab ab").unwrap().len() < 9);
}

/// A shard that vanishes between its opening and its reading is left out like any bad one.
#[test]
#[cfg(unix)]
fn training_follows_the_policy_for_bad_shards() {
    let dir = folder();
    shard(dir.path(), "a.parquet", &[Some("ab ab ab")], 10);
    std::os::unix::fs::symlink(dir.path().join("gone"), dir.path().join("b.parquet")).unwrap();
    let files = [dir.path().display().to_string()];
    let output = dir.path().join("t.json");
    let options = BpeOptions { on_bad_shard: OnBadShard::Skip, ..BpeOptions::default() };
    assert_eq!(train_bpe(&files, &output, &options).unwrap().documents, 1);
    let error = train_bpe(&files, &output, &BpeOptions::default()).unwrap_err();
    assert!(error.to_string().contains("b.parquet"), "{error}");

    std::fs::remove_file(dir.path().join("b.parquet")).unwrap();
    let shards = Shards::open("training text", &files, "text", OnBadShard::Fail).unwrap();
    std::fs::remove_file(dir.path().join("a.parquet")).unwrap();
    for (options, fails) in [(options, false), (BpeOptions::default(), true)] {
        let mut texts = train::Texts::new(&shards, &options);
        assert_eq!(texts.by_ref().count(), 0);
        assert_eq!(texts.error.is_some(), fails);
    }
}

/// A limit takes some text of every row group, not the first ones alone; without one, or below it, all is read.
#[test]
fn a_limit_reads_evenly() {
    let dir = folder();
    let all = numbered(dir.path(), 200, 4, 10);
    let files = [dir.path().display().to_string()];
    let shards = Shards::open("training text", &files, "text", OnBadShard::Fail).unwrap();
    let read = |max_bytes| {
        let options = BpeOptions { max_bytes, ..BpeOptions::default() };
        train::Texts::new(&shards, &options).collect::<Vec<String>>()
    };
    assert_eq!(BpeOptions::default().max_bytes, 1_000_000_000);
    assert!(read(0) == all && read(1_000_000_000) == all);
    let some = read(900);
    let bytes: usize = some.iter().map(String::len).sum();
    assert!((900..940).contains(&bytes), "{bytes}");
    for group in all.chunks(10) {
        let taken = some.iter().filter(|text| group.contains(text)).count();
        assert!((1..10).contains(&taken), "{taken} of {group:?}");
    }
    assert_eq!(read(1).len(), 1);
}

#[test]
fn training_refuses_what_it_cannot_do() {
    let dir = folder();
    let path = shard(dir.path(), "a.parquet", &[None, Some("")], 10);
    let files = [path.display().to_string()];
    let output = dir.path().join("t.json");
    let small = BpeOptions { vocab_size: 256, ..BpeOptions::default() };
    assert!(train_bpe(&files, &output, &small).unwrap_err().to_string().contains("257"));
    let error = train_bpe(&files, &output, &BpeOptions::default()).unwrap_err().to_string();
    assert!(error.contains("no usable document"), "{error}");
    assert!(train_bpe(&[], &output, &BpeOptions::default()).is_err());
    assert!(!output.exists());
}
