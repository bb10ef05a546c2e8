//! Disjoint column bands of one row-major buffer, so that heads can write their columns in parallel.
#![expect(unsafe_code, reason = "bands interleave in memory, which no safe split of a slice can express")]

use std::marker::PhantomData;

/// One band: `rows` rows of `width` elements, each row `stride` after the last. Bands made by one
/// call of [`split`] never overlap.
pub struct Band<'a, T> {
    start: *mut T,
    rows: usize,
    width: usize,
    stride: usize,
    buffer: PhantomData<&'a mut [T]>,
}

// SAFETY: a band is the only way to its elements while the buffer's borrow lasts, exactly like a
// `&mut [T]` of them, so it may move to another thread whenever such a slice may.
unsafe impl<T: Send> Send for Band<'_, T> {}

impl<T> Band<'_, T> {
    /// The band's part of one row.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline(always)]
    pub fn row_mut(&mut self, row: usize) -> &mut [T] {
        assert!(row < self.rows, "row {row} of a band of {} rows", self.rows);
        // SAFETY: `split` made sure that this row's columns lie inside the buffer and belong to no
        // other band, and `&mut self` keeps this band from handing out a second view.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(row * self.stride), self.width) }
    }

    /// Asks for a row that will be written soon.
    #[inline(always)]
    pub fn prefetch(&mut self, row: usize) {
        super::prefetch(self.row_mut(row));
    }
}

/// Splits a row-major buffer of `rows` rows of `bands × width` elements into its column bands.
///
/// # Panics
/// If the buffer does not have exactly that size.
pub fn split<T>(buffer: &mut [T], rows: usize, bands: usize, width: usize) -> Vec<Band<'_, T>> {
    let stride = bands * width;
    assert_eq!(buffer.len(), rows * stride, "a buffer of {rows} rows of {bands} bands of {width}");
    let start = buffer.as_mut_ptr();
    (0..bands)
        // SAFETY: `band · width ≤ stride ≤ buffer.len()` (or there are no rows to reach at all).
        .map(|band| unsafe { if rows == 0 { start } else { start.add(band * width) } })
        .map(|start| Band { start, rows, width, stride, buffer: PhantomData })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;

    #[test]
    fn bands_cover_the_buffer_once() {
        let mut buffer = vec![0u32; 5 * 6];
        split(&mut buffer, 5, 3, 2).into_par_iter().enumerate().for_each(|(index, mut band)| {
            for row in 0..5 {
                for (column, element) in band.row_mut(row).iter_mut().enumerate() {
                    *element += (row * 6 + index * 2 + column) as u32;
                }
            }
        });
        assert_eq!(buffer, (0..30).collect::<Vec<u32>>());
    }

    #[test]
    #[should_panic(expected = "row 5 of a band of 5 rows")]
    fn a_row_past_the_end_is_refused() {
        split(&mut [0u8; 10], 5, 1, 2)[0].row_mut(5);
    }
}
