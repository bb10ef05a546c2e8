//! The loss of every token of an evaluation with the rows that were read, as a safetensors file that another
//! implementation can start from.

use std::path::Path;

use atpm_data::Batch;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use super::state_file;
use crate::checkpoint::{Error, Result, digest};
use crate::run::exit::user;

/// The rows of an evaluation, one after the other.
#[derive(Debug)]
pub(super) struct TokenLosses {
    tokens: usize,
    rows: usize,
    /// Little-endian u32, as the file has them.
    ids: Vec<u8>,
    targets: Vec<u8>,
    /// 1 where a document begins.
    starts: Vec<u8>,
    /// Little-endian f32.
    losses: Vec<u8>,
}

/// Refuses a path whose folder is not there, before hours of work go into what is to be written.
pub(super) fn expect_place(path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => {
            Err(user(format!("--token-losses {}: there is no folder {}", path.display(), folder.display())))
        }
        _ => Ok(()),
    }
}

impl TokenLosses {
    /// Nothing yet; rows have `tokens` tokens.
    pub(super) fn new(tokens: usize) -> Self {
        let empty = Vec::new;
        Self { tokens, rows: 0, ids: empty(), targets: empty(), starts: empty(), losses: empty() }
    }

    /// Adds a batch and its token losses, in the order of its targets.
    pub(super) fn add(&mut self, batch: &Batch, losses: &[f32]) {
        self.rows += batch.rows;
        self.ids.extend(batch.ids.iter().flat_map(|id| id.to_le_bytes()));
        self.targets.extend(batch.targets.iter().flat_map(|id| id.to_le_bytes()));
        for starts in &batch.starts {
            let first = self.starts.len();
            self.starts.resize(first + self.tokens, 0);
            for &at in starts {
                self.starts[first + at] = 1;
            }
        }
        self.losses.extend(losses.iter().flat_map(|loss| loss.to_le_bytes()));
    }

    /// Writes `ids`, `targets` (u32), `starts` (u8) and `losses` (f32), all `[rows, tokens]`; the whole file or none.
    ///
    /// # Errors
    /// Whatever the file system refuses.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let view = |name, dtype, bytes| {
            TensorView::new(dtype, vec![self.rows, self.tokens], bytes).map(|view| (name, view))
        };
        let bytes = [
            view("ids", Dtype::U32, &self.ids),
            view("targets", Dtype::U32, &self.targets),
            view("starts", Dtype::U8, &self.starts),
            view("losses", Dtype::F32, &self.losses),
        ]
        .into_iter()
        .collect::<std::result::Result<Vec<_>, _>>()
        .and_then(|views| safetensors::serialize(views, None))
        .map_err(|error| Error::format(path, error.to_string()))?;
        state_file::whole(path, |beside| digest::write_file(beside, &bytes))
    }
}

#[cfg(test)]
mod tests {
    use atpm_data::IGNORE;
    use safetensors::SafeTensors;

    use super::*;

    #[test]
    fn the_file_has_every_row_as_it_was_read() {
        let batch = |id: u32, starts: &[Vec<usize>]| Batch {
            rows: starts.len(),
            tokens: 2,
            ids: vec![id; 2 * starts.len()],
            targets: vec![IGNORE; 2 * starts.len()],
            starts: starts.to_vec(),
            positions: vec![0; 2 * starts.len()],
            target_bytes: 0,
        };
        let mut rows = TokenLosses::new(2);
        rows.add(&batch(7, &[vec![0, 1], vec![]]), &[0.5, 1.0, 2.0, 4.0]);
        rows.add(&batch(300, &[vec![1]]), &[8.0, 16.0]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("losses.safetensors");
        rows.write(&path).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let tensor = |name: &str| file.tensor(name).unwrap();
        assert_eq!(tensor("starts").data(), [1, 1, 0, 0, 0, 1]);
        let words = |name: &str| -> Vec<u32> {
            let (chunks, _) = tensor(name).data().as_chunks();
            chunks.iter().map(|&word| u32::from_le_bytes(word)).collect()
        };
        assert_eq!(words("ids"), [7, 7, 7, 7, 300, 300]);
        assert_eq!(words("targets"), [IGNORE; 6]);
        assert_eq!(words("losses"), [0.5, 1.0, 2.0, 4.0, 8.0, 16.0].map(f32::to_bits));
        for (name, dtype) in [("ids", Dtype::U32), ("starts", Dtype::U8), ("losses", Dtype::F32)] {
            assert_eq!((tensor(name).dtype(), tensor(name).shape()), (dtype, &[3, 2][..]));
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        assert!(
            expect_place(&folder.path().join("none/x"))
                .unwrap_err()
                .to_string()
                .contains("there is no folder")
        );
    }
}
