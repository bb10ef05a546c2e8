//! From what a head reads to its addresses, chunk by chunk, and the gradient of that.
//!
//! ```text
//! s = s_raw/√(Σ s_raw² + ε)                               source address
//! z = (A_K k̂) ⊙ (A_V v̂),  c = C z/√R,  b = c/√(1+‖c‖²)    proposal, inside the unit ball
//! τ = b − (sᵀb)s,  d = s + ρτ                             transport; sᵀd = 1
//! a = d/‖d‖,  q = q0 + λ(1 − q0ᵀa)a                       recall correction; a = 0 where ‖d‖ = 0
//! ```
//!
//! `k̂, v̂` are the entity's blocks over their RMS. Everything is per token; a chunk is only the unit
//! in which the three transport products are done at once.

use super::chunk::ChunkGradients;
use super::{Controls, Sizes};
use crate::blocks::add;
use crate::vector::bands::Band;
use crate::vector::{Mat, MatMut, Real, dot, product, transpose, vectorize};

/// Added to squared norms and mean squares before the root.
pub(in crate::ops::mixer) const NORM_EPS: f64 = 1e-6;

/// One head's transport weights: `A_K [R,K]`, `A_V [R,V]`, `C [S,R]`.
#[derive(Clone, Copy)]
pub(super) struct Weights<'a, T> {
    pub(super) a_key: &'a [T],
    pub(super) a_value: &'a [T],
    pub(super) c: &'a [T],
}

/// Gradient buffers of one head's transport weights.
pub(super) struct WeightGradients<'a, T> {
    pub(super) a_key: &'a mut [T],
    pub(super) a_value: &'a mut [T],
    pub(super) c: &'a mut [T],
}

/// The factors that normalisation and transport applied to one token.
#[derive(Clone, Copy)]
struct Scales<T> {
    source: T,
    query: T,
    key: T,
    value: T,
    /// `1/√(1+‖c‖²)`.
    soft: T,
    /// `sᵀb`.
    along: T,
    /// `1/‖d‖`; 0 where `‖d‖ = 0`, which makes `a` and all its gradients 0.
    anchor: T,
    /// `q0ᵀa`.
    overlap: T,
}

/// The geometry of one chunk of `c` tokens.
pub(super) struct Geometry<T> {
    /// The head's weights as right operands: `A_Kᵀ [K,R]`, `A_Vᵀ [V,R]`, `Cᵀ/√R [R,S]`.
    a_key_t: Vec<T>,
    a_value_t: Vec<T>,
    c_t: Vec<T>,
    /// `[2c,S]`: sources `s`, below them the corrected queries `q`.
    pub(super) sq: Vec<T>,
    /// `[c,S]`: write addresses `d`.
    pub(super) d: Vec<T>,
    /// `[c,D]`: entities `e = [k; v]`.
    pub(super) e: Vec<T>,
    /// `[c,S]`: `q0`.
    query: Vec<T>,
    /// `[c,S]`: `b`.
    proposal: Vec<T>,
    /// `[c,D]`: `[k̂; v̂]`.
    unit: Vec<T>,
    /// `[c,R]` each: `A_K k̂`, `A_V v̂`, their product `z`.
    z_key: Vec<T>,
    z_value: Vec<T>,
    z: Vec<T>,
    scales: Vec<Scales<T>>,
    /// Backward only, `[c,S]` and `[c,R]`: gradients of `c` and `z`.
    dproposal: Vec<T>,
    dz: Vec<T>,
    /// Backward only, `[c,D]`: gradients of `k̂, v̂`.
    dunit: Vec<T>,
}

impl<T: Real> Geometry<T> {
    pub(super) fn new(sizes: &Sizes) -> Self {
        let Sizes { chunk, address, rank, .. } = *sizes;
        let zeros = |n: usize| vec![T::zero(); chunk * n];
        let entity = sizes.entity();
        let unset = Scales {
            source: T::zero(),
            query: T::zero(),
            key: T::zero(),
            value: T::zero(),
            soft: T::zero(),
            along: T::zero(),
            anchor: T::zero(),
            overlap: T::zero(),
        };
        Self {
            a_key_t: vec![T::zero(); sizes.key * rank],
            a_value_t: vec![T::zero(); sizes.value * rank],
            c_t: vec![T::zero(); rank * address],
            sq: zeros(2 * address),
            d: zeros(address),
            e: zeros(entity),
            query: zeros(address),
            proposal: zeros(address),
            unit: zeros(entity),
            z_key: zeros(rank),
            z_value: zeros(rank),
            z: zeros(rank),
            scales: vec![unset; chunk],
            dproposal: zeros(address),
            dz: zeros(rank),
            dunit: zeros(entity),
        }
    }

    /// Takes one head's weights, for all its chunks.
    pub(super) fn load_weights(&mut self, sizes: &Sizes, weights: Weights<'_, T>) {
        let Sizes { address, key, value, rank, .. } = *sizes;
        transpose(weights.a_key, rank, key, &mut self.a_key_t);
        transpose(weights.a_value, rank, value, &mut self.a_value_t);
        transpose(weights.c, address, rank, &mut self.c_t);
        self.c_t.iter_mut().for_each(|c| *c = *c * root_rank(rank));
    }

    /// Fills the geometry of one chunk. `row(t)` is what the head reads at token `t`:
    /// `[q; s_raw; k; v]`; `ahead(t)` is called along the way. Returns `Σ‖d‖`.
    pub(super) fn forward<'a>(
        &mut self,
        sizes: &Sizes,
        row: impl Fn(usize) -> &'a [T],
        ahead: impl FnMut(usize),
        controls: &Controls<T>,
    ) -> f64 {
        let c = controls.tokens;
        vectorize!(self.normalize(sizes, row, ahead, c));
        self.propose(sizes, c);
        vectorize!(self.transport(sizes, controls))
    }

    #[inline(always)]
    fn normalize<'a>(
        &mut self,
        sizes: &Sizes,
        row: impl Fn(usize) -> &'a [T],
        mut ahead: impl FnMut(usize),
        c: usize,
    ) {
        let Sizes { address, key, .. } = *sizes;
        let entity = sizes.entity();
        for t in 0..c {
            ahead(t);
            let (query, rest) = row(t).split_at(address);
            let (source, content) = rest.split_at(address);
            let scales = &mut self.scales[t];
            scales.source = scaled(source, &mut self.sq[t * address..][..address], T::one());
            scales.query = if sizes.query_norm {
                scaled(query, &mut self.query[t * address..][..address], T::one())
            } else {
                self.query[t * address..][..address].copy_from_slice(query);
                T::one()
            };
            let (k, v) = content.split_at(key);
            self.e[t * entity..][..entity].copy_from_slice(content);
            let (unit_key, unit_value) = self.unit[t * entity..][..entity].split_at_mut(key);
            scales.key = scaled(k, unit_key, T::of(k.len() as f64));
            scales.value = scaled(v, unit_value, T::of(v.len() as f64));
        }
    }

    /// `c = C((A_K k̂) ⊙ (A_V v̂))/√R` for the chunk, into `proposal`.
    fn propose(&mut self, sizes: &Sizes, c: usize) {
        let Sizes { address, key, value, rank, .. } = *sizes;
        let entity = sizes.entity();
        let zero = T::zero();
        let unit_key = Mat::rows(&self.unit, c, key, entity);
        let unit_value = Mat::rows(&self.unit[key..], c, value, entity);
        product(
            MatMut::dense(&mut self.z_key, c, rank),
            zero,
            unit_key,
            Mat::dense(&self.a_key_t, key, rank),
        );
        let a_value_t = Mat::dense(&self.a_value_t, value, rank);
        product(MatMut::dense(&mut self.z_value, c, rank), zero, unit_value, a_value_t);
        for (z, (&zk, &zv)) in self.z.iter_mut().zip(self.z_key.iter().zip(&self.z_value)) {
            *z = zk * zv;
        }
        let c_t = Mat::dense(&self.c_t, rank, address);
        product(MatMut::dense(&mut self.proposal, c, address), zero, Mat::dense(&self.z, c, rank), c_t);
    }

    #[inline(always)]
    fn transport(&mut self, sizes: &Sizes, controls: &Controls<T>) -> f64 {
        let address = sizes.address;
        let c = controls.tokens;
        let (sources, queries) = self.sq.split_at_mut(c * address);
        let mut norms = 0.0;
        for t in 0..c {
            let at = t * address;
            let s = &sources[at..][..address];
            let b = &mut self.proposal[at..][..address];
            let d = &mut self.d[at..][..address];
            let (query, q) = (&self.query[at..][..address], &mut queries[at..][..address]);
            let scales = &mut self.scales[t];

            scales.soft = (T::one() + dot(b, b)).sqrt().recip();
            for b in b.iter_mut() {
                *b = *b * scales.soft;
            }
            scales.along = dot(s, b);
            for ((d, &s), &b) in d.iter_mut().zip(s).zip(b.iter()) {
                *d = controls.rho[t].mul_add(b - scales.along * s, s);
            }
            let norm = dot(d, d).sqrt();
            norms += norm.wide();
            scales.anchor = if norm == T::zero() { T::zero() } else { norm.recip() };
            scales.overlap = dot(query, d) * scales.anchor;
            let pull = controls.lambda[t] * (T::one() - scales.overlap) * scales.anchor;
            for ((q, &query), &d) in q.iter_mut().zip(query).zip(d.iter()) {
                *q = pull.mul_add(d, query);
            }
        }
        norms
    }

    /// The gradient of [`Self::forward`], for the chunk it was last called on.
    ///
    /// Takes the gradients that the chunk left, writes that of what the head read into rows
    /// `first..` of `dx`, those of ρ and λ into `dcontrols`, and adds to `dweights`.
    #[expect(clippy::too_many_arguments, reason = "one argument a gradient")]
    pub(super) fn backward(
        &mut self,
        sizes: &Sizes,
        controls: &Controls<T>,
        weights: Weights<'_, T>,
        gradients: ChunkGradients<'_, T>,
        dcontrols: &mut Controls<T>,
        dweights: &mut WeightGradients<'_, T>,
        dx: &mut Band<'_, T>,
        first: usize,
    ) {
        let ChunkGradients { dsq, dd, de } = gradients;
        vectorize!(self.transport_backward(sizes, controls, dsq, dd, dcontrols));
        self.propose_backward(sizes, controls.tokens, weights, dweights);
        vectorize!(self.normalize_backward(sizes, controls.tokens, dsq, de, dx, first));
    }

    /// Turns `dq` into the gradient of `q0`, adds to `ds`, and leaves the gradient of `c` in
    /// `dproposal`.
    #[inline(always)]
    fn transport_backward(
        &mut self,
        sizes: &Sizes,
        controls: &Controls<T>,
        dsq: &mut [T],
        dd: &mut [T],
        dcontrols: &mut Controls<T>,
    ) {
        let address = sizes.address;
        let c = controls.tokens;
        let (dsources, dqueries) = dsq.split_at_mut(c * address);
        for t in 0..c {
            let at = t * address;
            let (s, b) = (&self.sq[at..][..address], &self.proposal[at..][..address]);
            let (d, query) = (&self.d[at..][..address], &self.query[at..][..address]);
            let (ds, dq) = (&mut dsources[at..][..address], &mut dqueries[at..][..address]);
            let dd = &mut dd[at..][..address];
            let dc = &mut self.dproposal[at..][..address];
            let Scales { soft, along, anchor, overlap, .. } = self.scales[t];
            let (rho, lambda) = (controls.rho[t], controls.lambda[t]);

            // q = q0 + λ(1 − m)a with m = q0ᵀa and a = d·anchor.
            let gap = T::one() - overlap;
            let dq_a = dot(dq, d) * anchor;
            dcontrols.lambda[t] = gap * dq_a;
            let doverlap = -lambda * dq_a;
            // da = λ(1−m) dq + dm·q0, and dd += (da − a(aᵀda))·anchor; aᵀda needs only known products.
            let a_da = (lambda * gap).mul_add(dq_a, doverlap * overlap);
            for (((dd, dq), &d), &query) in dd.iter_mut().zip(dq.iter_mut()).zip(d).zip(query) {
                let a = d * anchor;
                let da = (lambda * gap).mul_add(*dq, doverlap * query);
                *dd = (da - a * a_da).mul_add(anchor, *dd);
                *dq = doverlap.mul_add(a, *dq);
            }

            // d = s + ρτ, τ = b − (sᵀb)s.
            let (dd_s, dd_b) = (dot(dd, s), dot(dd, b));
            dcontrols.rho[t] = dd_b - along * dd_s;
            for ((ds, &dd), &b) in ds.iter_mut().zip(dd.iter()).zip(b) {
                *ds = *ds + dd - rho * dd_s.mul_add(b, along * dd);
            }
            // db = ρ(dd − (sᵀdd)s), then the soft sphere: dc = (db − b(bᵀdb))·soft.
            let b_db = rho * (dd_b - dd_s * along);
            for (((dc, &dd), &s), &b) in dc.iter_mut().zip(dd.iter()).zip(s).zip(b) {
                *dc = (rho * (dd - dd_s * s) - b * b_db) * soft;
            }
        }
    }

    /// From the gradient of `c` to those of `k̂, v̂` and of the weights.
    fn propose_backward(
        &mut self,
        sizes: &Sizes,
        c: usize,
        weights: Weights<'_, T>,
        dweights: &mut WeightGradients<'_, T>,
    ) {
        let Sizes { address, key, value, rank, .. } = *sizes;
        let entity = sizes.entity();
        let (one, zero) = (T::one(), T::zero());
        let dc = Mat::dense(&self.dproposal, c, address);
        product(MatMut::dense(&mut self.dz, c, rank), zero, dc, Mat::dense(weights.c, address, rank));
        // z = z_K ⊙ z_V: each factor's gradient takes the other factor; both replace the factors.
        let scale: T = root_rank(rank);
        let factors = self.z_key.iter_mut().zip(&mut self.z_value).zip(&mut self.z);
        for (((zk, zv), z), &dz) in factors.zip(&self.dz).take(c * rank) {
            let dz = dz * scale;
            (*zk, *zv) = (dz * *zv, dz * *zk);
            *z = *z * scale;
        }
        product(MatMut::dense(dweights.c, address, rank), one, dc.t(), Mat::dense(&self.z, c, rank));
        let blocks = [
            (0, key, &self.z_key, weights.a_key, &mut *dweights.a_key),
            (key, value, &self.z_value, weights.a_value, &mut *dweights.a_value),
        ];
        for (first, width, dz, weight, dweight) in blocks {
            let dz = Mat::dense(dz, c, rank);
            let unit = Mat::rows(&self.unit[first..], c, width, entity);
            product(MatMut::dense(dweight, rank, width), one, dz.t(), unit);
            let dunit = MatMut::rows(&mut self.dunit[first..], c, width, entity);
            product(dunit, zero, dz, Mat::dense(weight, rank, width));
        }
    }

    #[inline(always)]
    fn normalize_backward(
        &self,
        sizes: &Sizes,
        c: usize,
        dsq: &[T],
        de: &[T],
        dx: &mut Band<'_, T>,
        first: usize,
    ) {
        let Sizes { address, key, .. } = *sizes;
        let entity = sizes.entity();
        for t in 0..c {
            let at = t * address;
            let (dquery, rest) = dx.row_mut(first + t).split_at_mut(address);
            let (dsource, dcontent) = rest.split_at_mut(address);
            let Scales { source, query, key: key_scale, value: value_scale, .. } = self.scales[t];
            let ds = &dsq[at..][..address];
            let dq = &dsq[(c * address + at)..][..address];
            unscaled(&self.sq[at..][..address], ds, source, T::one(), dsource);
            if sizes.query_norm {
                unscaled(&self.query[at..][..address], dq, query, T::one(), dquery);
            } else {
                dquery.copy_from_slice(dq);
            }
            let (dk, dv) = dcontent.split_at_mut(key);
            let (unit_key, unit_value) = self.unit[t * entity..][..entity].split_at(key);
            let (dunit_key, dunit_value) = self.dunit[t * entity..][..entity].split_at(key);
            unscaled(unit_key, dunit_key, key_scale, T::of(key as f64), dk);
            unscaled(unit_value, dunit_value, value_scale, T::of((entity - key) as f64), dv);
            add(&de[t * entity..][..entity], dcontent);
        }
    }
}

/// `out = x·f` with `f = 1/√(Σx²/n + ε)`; returns `f`. `n = 1` is L2, `n = len` is RMS.
#[inline(always)]
fn scaled<T: Real>(x: &[T], out: &mut [T], n: T) -> T {
    let factor = (dot(x, x) / n + T::of(NORM_EPS)).sqrt().recip();
    for (out, &x) in out.iter_mut().zip(x) {
        *out = x * factor;
    }
    factor
}

/// The gradient of [`scaled`]: `dx = f·(dout − out·(outᵀdout)/n)`.
#[inline(always)]
fn unscaled<T: Real>(out: &[T], dout: &[T], factor: T, n: T, dx: &mut [T]) {
    let along = dot(out, dout) / n;
    for ((dx, &out), &dout) in dx.iter_mut().zip(out).zip(dout) {
        *dx = factor * (dout - out * along);
    }
}

/// `1/√R`.
fn root_rank<T: Real>(rank: usize) -> T {
    T::of(rank as f64).sqrt().recip()
}
