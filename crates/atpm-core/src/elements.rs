//! From candle tensors to slices and back.
//!
//! Ops compute on plain slices; candle carries shapes and devices between them. Reading takes a
//! contiguous tensor (callers make one first), writing goes through candle's in-place op, so that
//! parameters, gradients and moments are updated where they lie.

use std::cell::RefCell;

use candle_core::{CpuStorage, DType, Device, InplaceOp1, Layout, Shape, Storage, Tensor};
use half::bf16;
use rayon::prelude::*;

use crate::cuda::{self, stream_of, with_activation};
use crate::vector::{Precision, Real, unset};
use crate::{Error, Result};

/// Runs `body` over the elements of a contiguous CPU tensor.
pub(crate) fn read<T: candle_core::WithDType, R>(
    op: &'static str,
    tensor: &Tensor,
    body: impl FnOnce(&[T]) -> Result<R>,
) -> Result<R> {
    let tensor = tensor.contiguous()?;
    let (storage, layout) = tensor.storage_and_layout();
    let Storage::Cpu(storage) = &*storage else {
        return Err(Error::Device { op, device: format!("{:?}", tensor.device().location()) });
    };
    let start = layout.start_offset();
    body(&storage.as_slice::<T>()?[start..start + layout.shape().elem_count()])
}

/// Runs `body` over the elements of several CPU tensors of one dtype, in row-major order; tensors of
/// another layout are made contiguous first.
pub(crate) fn read_all<T: candle_core::WithDType, R, const N: usize>(
    op: &'static str,
    tensors: [&Tensor; N],
    body: impl FnOnce([&[T]; N]) -> Result<R>,
) -> Result<R> {
    let tensors =
        tensors.iter().map(|tensor| tensor.contiguous()).collect::<candle_core::Result<Vec<_>>>()?;
    let guards: Vec<_> = tensors.iter().map(Tensor::storage_and_layout).collect();
    let mut slices: [&[T]; N] = [&[]; N];
    for (slice, (storage, layout)) in slices.iter_mut().zip(&guards) {
        let Storage::Cpu(storage) = &**storage else {
            return Err(Error::Device { op, device: format!("{:?}", tensors[0].device().location()) });
        };
        let start = layout.start_offset();
        *slice = &storage.as_slice::<T>()?[start..start + layout.shape().elem_count()];
    }
    body(slices)
}

/// The elements of an f32 tensor of any device, copied out in row-major order.
///
/// # Errors
/// Another dtype, or whatever a device reports, which may be something that an earlier launch did wrong.
pub fn read_f32(tensor: &Tensor) -> Result<Vec<f32>> {
    read("read", &tensor.to_device(&Device::Cpu)?, |values: &[f32]| Ok(values.to_vec()))
}

/// Overwrites the elements of a contiguous f32 tensor of any device in place, in row-major order; every clone of
/// the tensor sees the change.
///
/// # Errors
/// Another dtype, a tensor that is not contiguous, or another number of elements.
pub fn overwrite_f32(tensor: &Tensor, elements: &[f32]) -> Result<()> {
    if tensor.elem_count() != elements.len() {
        let problem = format!("{} elements for a tensor of {}", elements.len(), tensor.elem_count());
        return Err(Error::Argument { op: "overwrite", problem });
    }
    match stream_of(tensor)? {
        Some(stream) => cuda::elements::overwrite(&stream, tensor, elements),
        None => overwrite_on_host(tensor, elements),
    }
}

/// [`overwrite_f32`] of a tensor on the CPU, whose number of elements was checked.
pub(crate) fn overwrite_on_host(tensor: &Tensor, elements: &[f32]) -> Result<()> {
    update("overwrite", tensor, |values: &mut [f32]| {
        values.copy_from_slice(elements);
        Ok(())
    })
}

/// What activations of a model that computes in `precision` are stored in, where this parameter lies: bf16 on a GPU,
/// else the parameter's own dtype.
pub fn activation_dtype(parameter: &Tensor, precision: Precision) -> DType {
    let rounded = precision == Precision::Bf16 && cuda::is_gpu(parameter.device());
    if rounded { DType::BF16 } else { parameter.dtype() }
}

/// A new tensor of the elements of an f32 tensor in bf16, rounded to nearest even.
///
/// # Errors
/// Whatever a device reports; on a GPU a tensor that is bf16 already.
pub fn rounded(tensor: &Tensor) -> Result<Tensor> {
    match stream_of(tensor)? {
        Some(stream) => stream.tensor(stream.read_as::<bf16>("round", tensor)?, tensor.dims()),
        None => Ok(tensor.to_dtype(DType::BF16)?),
    }
}

/// Sets the elements of a contiguous tensor to zero, in place.
///
/// # Errors
/// A tensor that is not contiguous; on a GPU another dtype than f32.
pub fn clear(tensor: &Tensor) -> Result<()> {
    match stream_of(tensor)? {
        Some(stream) => cuda::elements::clear(&stream, tensor),
        None => Ok(tensor.zero_set()?),
    }
}

/// `a + b` of one shape and dtype: a residual connection.
///
/// # Errors
/// Shapes or dtypes that differ; on a GPU another dtype than f32 and bf16.
pub fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    expect_shape("add", "b", b, a.dims(), "a's")?;
    match stream_of(a)? {
        Some(stream) => with_activation!("add", a, T => cuda::elements::add::<T>(&stream, a, b)),
        None => with_real!(real_dtype("add", &[a, b])?, T => add_as::<T>(a, b)),
    }
}

/// Elements that one thread adds at a time.
const ADDED_AT_ONCE: usize = 1 << 15;

fn add_as<T: Element>(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let mut sums = unset::<T>(a.elem_count());
    read_all("add", [a, b], |[a, b]: [&[T]; 2]| {
        let terms = a.par_chunks(ADDED_AT_ONCE).zip(b.par_chunks(ADDED_AT_ONCE));
        sums.par_chunks_mut(ADDED_AT_ONCE).zip(terms).for_each(|(sums, (a, b))| {
            for ((sum, &a), &b) in sums.iter_mut().zip(a).zip(b) {
                *sum = a + b;
            }
        });
        Ok(())
    })?;
    tensor(sums, a.shape())
}

/// Adds `delta` to a gradient buffer of the same shape and dtype, in place.
///
/// # Errors
/// Shapes or dtypes that differ, a buffer that is not contiguous; on a GPU another dtype than f32.
pub fn accumulate(gradient: &Tensor, delta: &Tensor) -> Result<()> {
    expect_shape("accumulate", "delta", delta, gradient.dims(), "the gradient's")?;
    if let Some(stream) = stream_of(gradient)? {
        return cuda::elements::accumulate(&stream, gradient, delta);
    }
    match real_dtype("accumulate", &[gradient, delta])? {
        DType::F64 => accumulate_as::<f64>(gradient, delta),
        _ => accumulate_as::<f32>(gradient, delta),
    }
}

fn accumulate_as<T: Element>(gradient: &Tensor, delta: &Tensor) -> Result<()> {
    read("accumulate", delta, |delta: &[T]| {
        update("accumulate", gradient, |gradient: &mut [T]| {
            for (sum, &term) in gradient.iter_mut().zip(delta) {
                *sum += term;
            }
            Ok(())
        })
    })
}

/// A new CPU tensor of these elements.
pub(crate) fn tensor<T: candle_core::WithDType>(elements: Vec<T>, shape: impl Into<Shape>) -> Result<Tensor> {
    Ok(Tensor::from_vec(elements, shape, &Device::Cpu)?)
}

/// Runs `body` over the elements of a contiguous CPU tensor, in place. Every clone of the tensor
/// sees the change: this is how gradients accumulate and parameters move.
pub(crate) fn update<T: Writable>(
    op: &'static str,
    tensor: &Tensor,
    body: impl FnOnce(&mut [T]) -> Result<()>,
) -> Result<()> {
    expect_contiguous(op, tensor)?;
    let outcome = RefCell::new(Ok(()));
    let body = RefCell::new(Some(body));
    tensor.inplace_op1(&Update { op, body: &body, outcome: &outcome, element: std::marker::PhantomData })?;
    outcome.into_inner()
}

struct Update<'a, T, F> {
    op: &'static str,
    body: &'a RefCell<Option<F>>,
    outcome: &'a RefCell<Result<()>>,
    element: std::marker::PhantomData<T>,
}

impl<T: Writable, F: FnOnce(&mut [T]) -> Result<()>> InplaceOp1 for Update<'_, T, F> {
    fn name(&self) -> &'static str {
        self.op
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        let start = layout.start_offset();
        let Some(elements) = T::slice_mut(storage) else {
            let expected = "the op's own dtype";
            *self.outcome.borrow_mut() = Err(Error::Dtype { op: self.op, got: "another".into(), expected });
            return Ok(());
        };
        let elements = &mut elements[start..start + layout.shape().elem_count()];
        if let Some(body) = self.body.borrow_mut().take() {
            *self.outcome.borrow_mut() = body(elements);
        }
        Ok(())
    }
}

/// The shared dtype of an op's floating-point arguments: f32 or f64.
pub(crate) fn real_dtype(op: &'static str, tensors: &[&Tensor]) -> Result<DType> {
    let dtype = tensors[0].dtype();
    for tensor in tensors {
        if tensor.dtype() != dtype || !matches!(dtype, DType::F32 | DType::F64) {
            return Err(Error::Dtype {
                op,
                got: format!("{:?}", tensor.dtype()),
                expected: "f32, or f64 throughout",
            });
        }
    }
    Ok(dtype)
}

/// Refuses a tensor whose shape is not the expected one; `letters` is the op's name for it.
pub(crate) fn expect_shape(
    op: &'static str,
    argument: &'static str,
    tensor: &Tensor,
    expected: &[usize],
    letters: &str,
) -> Result<()> {
    if tensor.dims() == expected {
        return Ok(());
    }
    Err(Error::Shape {
        op,
        argument,
        got: tensor.dims().to_vec(),
        expected: format!("{letters} = {expected:?}"),
    })
}

/// Refuses a tensor that is to be written in place and is not contiguous.
pub(crate) fn expect_contiguous(op: &'static str, tensor: &Tensor) -> Result<()> {
    if tensor.is_contiguous() {
        return Ok(());
    }
    Err(Error::Argument { op, problem: "a tensor that is written in place must be contiguous".into() })
}

/// The element types of CPU tensors that are written in place.
pub(crate) trait Writable: candle_core::WithDType {
    /// The elements of a CPU storage of this dtype.
    fn slice_mut(storage: &mut CpuStorage) -> Option<&mut [Self]>;
}

macro_rules! writable {
    ($($number:ty, $variant:ident;)*) => {
        $(impl Writable for $number {
            fn slice_mut(storage: &mut CpuStorage) -> Option<&mut [Self]> {
                if let CpuStorage::$variant(elements) = storage { Some(elements) } else { None }
            }
        })*
    };
}
writable! { f32, F32; f64, F64; bf16, BF16; }

/// The element types that ops compute in on the CPU: f32, and f64 to check gradients with.
pub(crate) trait Element: Real + Writable {}
impl<T: Real + Writable> Element for T {}

/// Runs the body with `T` standing for f32 or f64, whichever the dtype is; see [`real_dtype`].
macro_rules! with_real {
    ($dtype:expr, $t:ident => $body:expr) => {
        if $dtype == candle_core::DType::F64 {
            type $t = f64;
            $body
        } else {
            type $t = f32;
            $body
        }
    };
}
pub(crate) use with_real;
