//! Text to token ids and back.

mod bpe;
mod builtin;
mod huggingface;
mod json;
mod stream;
#[cfg(test)]
mod tests;
mod train;
mod words;

use std::path::Path;

use bpe::Bpe;
pub use bpe::WordCache;
use huggingface::HuggingFace;
pub use stream::StreamDecoder;
pub use train::{BpeOptions, BpeReport, train_bpe};

use crate::{Error, Result};

/// The name under which a tokenizer is saved.
const FILE: &str = "tokenizer.json";
/// The file beside it that names its special tokens.
const CONFIG_FILE: &str = "tokenizer_config.json";
/// Changes when a built-in tokenizer gives other ids than before.
const BUILTIN_VERSION: u32 = 1;

/// A tokenizer: the built-in `gpt2` and `bytes`, or a Hugging Face `tokenizer.json`.
///
/// A file of plain byte-level BPE runs on the same tables as the built-ins; any other goes through Hugging Face's library.
#[derive(Debug)]
pub struct Tokenizer {
    name: String,
    engine: Engine,
    eos: Special,
    bos: Option<Special>,
    max_id: u32,
    /// Bytes of text of each id.
    token_bytes: Vec<u32>,
    fingerprint: String,
    /// The `tokenizer.json`, where the tokenizer came from one.
    file: Option<String>,
}

/// A special token.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Special {
    id: u32,
    /// What it is called in the vocabulary.
    name: String,
}

#[derive(Debug)]
enum Engine {
    Bpe(Box<Bpe>),
    Library(Box<HuggingFace>),
}

impl Tokenizer {
    /// Opens `gpt2`, `bytes`, or the path of a `tokenizer.json` (or of a folder that holds one).
    ///
    /// The end-of-text token of a file is the `eos_token` of the `tokenizer_config.json` beside it, or else a special token
    /// with a name that is in use for it, such as `<|endoftext|>` or `</s>`. Its beginning-of-text token is found the same
    /// way (`bos_token`, or a name such as `<s>`); it need not have one, and the built-ins have none.
    ///
    /// # Errors
    /// When a file cannot be read, there is no end-of-text token, or a token that is named does not exist.
    pub fn open(spec: &str) -> Result<Self> {
        match builtin::open(spec) {
            Some(tables) => {
                let (bpe, eos_id) =
                    tables.map_err(|reason| Error::Tokenizer { name: spec.into(), reason })?;
                let fingerprint = digest(format!("{spec} {BUILTIN_VERSION}").as_bytes());
                let eos = Special { id: eos_id, name: json::END_OF_TEXT.into() };
                Ok(Self::of_tables(spec, bpe, eos, None, fingerprint, None))
            }
            None => Self::from_file(spec),
        }
    }

    fn from_file(spec: &str) -> Result<Self> {
        let path = Path::new(spec);
        let path = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
        let fault = |reason: String| Error::Tokenizer { name: path.display().to_string(), reason };
        let text = std::fs::read_to_string(&path).map_err(|error| {
            fault(format!("cannot be read ({error}); give `gpt2`, `bytes`, or the path of a tokenizer.json"))
        })?;
        let root =
            serde_json::from_str(&text).map_err(|error| fault(format!("is not valid JSON: {error}")))?;
        let library = HuggingFace::new(&text).map_err(fault)?;
        let (eos, bos) = library.specials(&path.with_file_name(CONFIG_FILE)).map_err(fault)?;
        // The tables give no special token for a text, unless one is an ordinary entry that merges lead to.
        let is_apart =
            |bpe: &Bpe| std::iter::once(&eos).chain(&bos).all(|token| bpe.piece(token.id).is_empty());
        if let Some(bpe) = json::plain_bpe(&root).filter(is_apart) {
            let fingerprint = digest(text.as_bytes());
            return Ok(Self::of_tables(spec, bpe, eos, bos, fingerprint, Some(text)));
        }
        Self::of_library(spec, library, eos, bos, text)
    }

    /// A tokenizer of whole words between blanks: each has its place in `words` as its id, and any other is refused. The
    /// word `eos` ends a text, which therefore cannot hold it.
    ///
    /// # Errors
    /// An `eos` that is no word, words that the library refuses.
    pub fn of_words(name: &str, words: &[String], eos: u32) -> Result<Self> {
        let fault = |reason: String| Error::Tokenizer { name: name.into(), reason };
        let Some(word) = words.get(eos as usize) else {
            return Err(fault(format!("there is no word {eos}; there are {}", words.len())));
        };
        let text = json::write_words(words);
        let library = HuggingFace::new(&text).map_err(fault)?;
        Self::of_library(name, library, Special { id: eos, name: word.clone() }, None, text)
    }

    /// A tokenizer that the library runs, from the text of its `tokenizer.json`.
    fn of_library(
        name: &str,
        mut library: HuggingFace,
        eos: Special,
        bos: Option<Special>,
        text: String,
    ) -> Result<Self> {
        for token in std::iter::once(&eos).chain(&bos) {
            let fault = |reason| Error::Tokenizer { name: name.into(), reason };
            library.set_special(token).map_err(fault)?;
        }
        let max_id = library.max_id();
        let token_bytes = library.token_bytes(max_id);
        let fingerprint = digest(text.as_bytes());
        let engine = Engine::Library(Box::new(library));
        Ok(Self { name: name.into(), engine, eos, bos, max_id, token_bytes, fingerprint, file: Some(text) })
    }

    fn of_tables(
        name: &str,
        bpe: Bpe,
        eos: Special,
        bos: Option<Special>,
        fingerprint: String,
        file: Option<String>,
    ) -> Self {
        let token_bytes: Vec<u32> = bpe.pieces().iter().map(|piece| piece.len() as u32).collect();
        let max_id = token_bytes.len().saturating_sub(1) as u32;
        Self {
            name: name.into(),
            engine: Engine::Bpe(Box::new(bpe)),
            eos,
            bos,
            max_id,
            token_bytes,
            fingerprint,
            file,
        }
    }

    /// The spec it was opened with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The largest id it can give, added tokens included.
    pub fn max_id(&self) -> u32 {
        self.max_id
    }

    /// Entries that an embedding table needs: `max_id + 1`.
    pub fn vocab_size(&self) -> usize {
        self.max_id as usize + 1
    }

    /// The end-of-text token.
    pub fn eos_id(&self) -> u32 {
        self.eos.id
    }

    /// The beginning-of-text token, if it has one.
    pub fn bos_id(&self) -> Option<u32> {
        self.bos.as_ref().map(|bos| bos.id)
    }

    /// The ids of `text`, without any special token: text that spells one is text. (The token that some tokenizers have for
    /// text which they do not know is not special in this sense.)
    ///
    /// # Errors
    /// When the tokenizer refuses the text, or has only a special token for it.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let mut ids = Vec::new();
        self.encode_with(&mut WordCache::default(), text, &mut ids)?;
        Ok(ids)
    }

    /// Appends the ids of `text` to `ids`, as [`Self::encode`] does, with words remembered from call to call.
    ///
    /// # Errors
    /// When the tokenizer refuses the text.
    pub fn encode_with(&self, words: &mut WordCache, text: &str, ids: &mut Vec<u32>) -> Result<()> {
        match &self.engine {
            Engine::Bpe(bpe) => bpe.encode(words, text, ids),
            Engine::Library(library) => {
                ids.extend(library.encode(text).map_err(|reason| self.fault(reason))?);
            }
        }
        Ok(())
    }

    /// The text of `ids`; special tokens give none, and bytes that are no UTF-8 give U+FFFD.
    ///
    /// # Errors
    /// When an id is unknown.
    pub fn decode(&self, ids: &[u32]) -> Result<String> {
        ids.iter().try_for_each(|&id| self.check(id))?;
        match &self.engine {
            Engine::Bpe(bpe) => {
                let bytes: Vec<u8> = ids.iter().flat_map(|&id| bpe.piece(id)).copied().collect();
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            Engine::Library(library) => library.decode(ids).map_err(|reason| self.fault(reason)),
        }
    }

    /// A decoder that takes one id at a time.
    pub fn stream(&self) -> StreamDecoder<'_> {
        StreamDecoder::new(self)
    }

    /// Bytes of text that the token stands for; 0 for special and unknown tokens.
    pub fn token_bytes(&self, id: u32) -> usize {
        self.token_bytes.get(id as usize).map_or(0, |&bytes| bytes as usize)
    }

    /// A digest of everything that decides its ids, in hex.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Name and text of `tokenizer.json` and `tokenizer_config.json` (the names of its special tokens, as Hugging Face's
    /// hub has them): the files of a folder that [`Self::open`] reads back to the same ids.
    ///
    /// # Errors
    /// A tokenizer of Hugging Face's library that came from no file.
    pub fn files(&self) -> Result<[(&'static str, String); 2]> {
        let text = match (&self.file, &self.engine) {
            (None, Engine::Bpe(bpe)) => json::write(bpe, self.eos_id()),
            (Some(text), _) => text.clone(),
            (None, Engine::Library(_)) => return Err(self.fault("has no file to save".into())),
        };
        let names = serde_json::json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": self.bos.as_ref().map(|bos| bos.name.as_str()),
            "eos_token": self.eos.name,
        });
        Ok([(FILE, text), (CONFIG_FILE, format!("{names:#}\n"))])
    }

    /// Writes [`Self::files`] into `dir`.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn save(&self, dir: &Path) -> Result<()> {
        for (name, content) in self.files()? {
            let path = dir.join(name);
            std::fs::write(&path, content).map_err(Error::io(&path, "write"))?;
        }
        Ok(())
    }

    fn check(&self, id: u32) -> Result<()> {
        if id > self.max_id {
            return Err(self.fault(format!("there is no token {id}; the largest is {}", self.max_id)));
        }
        Ok(())
    }

    fn fault(&self, reason: String) -> Error {
        Error::Tokenizer { name: self.name.clone(), reason }
    }
}

fn digest(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}
