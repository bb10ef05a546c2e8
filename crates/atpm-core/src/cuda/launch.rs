//! What a launch is made of: a kernel's name, a grid, and arguments that know their C++ types.

use std::marker::PhantomData;

use candle_core::{DType, Tensor};
use half::bf16;

use super::backend::{Buffer, Stored, Stream};
use crate::elements::expect_contiguous;
use crate::{Error, Result};

/// A kernel: the file in `kernels/` that holds it, without `.cu`, and its name there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Kernel {
    pub(crate) file: &'static str,
    pub(crate) name: &'static str,
}

/// The two kernels of one name: for activations in f32, and in bf16.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Twins {
    pub(crate) f32: Kernel,
    pub(crate) bf16: Kernel,
}

impl Twins {
    /// The one for activations of this type.
    pub(crate) fn of<T: Activation>(self) -> Kernel {
        T::choose(self.f32, self.bf16)
    }
}

/// The twins `NAME_f32` and `NAME_bf16` of a file.
macro_rules! twins {
    ($file:literal, $name:literal) => {
        $crate::cuda::Twins {
            f32: $crate::cuda::Kernel { file: $file, name: concat!($name, "_f32") },
            bf16: $crate::cuda::Kernel { file: $file, name: concat!($name, "_bf16") },
        }
    };
}
pub(crate) use twins;

/// How many threads run a kernel, and with how much dynamic shared memory a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    pub(crate) blocks: usize,
    pub(crate) threads: i32,
    pub(crate) shared_bytes: usize,
}

impl Grid {
    /// Blocks without dynamic shared memory.
    pub(crate) fn new(blocks: usize, threads: i32) -> Self {
        Self { blocks, threads, shared_bytes: 0 }
    }
}

/// A type that buffers are made of.
pub(crate) trait Number: super::backend::Represented {
    /// `const T *` in the words of `kernels/emulation/launch.cpp`.
    const READ: &'static str;
    /// `T *`.
    const WRITTEN: &'static str;
}

impl Number for f32 {
    const READ: &'static str = "const f32*";
    const WRITTEN: &'static str = "f32*";
}
impl Number for bf16 {
    const READ: &'static str = "const bf16*";
    const WRITTEN: &'static str = "bf16*";
}
impl Number for f64 {
    const READ: &'static str = "const f64*";
    const WRITTEN: &'static str = "f64*";
}
impl Number for u8 {
    const READ: &'static str = "const u8*";
    const WRITTEN: &'static str = "u8*";
}
impl Number for u32 {
    const READ: &'static str = "const u32*";
    const WRITTEN: &'static str = "u32*";
}
/// What activations are stored in, with them the convolution's states and the mixer's saved ones: f32 or bf16.
/// Parameters, their gradients, controls, and the mixer's first and last state are f32 with both.
pub(crate) trait Activation: Number + Stored {
    /// What goes with f32, or what goes with bf16.
    fn choose<R>(f32: R, bf16: R) -> R;
}
impl Activation for f32 {
    fn choose<R>(f32: R, _bf16: R) -> R {
        f32
    }
}
impl Activation for bf16 {
    fn choose<R>(_f32: R, bf16: R) -> R {
        bf16
    }
}

/// Runs the body with `T` standing for what the tensor's elements are.
macro_rules! with_activation {
    ($op:expr, $tensor:expr, $t:ident => $body:expr) => {
        match $tensor.dtype() {
            candle_core::DType::F32 => {
                type $t = f32;
                $body
            }
            candle_core::DType::BF16 => {
                type $t = half::bf16;
                $body
            }
            other => Err($crate::cuda::refused_dtype($op, other)),
        }
    };
}
pub(crate) use with_activation;

pub(crate) fn refused_dtype(op: &'static str, got: DType) -> Error {
    let expected = "f32 on CUDA, bf16 for activations, u32 for ids";
    Error::Dtype { op, got: format!("{got:?}"), expected }
}

/// Words of a table whose rows are a C++ struct of 64-bit members.
impl Number for u64 {
    const READ: &'static str = "const u64*";
    const WRITTEN: &'static str = "u64*";
}

/// A size that the kernel takes as `int`.
pub(crate) struct Int(pub(crate) usize);
/// A size that the kernel takes as `int64_t`.
pub(crate) struct Long(pub(crate) usize);

/// One argument of a kernel; while it lives, so does the buffer that it points to.
pub(crate) struct Arg<'a> {
    value: Value,
    cpp_type: &'static str,
    buffer: PhantomData<&'a ()>,
}

enum Value {
    Address(u64),
    Int(usize),
    Long(usize),
    F32(f32),
    F64(f64),
    Floats([f32; 7]),
}

impl Arg<'_> {
    fn new(value: Value, cpp_type: &'static str) -> Self {
        Self { value, cpp_type, buffer: PhantomData }
    }
}

impl<'a, T: Number> From<&'a Buffer<T>> for Arg<'a> {
    fn from(buffer: &'a Buffer<T>) -> Self {
        Self::new(Value::Address(buffer.address()), T::READ)
    }
}
impl<'a, T: Number> From<&'a mut Buffer<T>> for Arg<'a> {
    fn from(buffer: &'a mut Buffer<T>) -> Self {
        Self::new(Value::Address(buffer.address()), T::WRITTEN)
    }
}
/// A buffer that may be absent: a null pointer.
impl<'a, T: Number> From<Option<&'a Buffer<T>>> for Arg<'a> {
    fn from(buffer: Option<&'a Buffer<T>>) -> Self {
        Self::new(Value::Address(buffer.map_or(0, Buffer::address)), T::READ)
    }
}
impl<'a, T: Number> From<Option<&'a mut Buffer<T>>> for Arg<'a> {
    fn from(buffer: Option<&'a mut Buffer<T>>) -> Self {
        Self::new(Value::Address(buffer.map_or(0, |buffer| buffer.address())), T::WRITTEN)
    }
}
/// A buffer from one of its elements on.
impl<'a, T: Number> From<(&'a Buffer<T>, usize)> for Arg<'a> {
    fn from((buffer, first): (&'a Buffer<T>, usize)) -> Self {
        Self::new(Value::Address(buffer.address_of(first)), T::READ)
    }
}
impl<'a, T: Number> From<(&'a mut Buffer<T>, usize)> for Arg<'a> {
    fn from((buffer, first): (&'a mut Buffer<T>, usize)) -> Self {
        Self::new(Value::Address(buffer.address_of(first)), T::WRITTEN)
    }
}
impl From<Int> for Arg<'_> {
    fn from(Int(size): Int) -> Self {
        Self::new(Value::Int(size), "i32")
    }
}
impl From<Long> for Arg<'_> {
    fn from(Long(size): Long) -> Self {
        Self::new(Value::Long(size), "i64")
    }
}
impl From<bool> for Arg<'_> {
    fn from(flag: bool) -> Self {
        Int(usize::from(flag)).into()
    }
}
impl From<f32> for Arg<'_> {
    fn from(number: f32) -> Self {
        Self::new(Value::F32(number), "f32")
    }
}
impl From<f64> for Arg<'_> {
    fn from(number: f64) -> Self {
        Self::new(Value::F64(number), "f64")
    }
}
/// A struct of seven f32, passed by value.
impl From<[f32; 7]> for Arg<'_> {
    fn from(numbers: [f32; 7]) -> Self {
        Self::new(Value::Floats(numbers), "f32[7]")
    }
}

/// Kernel arguments, each by [`Arg::from`].
macro_rules! args {
    ($($argument:expr),* $(,)?) => { [$($crate::cuda::Arg::from($argument)),*] };
}
pub(crate) use args;

/// The bytes of one argument, at the alignment of the widest.
pub(super) type Slot = [u64; 4];

impl Arg<'_> {
    fn slot(&self) -> Option<Slot> {
        let pair = |low: f32, high: f32| u64::from(low.to_bits()) | u64::from(high.to_bits()) << 32;
        let first = match self.value {
            Value::Address(address) => address,
            Value::Int(size) => u64::try_from(i32::try_from(size).ok()?).ok()?,
            Value::Long(size) => u64::try_from(i64::try_from(size).ok()?).ok()?,
            Value::F32(number) => u64::from(number.to_bits()),
            Value::F64(number) => number.to_bits(),
            Value::Floats([a, b, c, d, e, f, g]) => {
                return Some([pair(a, b), pair(c, d), pair(e, f), pair(g, 0.0)]);
            }
        };
        Some([first, 0, 0, 0])
    }
}

impl Stream {
    /// The elements of a tensor, in row-major order.
    pub(crate) fn read<T: Number + Stored>(&self, op: &'static str, tensor: &Tensor) -> Result<Buffer<T>> {
        if tensor.dtype() != T::DTYPE {
            return Err(refused_dtype(op, tensor.dtype()));
        }
        self.view(op, &tensor.contiguous()?)
    }

    /// A tensor to be written where it lies.
    pub(crate) fn in_place<T: Activation>(&self, op: &'static str, tensor: &Tensor) -> Result<Buffer<T>> {
        expect_contiguous(op, tensor)?;
        Ok(self.read(op, tensor)?.written_to(tensor))
    }

    /// The elements of several tensors of one dtype.
    pub(crate) fn read_all<T: Activation, const N: usize>(
        &self,
        op: &'static str,
        tensors: [&Tensor; N],
    ) -> Result<[Buffer<T>; N]> {
        let buffers = tensors.iter().map(|tensor| self.read(op, tensor)).collect::<Result<Vec<_>>>()?;
        Ok(buffers.try_into().unwrap_or_else(|_| unreachable!("one buffer a tensor")))
    }

    /// Those of a tensor that may be absent.
    pub(crate) fn read_optional<T: Activation>(
        &self,
        op: &'static str,
        tensor: Option<&Tensor>,
    ) -> Result<Option<Buffer<T>>> {
        tensor.map(|tensor| self.read(op, tensor)).transpose()
    }

    /// Runs a kernel after everything that the stream was given before. A grid of no blocks does nothing: there is
    /// nothing to write then.
    ///
    /// # Errors
    /// A size that does not fit the kernel's parameter or the grid; whatever the driver reports, now or from
    /// something earlier on the stream.
    pub(crate) fn launch(&self, kernel: Kernel, grid: Grid, arguments: &[Arg<'_>]) -> Result<()> {
        if grid.blocks == 0 {
            return Ok(());
        }
        let refusal = |problem: String| Error::Argument { op: kernel.name, problem };
        let Grid { blocks, threads, shared_bytes } = grid;
        // The signed limit is that of a grid's dimension.
        let (Ok(blocks), Ok(shared_bytes)) = (i32::try_from(blocks), i32::try_from(shared_bytes)) else {
            return Err(refusal(format!(
                "{blocks} blocks with {shared_bytes} bytes are more than a grid takes"
            )));
        };
        let slot = |(index, argument): (usize, &Arg<'_>)| {
            let problem =
                || refusal(format!("argument {index} does not fit the kernel's {}", argument.cpp_type));
            argument.slot().ok_or_else(problem)
        };
        let slots: Vec<Slot> = arguments.iter().enumerate().map(slot).collect::<Result<_>>()?;
        let types: Vec<&str> = arguments.iter().map(|argument| argument.cpp_type).collect();
        self.start(kernel, [blocks, threads, shared_bytes].map(i32::cast_unsigned), &slots, &types)
    }
}
