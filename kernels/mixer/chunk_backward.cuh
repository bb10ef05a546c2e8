// The gradient of one chunk from the state before it, E0, and the gradient of the state after it, dE1.
//
// First `entity_backward`, one block a (chunk, slice of at most 64 columns of the entity):
//
//   r = N (X − γ S E0),  U = β ⊙ r              dU = Bᵀ dY + tail ⊙ D dE1
//   dR = Nᵀ (β ⊙ dU) = dX                       Z = dU − Mᵀ dR,  dβ_t = Z_t·r_t
//   κ_t = tail_t (D dE1)_t·U_t
//   dg_t = −γ_t dR_t·(S E0)_t + γ_t dY_t·(Q E0)_t − κ_t,  and at the chunk's end + Σκ + γ_C ⟨dE1, E0⟩
//
// Then `address_backward`, one block a chunk, with sums over all columns of the entity:
//
//   dM = −dR Uᵀ, dB = dY Uᵀ,  W = dM⊙M + dB⊙B,  dg_t += Σ_i W_ti − Σ_i W_it
//   dP = Γ⊙dM (strictly lower), dP' = Γ⊙dB (lower)
//   dS = −γ ⊙ dR E0ᵀ + dP D     dQ = γ ⊙ dY E0ᵀ + dP' D     dD = tail ⊙ U dE1ᵀ + dPᵀ S + dP'ᵀ Q
//   d(log α)_t = Σ_{t'≥t} dg_t', zero at a document's first token
#pragma once

#include "prepare.cuh"

namespace mixer {

// What entity_backward leaves for address_backward.
template <class T>
struct EntityGradients {
  T *dr, *u;         // [B,H,N,64,D]: the entity's direct gradient, and U
  float *per_token;  // [B,H,N,slices,2,64]: each slice's share of dg and of its block's dβ

  __device__ __forceinline__ float *share(const Sizes &sizes, const Chunk &chunk, int slice) const {
    return per_token + (chunk.idx * sizes.slices() + slice) * 2 * CHUNK;
  }
};

template <class T>
constexpr size_t entity_backward_shared_bytes() {
  return ChunkControls::BYTES + sizeof(float) * TILE + (3 * PARTS<T> + 2) * sizeof(T) * TILE_ELEMENTS<T>;
}

template <class T>
__device__ __forceinline__ void entity_backward(const T *x, const float *controls, const uint8_t *starts, const T *s,
                                                const T *q, const T *d, const Prepared<T> &prepared,
                                                const T *chunk_states, const T *chunk_gradients, const T *dy,
                                                const Sizes &sizes, const EntityGradients<T> &out) {
  const Chunk chunk(sizes, static_cast<int64_t>(blockIdx.x) / sizes.slices());
  const int slice_idx = blockIdx.x % sizes.slices();
  const Slice slice(sizes, slice_idx);
  const int address = sizes.address, columns = slice.columns;

  SharedCursor cursor = {shared_memory()};
  const ChunkControls gates(cursor);
  float *sums = cursor.take<float>(TILE);
  // First the panels of S, Q, D, E0 and dE1, then N, B and after it M, what stands for X in turn, U, and dY.
  const Split<T> n_tile = take_split<T>(cursor), bm_tile = take_split<T>(cursor), x_tile = take_split<T>(cursor);
  T *const u_tile = cursor.take<T>(TILE_ELEMENTS<T>), *const dy_tile = cursor.take<T>(TILE_ELEMENTS<T>);
  T *const tile[5] = {n_tile.high, bm_tile.high, x_tile.high, u_tile, dy_tile};
  load_controls(gates, controls, starts, sizes, chunk);

  // S E0, Q E0, D dE1 and ⟨dE1, E0⟩, summed over panels of 64 address rows.
  Accumulator se, qe, dde;
  se.clear();
  qe.clear();
  dde.clear();
  float inner_products = 0.0f;
  for (int panel = 0; panel < address; panel += TILE) {
    const int inner = min(TILE, address - panel);
    __syncthreads();
    load_tile(tile[0], rows_of(s, chunk, address, panel, inner));
    load_tile(tile[1], rows_of(q, chunk, address, panel, inner));
    load_tile(tile[2], rows_of(d, chunk, address, panel, inner));
    load_tile(tile[3], state_of(chunk_states, sizes, chunk, panel, slice));
    load_tile(tile[4], state_of(chunk_gradients, sizes, chunk, panel, slice));
    finish_loads();
    multiply_add(se, plain(tile[0]), plain(tile[3]), columns, inner);
    multiply_add(qe, plain(tile[1]), plain(tile[3]), columns, inner);
    multiply_add(dde, plain(tile[2]), plain(tile[4]), columns, inner);
    for (int i = threadIdx.x; i < TILE * TILE / 2; i += TILE_THREADS) {
      const int at = i / (TILE / 2) * PITCH<T> + i % (TILE / 2) * 2;
      const float2 state = load_pair(tile[3] + at), gradient = load_pair(tile[4] + at);
      inner_products += state.x * gradient.x + state.y * gradient.y;
    }
  }
  __syncthreads();
  load_tile(x_tile.high, inputs_of(x, sizes, chunk, 2 * address + slice.first, columns));
  load_tile(dy_tile, outputs_of(dy, sizes, chunk, slice.first, columns));
  load_square<T>(n_tile, prepared.n, chunk, 2, slice.is_value);
  load_square<T>(bm_tile, prepared.b, chunk, 1, 0);
  finish_loads();

  float gamma[2], tail[2], beta[2], dg[2] = {0.0f, 0.0f}, kappa[2] = {0.0f, 0.0f}, dbeta[2] = {0.0f, 0.0f};
  load_rows(gamma, prepared.decays.gamma(chunk));
  load_rows(tail, prepared.decays.tail(chunk));
  load_rows(beta, gates.beta(slice.is_value));

  Accumulator r, du, dr;
  se.scale_rows(gamma);
  qe.scale_rows(gamma);
  dde.scale_rows(tail);
  du.load(dy_tile);
  add_row_products(dg, qe, du);

  // r and U. The residual without the chunk's own writes replaces X.
  r.load(x_tile.high);
#pragma unroll
  for (int i = 0; i < Accumulator::LENGTH; ++i) r.at[i] -= se.at[i];
  r.store(x_tile);
  __syncthreads();
  r.clear();
  multiply_add(r, plain(n_tile), plain(x_tile), columns, CHUNK);
  du = r;
  du.scale_rows(beta);
  du.store(u_tile);
  add_row_products(kappa, dde, du);

  du = dde;
  multiply_add(du, transposed(bm_tile), plain(dy_tile), columns, CHUNK);
  dr = du;
  dr.scale_rows(beta);
  __syncthreads();  // x_tile and B are free; M comes while the next product runs
  load_square<T>(bm_tile, prepared.m, chunk, 1, 0);
  dr.store(x_tile);
  __syncthreads();
  dr.clear();
  multiply_add(dr, transposed(n_tile), plain(x_tile), columns, CHUNK);
  float dg_from_residual[2] = {0.0f, 0.0f};
  add_row_products(dg_from_residual, dr, se);

  __syncthreads();  // x_tile is free
  dr.store(x_tile);
  finish_loads();
  dr.clear();
  multiply_add(dr, transposed(bm_tile), plain(x_tile), columns, CHUNK);
#pragma unroll
  for (int i = 0; i < Accumulator::LENGTH; ++i) du.at[i] -= dr.at[i];
  add_row_products(dbeta, du, r);

  const int64_t rows_at = chunk.idx * CHUNK * sizes.entity() + slice.first;
  copy_rows_out(x_tile.high, out.dr + rows_at, sizes.entity(), CHUNK, columns);
  copy_rows_out(u_tile, out.u + rows_at, sizes.entity(), CHUNK, columns);

  // Σκ + γ_C ⟨dE1, E0⟩ belongs to the chunk's last place.
  float kappa_of_lane = lane_idx() % 4 == 0 ? kappa[0] + kappa[1] : 0.0f;
  const float whole = prepared.decays.gamma(chunk)[CHUNK - 1];
  const float at_end = block_sum<TILE_THREADS>(kappa_of_lane + whole * inner_products, sums);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    dg[half] -= dg_from_residual[half] + kappa[half];
    if (Accumulator::row_of_half(half) == CHUNK - 1) dg[half] += at_end;
  }
  store_rows(out.share(sizes, chunk, slice_idx), dg);
  store_rows(out.share(sizes, chunk, slice_idx) + CHUNK, dbeta);
}

template <class T>
constexpr size_t address_backward_shared_bytes() {
  return (2 * PARTS<T> + 5) * sizeof(T) * TILE_ELEMENTS<T>;
}

// Writes the gradients of log α, β_K and β_V from `w` = W and the shares of the slices.
template <class T>
__device__ __forceinline__ void gate_gradients(const float *w, double *dg, const EntityGradients<T> &shares,
                                               const uint8_t *starts, const Sizes &sizes, const Chunk &chunk,
                                               float *dcontrols) {
  const int t = threadIdx.x;
  if (t < CHUNK) {
    double sum = 0.0;
    float dbeta_key = 0.0f, dbeta_value = 0.0f;
    for (int i = 0; i < CHUNK; ++i) sum += static_cast<double>(w[t * PITCH<float> + i]) - w[i * PITCH<float> + t];
    for (int slice = 0; slice < sizes.slices(); ++slice) {
      const float *share = shares.share(sizes, chunk, slice);
      sum += share[t];
      (slice < tiles_of(sizes.key) ? dbeta_key : dbeta_value) += share[CHUNK + t];
    }
    dg[t] = sum;
    if (t < chunk.tokens) {
      dcontrols[control_at(sizes, chunk, t, 1)] = dbeta_key;
      dcontrols[control_at(sizes, chunk, t, 2)] = dbeta_value;
    }
  }
  __syncthreads();
  if (t < chunk.tokens) {
    double sum = 0.0;
    for (int later = CHUNK - 1; later >= t; --later) sum += dg[later];
    const bool is_start = starts != nullptr && starts[chunk.token(sizes, t)] != 0;
    dcontrols[control_at(sizes, chunk, t, 0)] = is_start ? 0.0f : static_cast<float>(sum);
  }
}

// ds, dq, dd [B,H,N,64,S] in f32, and rows 0, 1, 2 of dcontrols [B,T,5,H].
template <class T>
__device__ __forceinline__ void address_backward(const float *controls, const uint8_t *starts, const T *s, const T *q,
                                                 const T *d, const Prepared<T> &prepared, const T *chunk_states,
                                                 const T *chunk_gradients, const T *dy,
                                                 const EntityGradients<T> &entity, const Sizes &sizes, float *ds,
                                                 float *dq, float *dd, float *dcontrols) {
  const Chunk chunk(sizes, static_cast<int64_t>(blockIdx.x));
  const int address = sizes.address, width = sizes.entity();

  SharedCursor cursor = {shared_memory()};
  const Split<T> dp_tile = take_split<T>(cursor), dp_read_tile = take_split<T>(cursor);
  T *tile[5];
  for (int i = 0; i < 5; ++i) tile[i] = cursor.take<T>(TILE_ELEMENTS<T>);
  // Between the two loops over slices, their tiles' memory holds what the gates' gradients need.
  SharedCursor between = {reinterpret_cast<unsigned char *>(tile[0])};
  float *w = between.take<float>(TILE_ELEMENTS<float>);
  const ChunkControls gates(between);
  double *dg = between.take<double>(TILE);
  static_assert(sizeof(float) * TILE_ELEMENTS<float> + ChunkControls::BYTES + sizeof(double) * TILE <=
                    5 * sizeof(T) * TILE_ELEMENTS<T>,
                "what lies between the loops fits");

  Accumulator dm, db, product;
  dm.clear();
  db.clear();
  for (int slice_idx = 0; slice_idx < sizes.slices(); ++slice_idx) {
    const Slice slice(sizes, slice_idx);
    __syncthreads();
    load_tile(tile[0], rows_of(entity.dr, chunk, width, slice.first, slice.columns));
    load_tile(tile[1], outputs_of(dy, sizes, chunk, slice.first, slice.columns));
    load_tile(tile[2], rows_of(entity.u, chunk, width, slice.first, slice.columns));
    finish_loads();
    multiply_add(dm, plain(tile[0]), transposed(tile[2]), TILE, slice.columns);
    multiply_add(db, plain(tile[1]), transposed(tile[2]), TILE, slice.columns);
  }
  load_square<T>(dp_tile, prepared.m, chunk, 1, 0);
  load_square<T>(dp_read_tile, prepared.b, chunk, 1, 0);
  __syncthreads();  // the slices' tiles are free
  load_controls(gates, controls, starts, sizes, chunk);
  finish_loads();

  // M and B, each in the tile that its gradient will take, are zero outside their triangles, and so is W.
  product.load(dp_read_tile);
#pragma unroll
  for (int i = 0; i < Accumulator::LENGTH; ++i) product.at[i] *= db.at[i];
  {
    Accumulator m;
    m.load(dp_tile);
#pragma unroll
    for (int i = 0; i < Accumulator::LENGTH; ++i) product.at[i] = fmaf(-dm.at[i], m.at[i], product.at[i]);
  }
  product.store(w);
#pragma unroll
  for (int i = 0; i < Accumulator::LENGTH; ++i) {
    const int t = Accumulator::row(i), before = Accumulator::column(i);
    const float decay = before <= t ? decay_between(gates.cumulative, t, before) : 0.0f;
    dm.at[i] = before < t ? -dm.at[i] * decay : 0.0f;
    db.at[i] = before <= t ? db.at[i] * decay : 0.0f;
  }
  dm.store(dp_tile);
  db.store(dp_read_tile);
  __syncthreads();
  gate_gradients(w, dg, entity, starts, sizes, chunk, dcontrols);

  float gamma[2], tail[2];
  load_rows(gamma, prepared.decays.gamma(chunk));
  load_rows(tail, prepared.decays.tail(chunk));
  Accumulator &ds_sum = dm, &dq_sum = db, &dd_sum = product;
  for (int panel = 0; panel < address; panel += TILE) {
    const int columns = min(TILE, address - panel);
    ds_sum.clear();
    dq_sum.clear();
    dd_sum.clear();
    for (int slice_idx = 0; slice_idx < sizes.slices(); ++slice_idx) {
      const Slice slice(sizes, slice_idx);
      __syncthreads();
      load_tile(tile[0], rows_of(entity.dr, chunk, width, slice.first, slice.columns));
      load_tile(tile[1], outputs_of(dy, sizes, chunk, slice.first, slice.columns));
      load_tile(tile[2], rows_of(entity.u, chunk, width, slice.first, slice.columns));
      load_tile(tile[3], state_of(chunk_states, sizes, chunk, panel, slice));
      load_tile(tile[4], state_of(chunk_gradients, sizes, chunk, panel, slice));
      finish_loads();
      multiply_add(ds_sum, plain(tile[0]), transposed(tile[3]), columns, slice.columns);
      multiply_add(dq_sum, plain(tile[1]), transposed(tile[3]), columns, slice.columns);
      multiply_add(dd_sum, plain(tile[2]), transposed(tile[4]), columns, slice.columns);
    }
    __syncthreads();
    load_tile(tile[0], rows_of(s, chunk, address, panel, columns));
    load_tile(tile[1], rows_of(q, chunk, address, panel, columns));
    load_tile(tile[2], rows_of(d, chunk, address, panel, columns));
    finish_loads();
    const float minus_gamma[2] = {-gamma[0], -gamma[1]};
    ds_sum.scale_rows(minus_gamma);
    dq_sum.scale_rows(gamma);
    dd_sum.scale_rows(tail);
    multiply_add(ds_sum, plain(dp_tile), plain(tile[2]), columns, CHUNK);
    multiply_add(dq_sum, plain(dp_read_tile), plain(tile[2]), columns, CHUNK);
    multiply_add(dd_sum, transposed(dp_tile), plain(tile[0]), columns, CHUNK);
    multiply_add(dd_sum, transposed(dp_read_tile), plain(tile[1]), columns, CHUNK);
    const int64_t out = chunk.idx * CHUNK * address + panel;
    ds_sum.store(ds + out, address, columns);
    dq_sum.store(dq + out, address, columns);
    dd_sum.store(dd + out, address, columns);
  }
}

}  // namespace mixer
