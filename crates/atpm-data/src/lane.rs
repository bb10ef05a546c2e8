//! One lane: reads, tokenizes and packs its share of the data, row after row.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use crate::order::{self, Unit};
use crate::shards::{RowReader, Shards, Text};
use crate::{Error, IGNORE, OnBadShard, OnInvalidUtf8, Result, Specials, Tokenizer, WordCache};

/// Epochs that a lane reads without a single token before it gives up.
const EMPTY_EPOCHS: u64 = 4;

/// What all lanes share.
pub(crate) struct Plan {
    pub(crate) shards: Shards,
    pub(crate) units: Vec<Unit>,
    pub(crate) tokenizer: Arc<Tokenizer>,
    pub(crate) specials: Specials,
    pub(crate) lanes: usize,
    /// The seed of an endless shuffled stream, or `None` for one pass in file order.
    pub(crate) seed: Option<u64>,
    /// Tokens of a row.
    pub(crate) tokens: usize,
    pub(crate) on_bad_shard: OnBadShard,
    pub(crate) invalid_utf8: OnInvalidUtf8,
    /// Shards whose bad pages were logged already.
    pub(crate) logged: Mutex<HashSet<PathBuf>>,
    /// Set when nobody wants more rows.
    pub(crate) stop: AtomicBool,
}

/// Where a lane is: everything before was consumed, the next token is token `token` of document `document`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneState {
    /// The lane's number.
    pub lane: usize,
    /// Epoch of the unit.
    pub epoch: u64,
    /// Place of the unit in the epoch's permutation.
    pub unit: usize,
    /// Window in the unit.
    pub window: usize,
    /// Place of the document in the window's permutation.
    pub document: usize,
    /// Tokens of the document that were consumed.
    pub token: usize,
    /// What the lane has consumed.
    pub counts: LaneCounts,
}

/// What a lane has consumed since the run began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneCounts {
    /// Documents with at least one token.
    pub kept: u64,
    /// Documents without a byte, or without a token.
    pub empty: u64,
    /// Rows whose text is null.
    pub null: u64,
    /// Kept documents in which invalid UTF-8 was replaced.
    pub invalid: u64,
    /// Input tokens, special tokens included.
    pub tokens: u64,
    /// Row groups (or slices of one) left unfinished because a page could not be read.
    pub bad_row_groups: u64,
}

impl LaneState {
    /// The beginning of lane `lane`.
    pub(crate) fn start(lane: usize) -> Self {
        Self { lane, epoch: 0, unit: lane, window: 0, document: 0, token: 0, counts: LaneCounts::default() }
    }
}

/// One packed row and the lane's place after it.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) ids: Vec<u32>,
    pub(crate) targets: Vec<u32>,
    pub(crate) positions: Vec<u32>,
    pub(crate) starts: Vec<usize>,
    pub(crate) target_bytes: u64,
    pub(crate) after: LaneState,
}

/// A lane at work.
pub(crate) struct Lane {
    plan: Arc<Plan>,
    state: LaneState,
    /// The permutation of the epoch it belongs to.
    unit_order: Option<(u64, Vec<usize>)>,
    /// The open row group: the unit's place, its reader, and the next window that the reader gives.
    reader: Option<((u64, usize), RowReader, usize)>,
    /// The documents of the current window, in shuffled order.
    window: Option<Vec<Option<Text>>>,
    /// Ids of the document that is being packed, special tokens included.
    document: Option<Vec<u32>>,
    /// Units of all lanes that went by in the endless sequence since this lane's last token.
    barren: u64,
}

impl Lane {
    pub(crate) fn new(plan: Arc<Plan>, state: LaneState) -> Self {
        Self { plan, state, unit_order: None, reader: None, window: None, document: None, barren: 0 }
    }

    /// The next full row; the last one of a single pass is filled up. `None` after it, or when nobody wants more.
    /// Lanes that one thread works on share `words`.
    pub(crate) fn next_row(&mut self, words: &mut WordCache) -> Result<Option<Row>> {
        let size = self.plan.tokens;
        let mut row = Row {
            ids: Vec::with_capacity(size),
            targets: Vec::with_capacity(size),
            positions: Vec::with_capacity(size),
            starts: Vec::new(),
            target_bytes: 0,
            after: self.state,
        };
        while row.ids.len() < size {
            if self.document.is_none() && !self.next_document(words)? {
                break;
            }
            self.pack(&mut row);
        }
        if row.ids.is_empty() || self.plan.stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        self.state.counts.tokens += row.ids.len() as u64;
        row.after = self.state;
        fill_up(&mut row, size, self.plan.tokenizer.eos_id());
        Ok(Some(row))
    }

    /// Rows of all shards.
    pub(crate) fn rows(&self) -> u64 {
        self.plan.shards.rows()
    }

    /// Where it is.
    pub(crate) fn state(&self) -> LaneState {
        self.state
    }

    /// Moves tokens of the current document into `row` until either is at its end.
    fn pack(&mut self, row: &mut Row) {
        let Some(document) = &self.document else { return };
        let first = self.state.token;
        let end = document.len().min(first + self.plan.tokens - row.ids.len());
        if first == 0 {
            row.starts.push(row.ids.len());
            self.state.counts.kept += 1;
        }
        row.ids.extend_from_slice(&document[first..end]);
        // A document that goes on in a row counts anew: the model begins each row with an empty memory.
        row.positions.extend(0..(end - first) as u32);
        let next = &document[first + 1..document.len().min(end + 1)];
        row.targets.extend_from_slice(next);
        row.target_bytes += next.iter().map(|&id| self.plan.tokenizer.token_bytes(id) as u64).sum::<u64>();
        self.state.token = end;
        if end == document.len() {
            row.targets.push(IGNORE);
            self.state.document += 1;
            self.state.token = 0;
            self.document = None;
        }
    }

    /// Goes to the next document that has a token. False at the end of a single pass, or when nobody wants more.
    fn next_document(&mut self, words: &mut WordCache) -> Result<bool> {
        while !self.plan.stop.load(Ordering::Relaxed) {
            if self.window.is_none() && !self.load_window()? {
                return Ok(false);
            }
            let place = self.state.document;
            let Some(text) = self.window.as_mut().and_then(|window| window.get_mut(place)) else {
                self.window = None;
                self.state.window += 1;
                self.state.document = 0;
                continue;
            };
            let Some(text) = text.take() else {
                return Err(Error::BadPosition { reason: format!("document {place} was read before") });
            };
            if self.tokenize(&text, words)? {
                self.barren = 0;
                return Ok(true);
            }
            if self.state.token > 0 {
                return Err(Error::BadPosition { reason: format!("document {place} has no token") });
            }
            self.state.document += 1;
        }
        Ok(false)
    }

    /// Makes `text` the current document; false, and counted, if it has no token.
    fn tokenize(&mut self, text: &Text, words: &mut WordCache) -> Result<bool> {
        let Some(unit) = self.unit()? else { return Ok(false) };
        let plan = Arc::clone(&self.plan);
        let shard = &plan.shards.list[unit.shard];
        let Some(content) = text.decode(shard, unit.row_group, plan.invalid_utf8)? else {
            self.state.counts.null += 1;
            return Ok(false);
        };
        // D13: special tokens are added here and nowhere else.
        let mut ids = Vec::with_capacity(content.len() / 4 + 2);
        ids.extend(plan.specials.bos);
        let before = ids.len();
        let encoded = plan.tokenizer.encode_with(words, &content, &mut ids);
        encoded.map_err(|error| text.refused(shard, unit.row_group, &error))?;
        if ids.len() == before {
            self.state.counts.empty += 1;
            return Ok(false);
        }
        ids.extend(plan.specials.eos);
        if self.state.token >= ids.len() || u32::try_from(ids.len()).is_err() {
            let reason = format!("token {} of a document of {} tokens", self.state.token, ids.len());
            return Err(Error::BadPosition { reason });
        }
        if self.state.token == 0 && matches!(content, std::borrow::Cow::Owned(_)) {
            self.state.counts.invalid += 1;
        }
        self.document = Some(ids);
        Ok(true)
    }

    /// Reads the window that the state names, going to the next unit where one is at its end. False at the end of a single pass.
    fn load_window(&mut self) -> Result<bool> {
        loop {
            let Some(unit) = self.unit()? else { return Ok(false) };
            if self.state.window >= unit.windows() {
                self.next_unit()?;
                continue;
            }
            match self.read_window(&unit) {
                Ok(window) => {
                    self.window = Some(window);
                    return Ok(true);
                }
                Err(error) if error.is_bad_shard() && self.plan.on_bad_shard == OnBadShard::Skip => {
                    self.log_once(&unit, &error);
                    self.state.counts.bad_row_groups += 1;
                    self.next_unit()?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn read_window(&mut self, unit: &Unit) -> Result<Vec<Option<Text>>> {
        let place = (self.state.epoch, self.state.unit);
        let (first, count) = unit.window_rows(self.state.window);
        let shard = &self.plan.shards.list[unit.shard];
        let mut reader = match self.reader.take() {
            Some((at, reader, next)) if at == place && next == self.state.window => reader,
            _ => RowReader::open(shard, unit.row_group, first)?,
        };
        let mut texts: Vec<Option<Text>> = reader.read(count)?.into_iter().map(Some).collect();
        self.reader = Some((place, reader, self.state.window + 1));
        let Some(seed) = self.plan.seed else { return Ok(texts) };
        let index = self.unit_index();
        let order = order::document_order(seed, self.state.epoch, index, self.state.window, count);
        Ok(order.into_iter().map(|document| texts[document].take()).collect())
    }

    /// The unit that the state names, or `None` at the end of a single pass.
    fn unit(&mut self) -> Result<Option<Unit>> {
        let n_units = self.plan.units.len();
        if self.state.unit >= n_units {
            if self.plan.seed.is_none() {
                return Ok(None);
            }
            return Err(Error::BadPosition { reason: format!("unit {} of {n_units}", self.state.unit) });
        }
        let index = self.unit_index();
        Ok(Some(self.plan.units[index]))
    }

    /// Index of the current unit in file order.
    fn unit_index(&mut self) -> usize {
        let (epoch, place) = (self.state.epoch, self.state.unit);
        let Some(seed) = self.plan.seed else { return place };
        let n_units = self.plan.units.len();
        let (_, order) = match self.unit_order.take() {
            Some(known) if known.0 == epoch => self.unit_order.insert(known),
            _ => self.unit_order.insert((epoch, order::unit_order(seed, epoch, n_units))),
        };
        order[place]
    }

    /// Steps to this lane's next unit in the endless sequence of all epochs.
    fn next_unit(&mut self) -> Result<()> {
        let n_units = self.plan.units.len();
        let next = self.state.unit + self.plan.lanes;
        self.state.window = 0;
        self.state.document = 0;
        self.state.token = 0;
        self.reader = None;
        self.state.unit = next;
        if self.plan.seed.is_some() {
            self.state.epoch += (next / n_units) as u64;
            self.state.unit = next % n_units;
        }
        self.barren += self.plan.lanes as u64;
        if self.barren > EMPTY_EPOCHS * n_units as u64 + self.plan.lanes as u64 {
            let counts = self.state.counts;
            return Err(Error::NoDocuments {
                what: self.plan.shards.what,
                detail: format!(
                    "lane {} of {} read {EMPTY_EPOCHS} epochs of its share without a token ({} null, {} empty, {} unreadable row groups); \
                     give more data, or fewer data.lanes",
                    self.state.lane, self.plan.lanes, counts.null, counts.empty, counts.bad_row_groups
                ),
            });
        }
        Ok(())
    }

    fn log_once(&self, unit: &Unit, error: &Error) {
        let path = &self.plan.shards.list[unit.shard].path;
        let mut logged = self.plan.logged.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if logged.insert(path.clone()) {
            tracing::warn!("skipping the rest of a bad row group: {error}");
        }
    }
}

/// Fills a row up with a document of its own that counts for nothing.
fn fill_up(row: &mut Row, size: usize, eos: u32) {
    let missing = size - row.ids.len();
    if missing > 0 {
        row.starts.push(row.ids.len());
        row.ids.resize(size, eos);
        row.targets.resize(size, IGNORE);
        row.positions.extend(0..missing as u32);
    }
}
