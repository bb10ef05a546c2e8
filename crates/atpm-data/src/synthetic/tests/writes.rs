//! The writes of a line, replayed, leave what its answer says.

use super::vocabulary::{UNKNOWN, is_value, name, tokenizer};
use super::*;

/// What each key that is asked for holds after the writes; `obey` leaves out those that are to be ignored.
fn replayed(sample: &Sample, obey: bool) -> Vec<u32> {
    let mut held: HashMap<u32, u32> = HashMap::new();
    for Write { kind, words } in sample.writes() {
        let (from, to) = (sample.ids[words.start], sample.ids[words.start + 1]);
        if kind == WriteKind::Ignored && obey {
            continue;
        }
        if is_value(to) {
            let first = held.insert(from, to).is_none();
            assert!(kind == WriteKind::Ignored || first == (kind == WriteKind::First), "{}", sample.text());
        } else {
            assert_eq!(kind, WriteKind::Revision, "{}", sample.text());
            let value = held.remove(&from).unwrap();
            assert_eq!(held.insert(to, value), None, "{}", sample.text());
        }
    }
    // A question ends with its key and `=`, where its answer is due.
    let asked = sample.answer().map(|(position, _)| sample.ids[position - 1]);
    asked.map(|key| held.get(&key).copied().unwrap_or(UNKNOWN)).collect()
}

#[test]
fn writes_lead_to_the_answer() {
    let mut wrong = 0;
    for task in [Task::KvRecall, Task::Overwrite, Task::Rebind, Task::GatedWrite, Task::Relocate] {
        for sample in Split::ALL.into_iter().flat_map(|split| samples(task, split)) {
            let answers: Vec<u32> = sample.answer().map(|(_, answer)| answer).collect();
            assert_eq!(replayed(&sample, true), answers, "{}", sample.text());
            wrong += usize::from(replayed(&sample, false) != answers);
            let revised = sample.writes().iter().any(|write| write.kind == WriteKind::Revision);
            // In gated_write all later writes may be ignored.
            assert!(revised == (task != Task::KvRecall) || task == Task::GatedWrite, "{}", sample.text());
        }
    }
    assert!(wrong > 100, "writes to be ignored matter: {wrong}");
}

#[test]
fn updates_of_forgetting_mqar_are_revisions_and_queries_no_writes() {
    for sample in samples(Task::ForgettingMqar, Split::Ood) {
        let kinds: Vec<_> = sample.writes().into_iter().map(|write| write.kind).collect();
        let queries = sample.answer().count();
        let expected = [vec![WriteKind::First; queries], vec![WriteKind::Revision; queries / 2]].concat();
        assert_eq!(kinds, expected, "{}", sample.text());
    }
    for task in [Task::PointerChase, Task::Copy, Task::SelectiveCopy] {
        assert!(samples(task, Split::Iid).iter().all(|sample| sample.writes().is_empty()), "{}", task.name());
    }
}

#[test]
fn words_go_through_the_tokenizer_and_back() {
    let tokenizer = tokenizer().unwrap();
    assert_eq!((tokenizer.vocab_size(), tokenizer.eos_id()), (vocabulary::SIZE, vocabulary::PAD));
    for sample in single().flat_map(|task| samples(task, Split::Iid)) {
        let words = sample.ids.iter().map(|&id| name(id)).collect::<Vec<_>>().join(" ");
        assert_eq!(tokenizer.encode(&words).unwrap(), sample.ids);
        assert_eq!(tokenizer.decode(&sample.ids).unwrap(), words);
    }
    let error = tokenizer.encode("kv_recall k1 v64").unwrap_err().to_string();
    assert!(error.contains("a word that is none of its own"), "{error}");
    // As a folder it is the same tokenizer.
    let folder = tempfile::tempdir().unwrap();
    tokenizer.save(folder.path()).unwrap();
    let opened = Tokenizer::open(&folder.path().to_string_lossy()).unwrap();
    assert_eq!(opened.fingerprint(), tokenizer.fingerprint());
    assert_eq!((opened.eos_id(), opened.bos_id()), (vocabulary::PAD, None));
}
