//! The order of the data: a pure function of the shards, the seed, the lanes and the shuffle window.
//!
//! The *unit* of shuffle is a row group; when there are fewer row groups than lanes, units are slices of row groups.
//! Epoch `e` is a seeded permutation of all `n` units. All epochs together are one endless sequence, unit `i` of epoch
//! `e` being number `e·n + i`; number `k` belongs to lane `k mod lanes`, so no lane gets more units than another in the long run.
//! Inside a unit, windows come in file order and the documents of a window in a seeded permutation.
//! Every permutation has its own random stream, keyed by what it permutes: none depends on what was drawn before.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::shards::Shards;

/// Decompressed bytes of text that one window holds at most, by the row group's mean.
const WINDOW_BYTES: u64 = 32 << 20;

/// A run of consecutive rows of one row group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) shard: usize,
    pub(crate) row_group: usize,
    /// First row in the row group.
    pub(crate) first: usize,
    pub(crate) rows: usize,
    /// Documents of a window.
    pub(crate) window: usize,
}

impl Unit {
    /// Windows of this unit.
    pub(crate) fn windows(&self) -> usize {
        self.rows.div_ceil(self.window)
    }

    /// Rows of window `index`, counted in the row group: first and count.
    pub(crate) fn window_rows(&self, index: usize) -> (usize, usize) {
        let offset = index * self.window;
        (self.first + offset, self.window.min(self.rows - offset))
    }
}

/// All units, in file order; at least `lanes` of them if there are as many rows.
pub(crate) fn units(shards: &Shards, lanes: usize, shuffle_window: usize) -> Vec<Unit> {
    let groups = || {
        let shards = shards.list.iter().enumerate();
        shards.flat_map(|(shard, content)| {
            let groups = content.row_groups.iter().enumerate();
            groups.filter(|(_, group)| group.rows > 0).map(move |(index, group)| (shard, index, group))
        })
    };
    let enough = groups().count() >= lanes;
    let share = (shards.rows() as usize / lanes).max(1);
    let mut units = Vec::new();
    for (shard, row_group, group) in groups() {
        let fitting = (WINDOW_BYTES * group.rows as u64 / group.text_bytes.max(1)).max(1);
        let window = shuffle_window.min(usize::try_from(fitting).unwrap_or(usize::MAX));
        let slice = if enough { group.rows } else { share };
        for first in (0..group.rows).step_by(slice) {
            units.push(Unit { shard, row_group, first, rows: slice.min(group.rows - first), window });
        }
    }
    units
}

/// The order of the units in `epoch`.
pub(crate) fn unit_order(seed: u64, epoch: u64, n_units: usize) -> Vec<usize> {
    permutation(n_units, &[seed, 0, epoch])
}

/// The order of the documents of one window.
pub(crate) fn document_order(
    seed: u64,
    epoch: u64,
    unit: usize,
    window: usize,
    n_documents: usize,
) -> Vec<usize> {
    permutation(n_documents, &[seed, 1, epoch, unit as u64, window as u64])
}

/// A shuffle of `0..n`, drawn from the stream that `key` names.
fn permutation(n: usize, key: &[u64]) -> Vec<usize> {
    Stream::new(key).permutation(n)
}

/// A random stream that depends on nothing but its key.
pub(crate) struct Stream(ChaCha8Rng);

impl Stream {
    pub(crate) fn new(key: &[u64]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for word in key {
            hasher.update(&word.to_le_bytes());
        }
        Self(ChaCha8Rng::from_seed(*hasher.finalize().as_bytes()))
    }

    /// A number below `n`, which is at least 1.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.0.next_u64()) * n as u128) >> 64) as usize
    }

    /// Fisher and Yates' shuffle of `0..n`.
    pub(crate) fn permutation(&mut self, n: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..n).collect();
        for last in (1..n).rev() {
            order.swap(last, self.below(last + 1));
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OnBadShard;
    use crate::testing::{folder, numbered};

    /// The order is part of the checkpoint format: these numbers may not change.
    #[test]
    fn the_order_is_frozen() {
        assert_eq!(unit_order(1, 0, 8), [2, 1, 5, 7, 6, 0, 3, 4]);
        assert_eq!(document_order(1, 2, 3, 4, 8), [2, 3, 6, 1, 7, 4, 0, 5]);
    }

    #[test]
    fn units_cover_every_row_once_and_feed_every_lane() {
        let dir = folder();
        numbered(dir.path(), 50, 2, 10);
        let files = [dir.path().display().to_string()];
        let shards = Shards::open("data.train", &files, "text", OnBadShard::Fail).unwrap();
        for lanes in [1, 5, 6, 7, 13, 50] {
            let units = units(&shards, lanes, 4);
            assert!(units.len() >= lanes, "{lanes} lanes, {} units", units.len());
            let mut rows = Vec::new();
            for unit in &units {
                for window in 0..unit.windows() {
                    let (first, count) = unit.window_rows(window);
                    assert!((1..=4).contains(&count));
                    rows.extend((first..first + count).map(|row| (unit.shard, unit.row_group, row)));
                }
            }
            rows.sort_unstable();
            rows.dedup();
            assert_eq!(rows.len(), 50);
            assert_eq!(units.iter().map(|unit| unit.rows).sum::<usize>(), 50);
        }
    }
}
