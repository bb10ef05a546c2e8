//! Sizes that the kernels take, on top of what an op asks for on any device.

use crate::vector::Precision;

/// What a model is run for on a GPU: with it goes what a block of its kernels needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Activations.
    pub precision: Precision,
    /// Whether backward is run too, whose kernels need more.
    pub backward: bool,
}

/// The mixer's `S` is a multiple of this.
pub const ADDRESS_STEP: usize = 16;
/// The mixer's `K` and `V` are multiples of this.
pub const ENTITY_STEP: usize = 8;
/// Largest `S`, `K` and `V` of the mixer.
pub const MOST_HEAD: usize = 256;
/// Largest rank `R` of the mixer's transport.
pub const MOST_RANK: usize = 64;
/// Rows of ops that look at each row by itself are a multiple of this wide: kernels read pairs of columns.
pub const ROW_STEP: usize = 2;
/// Widest row of an op that sums a weight's gradient over rows: a column of f32 for each of a block's warps.
pub const MOST_ROW: usize = MOST_SHARED_BYTES / row_block_bytes(1);

/// Dynamic shared memory of a block on sm_80. Others that the kernels run on have more (sm_90, sm_100) or less (sm_86,
/// sm_89, sm_120): [`super::block_bytes`] asks.
pub(crate) const MOST_SHARED_BYTES: usize = 163 * 1024;
/// Bytes of shared memory that a block needs for rows of this width, of ops that sum a weight's gradient over rows.
pub const fn row_block_bytes(width: usize) -> usize {
    WARPS * width * size_of::<f32>()
}
/// Warps of a block of an op whose rows are independent; each takes a row.
pub(crate) const WARPS: usize = 8;
