//! One chunk of the recurrence at once, forward and backward (the WY form).
//!
//! With `Ω = [β_K…, β_V…]` over the entity's columns, both blocks are one recurrence whose transition
//! differs only in the row scaling of `U`; hence one triangular system for all `D` columns:
//!
//! ```text
//! Γ_ti = e^{g_t − g_i} (i ≤ t),  γ_t = e^{g_t},  tail_t = γ_c/γ_t      g: running sum of log α
//! M = Γ ⊙ S Dᵀ, strictly lower          B = Γ ⊙ Q Dᵀ, lower with diagonal
//! r = (X − γ S E0) − M U,  U = Ω ⊙ r    solved row by row
//! Y = γ Q E0 + B U                      E1 = γ_c E0 + Dᵀ(tail U)
//! ```
//!
//! `S` and `Q` are stacked (`[2c,S]`), so that what treats them alike is one call. Products with a
//! triangle leave out the blocks that are zero. Decays are formed from differences of `g` kept in f64 and masked by index, so `log α` may be
//! 0, −60 or a document start (−1e3) without loss of digits.

use super::geometry::Geometry;
use super::{Controls, Sizes, solve, triangle};
use crate::vector::{Mat, MatMut, Real, dot, exp, product, transpose, vectorize};

/// Buffers of one chunk; what forward leaves in them, backward reads.
pub(super) struct Chunk<T> {
    /// `[c]`: γ and tail.
    gamma: Vec<T>,
    tail: Vec<T>,
    /// `[c,c]`: Γ on and below the diagonal; above it, of no meaning.
    decay: Vec<T>,
    /// `[2c,c]`: `M` and below it `B`; outside their triangles, zeros in the diagonal's blocks and unset
    /// beyond them.
    mb: Vec<T>,
    /// `[2c,D]`: `S E0` and below it `Q E0`.
    read: Vec<T>,
    /// `[c,D]`: residuals `r` and updates `U`.
    r: Vec<T>,
    u: Vec<T>,
    /// `[c,D]`: `tail U`.
    tail_u: Vec<T>,
    /// `[c,D]`: outputs.
    pub(super) y: Vec<T>,
    /// A transposed operand, while its product runs.
    transposed: Vec<T>,
    backward: Gradients<T>,
}

/// Gradients of the intermediates of one chunk.
struct Gradients<T> {
    /// `[c,D]`: of `U`, then `Z` (the transposed solve).
    dz: Vec<T>,
    /// `[2c,D]`: `−dR` and below it `dY`; then both times γ.
    drdy: Vec<T>,
    /// `[c,D]`: `D dE1`, before and after the factor tail.
    from_state: Vec<T>,
    /// `[2c,c]`: of `M` and `B`, as they are stored.
    dmb: Vec<T>,
    /// `[c]`, f64: of `g`.
    dg: Vec<f64>,
    /// `[2c,S]`, `[c,S]`, `[c,D]`: of `S, Q`, of `D`, of `X`.
    dsq: Vec<T>,
    dd: Vec<T>,
    de: Vec<T>,
}

/// Gradients that leave the chunk for the geometry.
pub(super) struct ChunkGradients<'a, T> {
    pub(super) dsq: &'a mut [T],
    pub(super) dd: &'a mut [T],
    pub(super) de: &'a [T],
}

impl<T: Real> Chunk<T> {
    pub(super) fn new(sizes: &Sizes) -> Self {
        let zeros = |n: usize| vec![T::zero(); sizes.chunk * n];
        let (chunk, address, entity) = (sizes.chunk, sizes.address, sizes.entity());
        Self {
            gamma: zeros(1),
            tail: zeros(1),
            decay: zeros(chunk),
            mb: zeros(2 * chunk),
            read: zeros(2 * entity),
            r: zeros(entity),
            u: zeros(entity),
            tail_u: zeros(entity),
            y: zeros(entity),
            transposed: vec![T::zero(); (chunk * address).max(chunk * entity).max(address * entity)],
            backward: Gradients {
                dz: zeros(entity),
                drdy: zeros(2 * entity),
                from_state: zeros(entity),
                dmb: zeros(2 * chunk),
                dg: vec![0.0; chunk],
                dsq: zeros(2 * address),
                dd: zeros(address),
                de: zeros(entity),
            },
        }
    }

    /// Reads and rewrites `state [S,D]`, leaving the outputs in `y`.
    pub(super) fn forward(
        &mut self,
        sizes: &Sizes,
        geometry: &Geometry<T>,
        controls: &Controls<T>,
        state: &mut [T],
    ) {
        self.residuals_and_updates(sizes, geometry, controls, state);
        let (c, entity) = (controls.tokens, sizes.entity());
        let lower = Mat::dense(&self.mb[c * c..], c, c);
        let y = MatMut::dense(&mut self.y, c, entity);
        triangle::lower_times(y, lower, Mat::dense(&self.u, c, entity));
        let d = Mat::dense(&geometry.d, c, sizes.address);
        let state = MatMut::dense(state, sizes.address, entity);
        product(state, self.gamma[c - 1], d.t(), Mat::dense(&self.tail_u, c, entity));
    }

    /// Everything up to `U`, with `y = γ Q E0` and `tail U` ready for the two products that follow.
    fn residuals_and_updates(
        &mut self,
        sizes: &Sizes,
        geometry: &Geometry<T>,
        controls: &Controls<T>,
        state: &[T],
    ) {
        let (c, address, entity) = (controls.tokens, sizes.address, sizes.entity());
        let sq = Mat::dense(&geometry.sq, 2 * c, address);
        let d = transposed(&geometry.d, c, address, &mut self.transposed);
        for half in [0..c, c..2 * c] {
            let mut mb = MatMut::dense(&mut self.mb, 2 * c, c);
            triangle::lower_of_product(mb.block(half.clone(), 0..c), sq.block(half, 0..address), d);
        }
        let state = Mat::dense(state, address, entity);
        product(MatMut::dense(&mut self.read, 2 * c, entity), T::zero(), sq, state);
        vectorize!(self.apply_decay(controls));
        vectorize!(self.start_residuals(sizes, geometry, c));
        vectorize!(solve::forward(c, sizes, controls, &self.mb, &mut self.r, &mut self.u));
        vectorize!(rows_times(&self.u, &self.tail, c, entity, &mut self.tail_u));
    }

    /// Fills γ, tail and Γ, and turns `S Dᵀ, Q Dᵀ` into `M, B`.
    #[inline(always)]
    fn apply_decay(&mut self, controls: &Controls<T>) {
        let c = controls.tokens;
        let g = &controls.cumulative;
        for t in 0..c {
            self.gamma[t] = exp(T::of(g[t]));
            self.tail[t] = exp(T::of(g[c - 1] - g[t]));
        }
        let (m, b) = self.mb[..2 * c * c].split_at_mut(c * c);
        for (t, (m, b)) in m.chunks_exact_mut(c).zip(b.chunks_exact_mut(c)).enumerate() {
            let width = triangle::row_width(t, c);
            let decay = &mut self.decay[t * c..][..width];
            let (m, b) = (&mut m[..width], &mut b[..width]);
            for (decay, &g_i) in decay.iter_mut().zip(g.iter()) {
                // In the diagonal's block, tokens after `t` are here only to fill vectors: their gap would
                // overflow. Written so that a NaN stays one.
                let gap = g[t] - g_i;
                *decay = exp(T::of(if gap > 0.0 { 0.0 } else { gap }));
            }
            for ((m, b), &decay) in m.iter_mut().zip(b.iter_mut()).zip(decay.iter()) {
                *m = *m * decay;
                *b = *b * decay;
            }
            m[t..].fill(T::zero());
            b[t + 1..].fill(T::zero());
        }
    }

    /// `r ← X − γ S E0` (before the solve) and `y ← γ Q E0`.
    #[inline(always)]
    fn start_residuals(&mut self, sizes: &Sizes, geometry: &Geometry<T>, c: usize) {
        let entity = sizes.entity();
        let (from_s, from_q) = self.read[..2 * c * entity].split_at(c * entity);
        for t in 0..c {
            let (gamma, row) = (self.gamma[t], t * entity..(t + 1) * entity);
            let r = self.r[row.clone()].iter_mut().zip(&geometry.e[row.clone()]).zip(&from_s[row.clone()]);
            for ((r, &x), &read) in r {
                *r = x - gamma * read;
            }
            for (y, &read) in self.y[row.clone()].iter_mut().zip(&from_q[row]) {
                *y = gamma * read;
            }
        }
    }

    /// Gradients of one chunk whose initial state was `state`. `dy(t)` is the output's gradient;
    /// `dstate [S,D]` comes in as the gradient of the state after the chunk and leaves as that of the
    /// state before it. Fills `dcontrols`' log α and β, and returns what goes on to the geometry.
    #[expect(clippy::too_many_arguments, reason = "one argument a gradient")]
    pub(super) fn backward<'a>(
        &mut self,
        sizes: &Sizes,
        geometry: &Geometry<T>,
        controls: &Controls<T>,
        state: &[T],
        dy: impl Fn(usize) -> &'a [T],
        dstate: &mut [T],
        dcontrols: &mut Controls<T>,
    ) -> ChunkGradients<'_, T> {
        let (c, address, entity) = (controls.tokens, sizes.address, sizes.entity());
        self.residuals_and_updates(sizes, geometry, controls, state);
        let zero = T::zero();
        let d = Mat::dense(&geometry.d, c, address);
        let sq = Mat::dense(&geometry.sq, 2 * c, address);
        let grads = &mut self.backward;

        // dU = Bᵀ dY + tail (D dE1), and the decay's share through the tails.
        let (dr, dy_rows) = grads.drdy[..2 * c * entity].split_at_mut(c * entity);
        for (t, row) in dy_rows.chunks_exact_mut(entity).enumerate() {
            row.copy_from_slice(dy(t));
        }
        let from_state = MatMut::dense(&mut grads.from_state, c, entity);
        product(from_state, zero, d, Mat::dense(dstate, address, entity));
        let state_decay = vectorize!({
            rows_times(&grads.from_state, &self.tail, c, entity, &mut grads.dz);
            for (t, dg) in grads.dg[..c].iter_mut().enumerate() {
                let row = t * entity..(t + 1) * entity;
                *dg = -dot(&grads.dz[row.clone()], &self.u[row]).wide();
            }
            let through_tails: f64 = -grads.dg[..c].iter().sum::<f64>();
            self.gamma[c - 1].wide().mul_add(dot(dstate, state).wide(), through_tails)
        });
        grads.dg[c - 1] += state_decay;
        let lower = Mat::dense(&self.mb[c * c..], c, c);
        let dy_matrix = Mat::dense(dy_rows, c, entity);
        triangle::upper_times(MatMut::dense(&mut grads.dz, c, entity), lower.t(), dy_matrix);

        // Z by the transposed solve; dR = Ω Z is the entity's direct gradient.
        vectorize!({
            solve::backward(c, sizes, controls, &self.mb, &mut grads.dz, &mut grads.de);
            beta_gradients(c, sizes, &grads.dz, &self.r, dcontrols);
            for (dr, &de) in dr.iter_mut().zip(&grads.de) {
                *dr = -de;
            }
        });

        // dM = −dR Uᵀ and dB = dY Uᵀ, then their share in g and in S Dᵀ, Q Dᵀ.
        let halves = || [0..c, c..2 * c];
        let drdy = Mat::dense(&grads.drdy, 2 * c, entity);
        let u = transposed(&self.u, c, entity, &mut self.transposed);
        for half in halves() {
            let mut dmb = MatMut::dense(&mut grads.dmb, 2 * c, c);
            triangle::lower_of_product(dmb.block(half.clone(), 0..c), drdy.block(half, 0..entity), u);
        }
        vectorize!({
            decay_gradients(c, &self.mb, &self.decay, &mut grads.dmb, &mut grads.dg);
            scale_by_gamma(c, entity, &self.gamma, &self.read, &mut grads.drdy, &mut grads.dg);
        });

        // dS, dQ, dD and dE0.
        let dmb = Mat::dense(&grads.dmb, 2 * c, c);
        let drdy = Mat::dense(&grads.drdy, 2 * c, entity);
        let state = transposed(state, address, entity, &mut self.transposed);
        product(MatMut::dense(&mut grads.dsq, 2 * c, address), zero, drdy, state);
        let tail_u = Mat::dense(&self.tail_u, c, entity);
        let dstate_t = transposed(dstate, address, entity, &mut self.transposed);
        product(MatMut::dense(&mut grads.dd, c, address), zero, tail_u, dstate_t);
        for half in halves() {
            let dmb = dmb.block(half.clone(), 0..c);
            let mut dsq = MatMut::dense(&mut grads.dsq, 2 * c, address);
            triangle::lower_times(dsq.block(half.clone(), 0..address), dmb, d);
            let dd = MatMut::dense(&mut grads.dd, c, address);
            triangle::upper_times(dd, dmb.t(), sq.block(half, 0..address));
        }
        product(MatMut::dense(dstate, address, entity), self.gamma[c - 1], sq.t(), drdy);

        // d(log α)_t = Σ_{t' ≥ t} dg_t'.
        let mut sum = 0.0;
        for t in (0..c).rev() {
            sum += grads.dg[t];
            dcontrols.cumulative[t] = sum;
        }
        ChunkGradients {
            dsq: &mut grads.dsq[..2 * c * address],
            dd: &mut grads.dd[..c * address],
            de: &grads.de[..c * entity],
        }
    }
}

/// The transpose of a dense `[rows, columns]` matrix, in `scratch`: right operands of products have
/// contiguous rows.
fn transposed<'a, T: Real>(matrix: &[T], rows: usize, columns: usize, scratch: &'a mut [T]) -> Mat<'a, T> {
    vectorize!(transpose(matrix, rows, columns, scratch));
    Mat::dense(scratch, columns, rows)
}

/// `out_t = factor_t · rows_t`.
#[inline(always)]
fn rows_times<T: Real>(rows: &[T], factors: &[T], c: usize, width: usize, out: &mut [T]) {
    let rows = rows.chunks_exact(width).zip(out.chunks_exact_mut(width));
    for ((row, out), &factor) in rows.zip(&factors[..c]) {
        for (out, &x) in out.iter_mut().zip(row) {
            *out = factor * x;
        }
    }
}

/// `dβ_t = Z_t · r_t` on each block.
#[inline(always)]
fn beta_gradients<T: Real>(c: usize, sizes: &Sizes, z: &[T], r: &[T], dcontrols: &mut Controls<T>) {
    let entity = sizes.entity();
    for t in 0..c {
        let (key, value) = (t * entity..t * entity + sizes.key, t * entity + sizes.key..(t + 1) * entity);
        dcontrols.beta_key[t] = dot(&z[key.clone()], &r[key]);
        dcontrols.beta_value[t] = dot(&z[value.clone()], &r[value]);
    }
}

/// Adds `Σ_i W_ti − Σ_i W_it` to `dg_t`, `W = dM⊙M + dB⊙B`, and turns `dM, dB` into the gradients of
/// `S Dᵀ, Q Dᵀ`: times Γ, zero above the diagonal in its blocks.
#[inline(always)]
fn decay_gradients<T: Real>(c: usize, mb: &[T], decay: &[T], dmb: &mut [T], dg: &mut [f64]) {
    let (m, b) = mb[..2 * c * c].split_at(c * c);
    let (dm, db) = dmb[..2 * c * c].split_at_mut(c * c);
    for t in 0..c {
        let row = t * c..t * c + t + 1;
        let triangle = dm[row.clone()].iter_mut().zip(&mut db[row.clone()]);
        let known = m[row.clone()].iter().zip(&b[row.clone()]).zip(&decay[row.clone()]);
        let width = triangle::row_width(t, c);
        let mut row_sum = 0.0;
        for (((dm, db), ((&m, &b), &decay)), dg) in triangle.zip(known).zip(dg.iter_mut()) {
            let w = dm.mul_add(m, *db * b).wide();
            row_sum += w;
            *dg -= w;
            *dm = *dm * decay;
            *db = *db * decay;
        }
        dg[t] += row_sum;
        dm[t * c + t..t * c + width].fill(T::zero());
        db[t * c + t + 1..t * c + width].fill(T::zero());
    }
}

/// Turns `[−dR; dY]` into `[−γ dR; γ dY]` and adds their products with `S E0, Q E0` to `dg`.
#[inline(always)]
fn scale_by_gamma<T: Real>(c: usize, width: usize, gamma: &[T], read: &[T], drdy: &mut [T], dg: &mut [f64]) {
    for half in [0, c] {
        for t in 0..c {
            let row = (half + t) * width..(half + t + 1) * width;
            drdy[row.clone()].iter_mut().for_each(|x| *x = *x * gamma[t]);
            dg[t] += dot(&drdy[row.clone()], &read[row]).wide();
        }
    }
}
