//! What an op cannot do without: the bytes that it moves, and the arithmetic of its matrix products.

use atpm_core::Precision;
use candle_core::Tensor;

use super::clock::Peaks;

/// The least that a pass has to do.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// Of an op made of matrix products: what they are judged by. Other ops are judged by their bytes.
    pub products: Option<Products>,
    /// Bytes of what is read and of what is written, each tensor once.
    pub bytes: f64,
}

/// Arithmetic of matrix products.
#[derive(Debug, Clone, Copy)]
pub struct Products {
    /// Floating-point operations; a multiply-add is two.
    pub flop: f64,
    /// What the operands are rounded to, which decides the peak.
    pub precision: Precision,
}

/// Seconds that a pass cannot do without, at a device's peaks.
#[derive(Debug, Clone, Copy)]
pub struct Floors {
    /// For its bytes.
    pub memory: f64,
    /// For its matrix products, if it is made of them.
    pub products: Option<f64>,
}

impl Floors {
    /// The higher of the two.
    pub fn higher(self) -> f64 {
        self.memory.max(self.products.unwrap_or(0.0))
    }

    /// Those of this pass and another one after it.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let products = self.products.map(|seconds| seconds + other.products.unwrap_or(0.0));
        Self { memory: self.memory + other.memory, products: products.or(other.products) }
    }
}

impl Work {
    /// Moving so many bytes.
    pub(super) fn memory(bytes: usize) -> Self {
        Self { products: None, bytes: bytes as f64 }
    }

    /// Products of so many operations, which move so many bytes.
    pub(super) fn products(flop: f64, precision: Precision, bytes: usize) -> Self {
        Self { products: Some(Products { flop, precision }), ..Self::memory(bytes) }
    }

    /// The least time for it.
    pub fn floors(self, peaks: &Peaks) -> Floors {
        let products = self.products.map(|products| products.flop / peaks.products(products.precision) / 1e9);
        Floors { memory: self.bytes / peaks.memory.mixed / 1e9, products }
    }

    /// The rate over this time that the op is judged by, and its unit.
    pub fn rate(self, seconds: f64) -> (f64, &'static str) {
        match self.products {
            Some(products) => (products.flop / seconds / 1e9, "GFLOP/s"),
            None => (self.bytes / seconds / 1e9, "GB/s"),
        }
    }
}

/// Bytes of a tensor's elements.
pub(super) fn size(tensor: &Tensor) -> usize {
    tensor.elem_count() * tensor.dtype().size_in_bytes()
}
