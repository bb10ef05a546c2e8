//! Seeded inputs, and the same values in every layout that candle can hand to an op.

use candle_core::{DType, Device, Shape, Tensor};

use crate::Result;

/// A small counter-based generator (SplitMix64): the same numbers on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator that depends on nothing but its seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x1234_5678_9abc_def1))
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `0..bound` (0 for an empty range).
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.bits() >> 32).unwrap_or(0) % bound.max(1)
    }

    /// Independent standard normal numbers.
    ///
    /// # Errors
    /// A dtype that is not floating-point.
    pub fn normal(&mut self, shape: impl Into<Shape>, dtype: DType) -> Result<Tensor> {
        self.fill(shape, dtype, |random| {
            let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
            radius * (std::f64::consts::TAU * random.unit()).cos()
        })
    }

    /// Independent numbers, uniform in `[low, high)`.
    ///
    /// # Errors
    /// A dtype that is not floating-point.
    pub fn uniform(&mut self, low: f64, high: f64, shape: impl Into<Shape>, dtype: DType) -> Result<Tensor> {
        self.fill(shape, dtype, |random| low + (high - low) * random.unit())
    }

    /// Independent ids (u32), uniform in `0..rows`.
    ///
    /// # Errors
    /// A failure inside candle.
    pub fn ids(&mut self, rows: usize, shape: impl Into<Shape>) -> Result<Tensor> {
        let shape = shape.into();
        let ids: Vec<u32> = (0..shape.elem_count()).map(|_| self.below(rows) as u32).collect();
        Ok(Tensor::from_vec(ids, shape, &Device::Cpu)?)
    }

    fn fill(
        &mut self,
        shape: impl Into<Shape>,
        dtype: DType,
        mut draw: impl FnMut(&mut Self) -> f64,
    ) -> Result<Tensor> {
        let shape = shape.into();
        let numbers: Vec<f64> = (0..shape.elem_count()).map(|_| draw(self)).collect();
        Ok(Tensor::from_vec(numbers, shape, &Device::Cpu)?.to_dtype(dtype)?)
    }
}

/// The same values four times: contiguous, at an offset in a larger storage, transposed in memory,
/// and with a stride between neighbours.
///
/// # Errors
/// A failure inside candle.
pub fn layouts(tensor: &Tensor) -> Result<Vec<(&'static str, Tensor)>> {
    let contiguous = tensor.contiguous()?;
    let rank = contiguous.rank();
    let mut all = vec![("contiguous", contiguous.clone())];
    if rank > 0 {
        let twice = Tensor::cat(&[&contiguous, &contiguous], 0)?;
        all.push(("offset", twice.narrow(0, contiguous.dim(0)?, contiguous.dim(0)?)?));
    }
    if rank > 1 {
        let turned = contiguous.transpose(0, rank - 1)?.contiguous()?;
        all.push(("transposed", turned.transpose(0, rank - 1)?));
    }
    let spread = Tensor::stack(&[&contiguous, &contiguous.zeros_like()?], rank)?;
    all.push(("strided", spread.narrow(rank, 0, 1)?.squeeze(rank)?));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(tensor: &Tensor) -> Result<Vec<f64>> {
        Ok(tensor.flatten_all()?.to_vec1()?)
    }

    #[test]
    fn layouts_hold_the_same_values() -> Result<()> {
        for shape in [vec![5], vec![3, 4], vec![2, 3, 4], vec![0, 4]] {
            let x = Random::new(7).normal(shape, DType::F64)?;
            for (layout, same) in layouts(&x)? {
                assert_eq!(elements(&same)?, elements(&x)?, "{layout}");
            }
        }
        Ok(())
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() -> Result<()> {
        let x = elements(&Random::new(8).normal(100_000, DType::F64)?)?;
        let mean = x.iter().sum::<f64>() / 1e5;
        let variance = x.iter().map(|v| v * v).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
        Ok(())
    }
}
