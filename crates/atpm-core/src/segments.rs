//! Where documents begin in a batch of packed rows.
//!
//! Rows hold concatenated documents. At a document's first token nothing of what stood before may
//! be seen: the memory is wiped, the short convolution sees zeros. A row whose first token is *not*
//! a start goes on from the state that is passed in.

use crate::{Error, Result};

/// Document starts of a `[batch, tokens]` block of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segments {
    batch: usize,
    tokens: usize,
    /// Ascending start positions of each row, each below `tokens`.
    starts: Vec<Vec<usize>>,
}

impl Segments {
    /// Rows in which no document begins: the passed-in state simply goes on.
    pub fn continuous(batch: usize, tokens: usize) -> Self {
        Self { batch, tokens, starts: vec![Vec::new(); batch] }
    }

    /// Rows with the given document starts (token positions, strictly ascending in a row).
    ///
    /// # Errors
    /// A row count other than `batch`, a start at or past `tokens`, or starts that do not ascend.
    pub fn from_starts(tokens: usize, starts: Vec<Vec<usize>>) -> Result<Self> {
        for (row, positions) in starts.iter().enumerate() {
            if let Some(late) = positions.iter().find(|&&position| position >= tokens) {
                let problem = format!("a document starts at {late}, but the row has {tokens} tokens");
                return Err(Error::Segments { row, problem });
            }
            if let Some((first, second)) = positions
                .iter()
                .zip(&positions[1.min(positions.len())..])
                .find(|(first, second)| first >= second)
            {
                let problem = format!("starts must ascend, found {first} then {second}");
                return Err(Error::Segments { row, problem });
            }
        }
        Ok(Self { batch: starts.len(), tokens, starts })
    }

    /// Rows of the batch.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Tokens of each row.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Start positions of one row, ascending.
    pub fn row(&self, row: usize) -> &[usize] {
        &self.starts[row]
    }

    /// Whether a document begins at this token.
    pub fn is_start(&self, row: usize, token: usize) -> bool {
        self.starts[row].binary_search(&token).is_ok()
    }

    /// `[batch, tokens]`: 1 where a document begins, 0 elsewhere.
    pub(crate) fn flags(&self) -> Vec<u8> {
        let mut flags = vec![0; self.batch * self.tokens];
        for (row, starts) in self.starts.iter().enumerate() {
            for start in starts {
                flags[row * self.tokens + start] = 1;
            }
        }
        flags
    }

    /// Each token's place in its document. Tokens before the row's first start count from the
    /// row's beginning and are marked as continuing an earlier document.
    pub fn row_positions(&self, row: usize) -> impl Iterator<Item = Position> + '_ {
        let starts = &self.starts[row];
        let mut next = 0;
        let mut origin = None;
        (0..self.tokens).map(move |token| {
            if starts.get(next) == Some(&token) {
                origin = Some(token);
                next += 1;
            }
            Position { in_row: token - origin.unwrap_or(0), continues: origin.is_none() }
        })
    }
}

/// Where a token stands in its document, as far as the row can tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Tokens of the same document before this one in the row.
    pub in_row: usize,
    /// Whether the document began before the row did.
    pub continues: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn positions(segments: &Segments, row: usize) -> Vec<(usize, bool)> {
        segments.row_positions(row).map(|position| (position.in_row, position.continues)).collect()
    }

    #[test]
    fn positions_count_from_the_last_start() -> Result<()> {
        let segments = Segments::from_starts(5, vec![vec![], vec![0], vec![2, 3], vec![4]])?;
        let (on, new) = (true, false);
        assert_eq!(positions(&segments, 0), [(0, on), (1, on), (2, on), (3, on), (4, on)]);
        assert_eq!(positions(&segments, 1), [(0, new), (1, new), (2, new), (3, new), (4, new)]);
        assert_eq!(positions(&segments, 2), [(0, on), (1, on), (0, new), (0, new), (1, new)]);
        assert_eq!(positions(&segments, 3), [(0, on), (1, on), (2, on), (3, on), (0, new)]);
        for row in 0..segments.batch() {
            for token in 0..segments.tokens() {
                assert_eq!(segments.is_start(row, token), segments.row(row).contains(&token));
            }
        }
        Ok(())
    }

    // K9: empty rows and batches are legal.
    #[test]
    fn empty_rows_and_batches_are_legal() -> Result<()> {
        for segments in [
            Segments::from_starts(0, vec![vec![], vec![]])?,
            Segments::continuous(2, 0),
            Segments::from_starts(7, vec![])?,
        ] {
            for row in 0..segments.batch() {
                assert!(positions(&segments, row).is_empty());
            }
        }
        assert_eq!(Segments::continuous(2, 3), Segments::from_starts(3, vec![vec![]; 2])?);
        Ok(())
    }

    // K9: an empty document (equal neighbours), descending starts and starts outside the row are
    // refused with the row named.
    #[test]
    fn malformed_starts_are_refused() {
        for (tokens, starts, expected) in [
            (5, vec![vec![], vec![0, 0]], "document starts of row 1: starts must ascend, found 0 then 0"),
            (5, vec![vec![1, 3, 3]], "document starts of row 0: starts must ascend, found 3 then 3"),
            (5, vec![vec![4, 2]], "document starts of row 0: starts must ascend, found 4 then 2"),
            (
                5,
                vec![vec![0, 5]],
                "document starts of row 0: a document starts at 5, but the row has 5 tokens",
            ),
            (0, vec![vec![0]], "document starts of row 0: a document starts at 0, but the row has 0 tokens"),
        ] {
            assert_eq!(Segments::from_starts(tokens, starts).unwrap_err().to_string(), expected);
        }
    }
}
