//! What a model is to read: its tokens in words, which are marked, and which groups of them are compared.

use atpm_data::Tokenizer;
use atpm_data::synthetic::{Sample, WriteKind, vocabulary};

use crate::inference::model::Opened;
use crate::report::plot::sheet::MOST_TOKENS;
use crate::run::exit::user;
use crate::suite::kept::expect_words;

/// One sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// What it is.
    pub title: String,
    /// Its tokens.
    pub ids: Vec<u32>,
    /// Each token's text.
    pub words: Vec<String>,
    /// Marked positions in ascending order.
    pub marks: Vec<usize>,
    /// Where they come from.
    pub marked: Marked,
    /// For each token, what the write does that it is a word of.
    pub writes: Vec<Option<WriteKind>>,
    /// What is compared with what; nothing where there is nothing to tell apart.
    pub places: Vec<Place>,
}

/// Where marks come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marked {
    /// The task: the words of the writes that revise a fact.
    Revisions,
    /// The user, by `--mark`.
    ByUser,
}

/// Tokens that are alike but for one thing, in groups by that thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// What the tokens are.
    pub name: &'static str,
    /// The groups; none is empty.
    pub groups: Vec<Group>,
}

/// Some tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// What sets them apart.
    pub name: &'static str,
    /// Their positions.
    pub tokens: Vec<usize>,
}

/// Kinds of writes in the order in which they are shown, with their names in words and in files.
pub const KINDS: [(WriteKind, &str, &str); 3] = [
    (WriteKind::First, "first write", "first"),
    (WriteKind::Revision, "revision", "revision"),
    (WriteKind::Ignored, "ignored write", "ignored"),
];

impl Subject {
    /// A sample of a memory task, as a model reads it in training: answers that are fed back included. `marks` instead of
    /// its revisions, if there are any.
    ///
    /// # Errors
    /// A model that does not read the memory tasks' words, a mark past the end.
    pub fn sample(opened: &Opened, sample: &Sample, title: String, marks: &[usize]) -> anyhow::Result<Self> {
        expect_words(opened, "--prompt TEXT, or ")?;
        let writes = sample.writes();
        let mut kinds = vec![None; sample.ids.len()];
        for write in &writes {
            kinds[write.words.clone()].fill(Some(write.kind));
        }
        let of = |wanted: WriteKind, word: usize| -> Vec<usize> {
            let own = writes.iter().filter(|write| write.kind == wanted);
            own.map(|write| write.words.start + word).collect()
        };
        let place = |(name, word)| {
            let groups = KINDS.map(|(kind, name, _)| Group { name, tokens: of(kind, word) });
            Place { name, groups: groups.into_iter().filter(|group| !group.tokens.is_empty()).collect() }
        };
        let places = [("first word of a write", 0), ("second word of a write", 1)].map(place);
        let revision =
            |(at, kind): (usize, &Option<WriteKind>)| (*kind == Some(WriteKind::Revision)).then_some(at);
        let own_marks = kinds.iter().enumerate().filter_map(revision).collect();
        Self {
            title,
            words: sample.ids.iter().map(|&id| vocabulary::name(id)).collect(),
            ids: sample.ids.clone(),
            marks: own_marks,
            marked: Marked::Revisions,
            places: places.into_iter().filter(|place| !place.groups.is_empty()).collect(),
            writes: kinds,
        }
        .with_marks(marks)
    }

    /// Text, as `generate` reads it at the beginning of a memory.
    ///
    /// # Errors
    /// Text that is empty, too long or that the tokenizer refuses, a mark past the end.
    pub fn prompt(opened: &Opened, text: &str, marks: &[usize]) -> anyhow::Result<Self> {
        let tokenizer = &opened.tokenizer;
        let ids = tokenizer.encode(text)?;
        if ids.is_empty() {
            return Err(user("--prompt: it is empty; give the text that the model is to read"));
        }
        let ids: Vec<u32> = tokenizer.bos_id().filter(|_| opened.bos).into_iter().chain(ids).collect();
        let words = ids.iter().map(|&id| word(tokenizer, id)).collect::<anyhow::Result<Vec<_>>>()?;
        let (title, writes) = ("a prompt".into(), vec![None; ids.len()]);
        let (marked, places) = (Marked::ByUser, Vec::new());
        Self { title, ids, words, marks: Vec::new(), marked, writes, places }.with_marks(marks)
    }

    /// With the user's marks, if there are any: marked tokens are then compared with the others.
    fn with_marks(mut self, marks: &[usize]) -> anyhow::Result<Self> {
        let tokens = self.ids.len();
        if tokens > MOST_TOKENS {
            return Err(user(format!(
                "the sequence has {tokens} tokens, and a picture holds {MOST_TOKENS}; give a shorter one"
            )));
        }
        if let Some(mark) = marks.iter().find(|&&mark| mark >= tokens) {
            return Err(user(format!(
                "--mark {mark}: the sequence has {tokens} tokens, numbered from 0 to {}",
                tokens - 1
            )));
        }
        if !marks.is_empty() {
            self.marked = Marked::ByUser;
            self.marks = marks.to_vec();
            self.marks.sort_unstable();
            self.marks.dedup();
            let others = (0..tokens).filter(|token| !self.marks.contains(token)).collect();
            let groups = [("other", others), ("marked", self.marks.clone())];
            let groups = groups.map(|(name, tokens)| Group { name, tokens });
            let groups = groups.into_iter().filter(|group| !group.tokens.is_empty()).collect();
            self.places = vec![Place { name: "token", groups }];
        }
        Ok(self)
    }
}

/// A token's text; a special token's is its number in brackets.
fn word(tokenizer: &Tokenizer, id: u32) -> anyhow::Result<String> {
    let text = tokenizer.decode(&[id])?;
    Ok(if text.is_empty() { format!("<{id}>") } else { text })
}
