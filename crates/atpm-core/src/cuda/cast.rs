//! Between f32 and bf16.

use candle_core::{DType, Tensor};
use half::bf16;

use super::{Activation, Buffer, Grid, Kernel, Long, Stream, args};
use crate::Result;

const ROUND: Kernel = Kernel { file: "casts", name: "cast_f32_to_bf16" };
const WIDEN: Kernel = Kernel { file: "casts", name: "cast_bf16_to_f32" };

const THREADS: i32 = 256;
const ELEMENTS_PER_BLOCK: usize = 2048;

impl Stream {
    /// The elements of an f32 or bf16 tensor, in `T`.
    pub(crate) fn read_as<T: Activation>(&self, op: &'static str, tensor: &Tensor) -> Result<Buffer<T>> {
        if tensor.dtype() == T::DTYPE {
            return self.read(op, tensor);
        }
        let mut to = self.unset::<T>(tensor.elem_count())?;
        let count = Long(tensor.elem_count());
        let grid = Grid::new(tensor.elem_count().div_ceil(ELEMENTS_PER_BLOCK), THREADS);
        if tensor.dtype() == DType::F32 {
            self.launch(ROUND, grid, &args![&self.read::<f32>(op, tensor)?, &mut to, count])?;
        } else {
            self.launch(WIDEN, grid, &args![&self.read::<bf16>(op, tensor)?, &mut to, count])?;
        }
        Ok(to)
    }
}
