//! The embedding on slices. Forward copies rows; backward sorts the positions by id and splits the
//! table between threads where ids change, so that every row is summed by one thread in token order.

use rayon::prelude::*;

use crate::blocks::{add, rows_per_block};
use crate::vector::{Real, vectorize};

/// Positions that one thread takes without splitting further.
const POSITIONS_PER_TASK: usize = 256;

/// `y [ids, width]`; every id is below the table's rows.
pub(super) fn forward<T: Real>(ids: &[u32], table: &[T], width: usize, y: &mut [T]) {
    let rows = rows_per_block(width);
    y.par_chunks_mut((rows * width).max(1)).zip(ids.par_chunks(rows)).for_each(|(y, ids)| {
        for (y, &id) in y.chunks_exact_mut(width).zip(ids) {
            let start = id as usize * width;
            y.copy_from_slice(&table[start..start + width]);
        }
    });
}

/// Adds `dy [ids, width]` to the rows of `dtable`; every id is below its rows.
pub(super) fn backward<T: Real>(ids: &[u32], dy: &[T], width: usize, dtable: &mut [T]) {
    if width == 0 {
        return;
    }
    let mut uses: Vec<Use> =
        ids.iter().enumerate().map(|(position, &id)| Use { row: id as usize, position }).collect();
    uses.par_sort_unstable();
    scatter(&uses, dy, width, dtable, 0);
}

/// One use of a table row; the derived order sorts by row, then by position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    row: usize,
    position: usize,
}

/// Adds the sorted uses to `dtable`, whose first row is `first_row` of the whole table.
fn scatter<T: Real>(uses: &[Use], dy: &[T], width: usize, dtable: &mut [T], first_row: usize) {
    if uses.len() <= POSITIONS_PER_TASK {
        return add_in_order(uses, dy, width, dtable, first_row);
    }
    let middle = uses[uses.len() / 2].row;
    let split = match uses.partition_point(|at| at.row < middle) {
        0 => uses.partition_point(|at| at.row == middle),
        before => before,
    };
    let Some(boundary) = uses.get(split).map(|at| at.row) else {
        return add_in_order(uses, dy, width, dtable, first_row);
    };
    let (left, right) = dtable.split_at_mut((boundary - first_row) * width);
    rayon::join(
        || scatter(&uses[..split], dy, width, left, first_row),
        || scatter(&uses[split..], dy, width, right, boundary),
    );
}

fn add_in_order<T: Real>(uses: &[Use], dy: &[T], width: usize, dtable: &mut [T], first_row: usize) {
    vectorize!({
        for at in uses {
            let target = (at.row - first_row) * width;
            let source = at.position * width;
            add(&dy[source..source + width], &mut dtable[target..target + width]);
        }
    });
}
