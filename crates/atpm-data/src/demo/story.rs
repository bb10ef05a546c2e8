//! One demo document: a small world whose facts change while it is told, with questions about how things stand.

use super::words::{ASIDES, KINDS, NAMES, OPENINGS, THINGS};
use crate::order::Stream;

/// A kind of fact and the sentences about it.
pub(super) struct Kind {
    pub(super) values: &'static [&'static str],
    /// Whether its subjects are things; else they are people.
    pub(super) things: bool,
    pub(super) state: &'static [&'static str],
    pub(super) keep: &'static [&'static str],
    pub(super) revise: &'static [&'static str],
    pub(super) ask: &'static [&'static str],
    pub(super) answer: &'static str,
}

/// A fact as it stands.
struct Fact {
    kind: &'static Kind,
    subject: &'static str,
    value: &'static str,
}

/// The story that `key` names.
pub(super) fn write(key: &[u64]) -> String {
    let mut stream = Stream::new(key);
    let mut sentences = vec![pick(&mut stream, &OPENINGS).to_owned()];
    let mut facts = world(&mut stream);
    for fact in &facts {
        sentences.push(fill(pick(&mut stream, fact.kind.state), fact.subject, fact.value, ""));
        aside(&mut stream, &mut sentences);
    }
    for _ in 0..facts.len() + stream.below(2 * facts.len()) {
        let place = stream.below(facts.len());
        event(&mut stream, &mut facts[place], &mut sentences);
        aside(&mut stream, &mut sentences);
        if stream.below(3) == 0 {
            let place = stream.below(facts.len());
            question(&mut stream, &facts[place], &mut sentences);
        }
    }
    for fact in &facts {
        question(&mut stream, fact, &mut sentences);
    }
    sentences.join(" ")
}

/// Two to five facts about different subjects or of different kinds.
fn world(stream: &mut Stream) -> Vec<Fact> {
    let mut facts: Vec<Fact> = Vec::new();
    let people = [pick(stream, &NAMES), pick(stream, &NAMES), pick(stream, &NAMES)];
    for _ in 0..2 + stream.below(4) {
        let kind = &KINDS[stream.below(KINDS.len())];
        let subject = if kind.things { pick(stream, &THINGS) } else { pick(stream, &people) };
        let known = facts.iter().any(|fact| fact.subject == subject && std::ptr::eq(fact.kind, kind));
        if !known {
            facts.push(Fact { kind, subject, value: pick(stream, kind.values) });
        }
    }
    facts
}

/// Keeps a fact in spite of something, or replaces it.
fn event(stream: &mut Stream, fact: &mut Fact, sentences: &mut Vec<String>) {
    let kind = fact.kind;
    let before = fact.value;
    let other = loop {
        let other = pick(stream, kind.values);
        if other != before {
            break other;
        }
    };
    let kept = stream.below(3) == 0;
    let sentence = pick(stream, if kept { kind.keep } else { kind.revise });
    sentences.push(fill(sentence, fact.subject, other, before));
    if !kept {
        fact.value = other;
    }
}

fn question(stream: &mut Stream, fact: &Fact, sentences: &mut Vec<String>) {
    sentences.push(fill(pick(stream, fact.kind.ask), fact.subject, fact.value, ""));
    sentences.push(fill(fact.kind.answer, fact.subject, fact.value, ""));
}

fn aside(stream: &mut Stream, sentences: &mut Vec<String>) {
    if stream.below(3) == 0 {
        let sentence = pick(stream, &ASIDES);
        sentences.push(sentence.replace("{n}", pick(stream, &NAMES)));
    }
}

fn fill(sentence: &str, subject: &str, value: &str, before: &str) -> String {
    sentence.replace("{s}", subject).replace("{v}", value).replace("{o}", before)
}

fn pick(stream: &mut Stream, from: &[&'static str]) -> &'static str {
    from[stream.below(from.len())]
}
