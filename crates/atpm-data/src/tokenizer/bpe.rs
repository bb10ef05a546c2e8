//! Byte-level byte-pair encoding, as GPT-2 defines it: the fast path of every tokenizer that has this form.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use super::words::words;

/// Merges by pair of ids.
type Merges = HashMap<(u32, u32), Merge, BuildHasherDefault<PairHasher>>;

#[derive(Debug, Clone, Copy)]
struct Merge {
    rank: u32,
    id: u32,
}

/// The tables of a byte-level BPE.
#[derive(Debug)]
pub(super) struct Bpe {
    /// The id of each byte.
    bytes: [u32; 256],
    merges: Merges,
    /// The bytes of each id; none for special tokens and for ids that do not exist.
    pieces: Vec<Box<[u8]>>,
}

impl Bpe {
    /// Tables from the bytes of each id and the merges in order of rank.
    ///
    /// # Errors
    /// When a byte or the result of a merge has no id.
    pub(super) fn new(pieces: Vec<Box<[u8]>>, pairs: &[(u32, u32)]) -> Result<Self, String> {
        let ids: HashMap<&[u8], u32> = pieces
            .iter()
            .zip(0u32..)
            .filter(|(piece, _)| !piece.is_empty())
            .map(|(piece, id)| (&**piece, id))
            .collect();
        let mut bytes = [0; 256];
        for (byte, id) in (0..=u8::MAX).zip(&mut bytes) {
            *id = *ids.get([byte].as_slice()).ok_or_else(|| format!("it has no token for byte {byte}"))?;
        }
        let mut merges = Merges::default();
        for (&(left, right), rank) in pairs.iter().zip(0u32..) {
            let merged = [&*pieces[left as usize], &*pieces[right as usize]].concat();
            let id = *ids.get(&*merged).ok_or_else(|| format!("the result of merge {rank} has no id"))?;
            merges.entry((left, right)).or_insert(Merge { rank, id });
        }
        Ok(Self { bytes, merges, pieces })
    }

    /// Appends the ids of `text`.
    pub(super) fn encode(&self, cache: &mut WordCache, text: &str, ids: &mut Vec<u32>) {
        if self.merges.is_empty() {
            ids.extend(text.bytes().map(|byte| self.bytes[usize::from(byte)]));
            return;
        }
        for word in words(text) {
            let slot = cache.slot(word.as_bytes());
            match slot {
                Some(slot) if slot.holds(word.as_bytes()) => ids.extend_from_slice(slot.ids()),
                slot => {
                    let start = ids.len();
                    self.merge(word.as_bytes(), ids);
                    if let Some(slot) = slot {
                        slot.fill(word.as_bytes(), &ids[start..]);
                    }
                }
            }
        }
    }

    /// Appends the ids of one word: always joins the adjacent pair of lowest rank, the leftmost of equals, in `n log n` steps.
    fn merge(&self, word: &[u8], ids: &mut Vec<u32>) {
        let symbol = |(index, &byte): (u32, &u8)| Symbol {
            id: self.bytes[usize::from(byte)],
            alive: true,
            previous: index.wrapping_sub(1),
            next: index + 1,
        };
        let mut symbols: Vec<Symbol> = (0..).zip(word).map(symbol).collect();
        let look = |symbols: &[Symbol], left: u32| {
            let left = symbols.get(left as usize)?;
            let right = symbols.get(left.next as usize)?;
            self.merges.get(&(left.id, right.id)).copied()
        };
        let start = |left: u32| look(&symbols, left).map(|merge| Reverse((merge.rank, left)));
        let mut heap: BinaryHeap<_> = (0..symbols.len() as u32).filter_map(start).collect();
        while let Some(Reverse((rank, place))) = heap.pop() {
            let left = place as usize;
            // An entry is stale when one of its symbols has been merged since.
            let Some(merge) = look(&symbols, place).filter(|merge| merge.rank == rank && symbols[left].alive)
            else {
                continue;
            };
            let right = symbols[left].next as usize;
            let after = symbols[right].next;
            symbols[right].alive = false;
            symbols[left].id = merge.id;
            symbols[left].next = after;
            if let Some(after) = symbols.get_mut(after as usize) {
                after.previous = place;
            }
            for start in [symbols[left].previous, place] {
                if let Some(merge) = look(&symbols, start) {
                    heap.push(Reverse((merge.rank, start)));
                }
            }
        }
        ids.extend(symbols.iter().filter(|symbol| symbol.alive).map(|symbol| symbol.id));
    }

    /// The bytes of `id`.
    pub(super) fn piece(&self, id: u32) -> &[u8] {
        self.pieces.get(id as usize).map_or(&[], |piece| piece)
    }

    /// The bytes of every id.
    pub(super) fn pieces(&self) -> &[Box<[u8]>] {
        &self.pieces
    }

    /// The merges in order of rank.
    pub(super) fn pairs(&self) -> Vec<(u32, u32)> {
        let mut pairs: Vec<_> = self.merges.iter().map(|(&pair, merge)| (merge.rank, pair)).collect();
        pairs.sort_unstable();
        pairs.into_iter().map(|(_, pair)| pair).collect()
    }
}

/// A part of a word, in a linked list by index; an index past the end is none.
struct Symbol {
    id: u32,
    alive: bool,
    previous: u32,
    next: u32,
}

/// Bytes of the longest word that is remembered.
const WORD: usize = 22;
/// Ids of such a word at most.
const IDS: usize = 6;
/// Words that are remembered at most; a power of two.
const SLOTS: usize = 1 << 15;

/// Remembers the ids of recent short words, in a fixed amount of memory: a newcomer takes the place of another.
#[derive(Debug, Default)]
pub struct WordCache {
    slots: Vec<Slot>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    length: u8,
    n_ids: u8,
    word: [u8; WORD],
    ids: [u32; IDS],
}

impl WordCache {
    /// Bytes of memory in use.
    pub fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    /// The place of `word`, or `None` if it is too long to be remembered.
    fn slot(&mut self, word: &[u8]) -> Option<&mut Slot> {
        if word.len() > WORD {
            return None;
        }
        if self.slots.is_empty() {
            self.slots.resize(SLOTS, Slot::default());
        }
        let mut padded = [0; 24];
        padded[..word.len()].copy_from_slice(word);
        let mut hash = word.len() as u64;
        for eight in padded.chunks_exact(8) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(eight);
            hash = mix(hash ^ u64::from_le_bytes(bytes));
        }
        self.slots.get_mut(hash as usize % SLOTS)
    }
}

impl Slot {
    fn holds(&self, word: &[u8]) -> bool {
        self.word[..usize::from(self.length)] == *word
    }

    fn ids(&self) -> &[u32] {
        &self.ids[..usize::from(self.n_ids)]
    }

    fn fill(&mut self, word: &[u8], ids: &[u32]) {
        if ids.len() <= IDS {
            self.length = word.len() as u8;
            self.n_ids = ids.len() as u8;
            self.word[..word.len()].copy_from_slice(word);
            self.ids[..ids.len()].copy_from_slice(ids);
        }
    }
}

/// Spreads the bits of `x` over the whole word.
fn mix(x: u64) -> u64 {
    let product = u128::from(x ^ 0x9e37_79b9_7f4a_7c15) * u128::from(0xd6e8_feb8_6659_fd93_u64);
    (product >> 64) as u64 ^ product as u64
}

/// Hashes a pair of ids; they come from a fixed table, so no attacker chooses them.
#[derive(Debug, Default)]
struct PairHasher(u64);

impl Hasher for PairHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, id: u32) {
        self.0 = mix(self.0.rotate_left(32) ^ u64::from(id));
    }
}
