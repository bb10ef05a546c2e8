// What a chunk contributes whatever the state before it is; one block a chunk, all chunks at once.
//
//   g_t = Σ_{i≤t} log α_i,  Γ_ti = e^{g_t − g_i} (i ≤ t),  γ_t = e^{g_t},  tail_t = e^{g_C − g_t}
//   M = Γ ⊙ S Dᵀ, strictly lower        B = Γ ⊙ Q Dᵀ, lower with the diagonal
//   N_β = (I + M diag(β))⁻¹             for β = β_K and β = β_V
//   W_β = β ⊙ N_β γS                    U0 = β ⊙ N_β X, each block of the entity with its β
//
// so that a chunk's residuals are r = N (X − γ S E0) and its updates U = β ⊙ r = U0 − W E0.
// g is summed in f64, and Γ is made of differences of it, masked by index: log α may be 0, −60 or a
// document's start. The inverse is made in f32 by forward substitution, one thread a column; powers of M
// would lose all digits when addresses repeat and β → 1.
#pragma once

#include "sizes.cuh"

namespace mixer {

// What prepare writes; all [B,H,N,…].
template <class T>
struct Prepared {
  T *w;   // [2,64,S]: W_K, W_V
  T *u0;  // [PARTS,64,D]; may be null
  T *b;   // [PARTS,64,64]
  T *m;   // [PARTS,64,64]; null unless backward will run
  T *n;   // [2,PARTS,64,64]: N_K, N_V; null unless backward will run
  Decays decays;
};

// 64 columns of W_K or W_V.
template <class T>
__device__ __forceinline__ Matrix<const T> w_panel(const Prepared<T> &prepared, const Sizes &sizes, const Chunk &chunk,
                                                   bool is_value, int panel) {
  const int address = sizes.address, column = panel * TILE;
  return {prepared.w + (chunk.idx * 2 + is_value) * CHUNK * address + column, address, CHUNK,
          min(TILE, address - column)};
}

// Controls of a chunk's tokens in shared memory. A token past the last one decays nothing and writes nothing.
struct ChunkControls {
  double *cumulative;            // [64]: g
  float *beta_key, *beta_value;  // [64]

  static constexpr size_t BYTES = TILE * (sizeof(double) + 2 * sizeof(float));
  __device__ __forceinline__ explicit ChunkControls(SharedCursor &shared) {
    cumulative = shared.take<double>(TILE);
    beta_key = shared.take<float>(TILE);
    beta_value = shared.take<float>(TILE);
  }
  __device__ __forceinline__ const float *beta(bool is_value) const { return is_value ? beta_value : beta_key; }
};

// The log decay of one token, as the recurrence uses it.
__device__ __forceinline__ double log_decay(const float *controls, const uint8_t *starts, const Sizes &sizes,
                                            const Chunk &chunk, int t) {
  if (t >= chunk.tokens) return 0.0;
  if (starts != nullptr && starts[chunk.token(sizes, t)] != 0) return LOG_ALPHA_FLOOR;
  const double log_alpha = controls[control_at(sizes, chunk, t, 0)];
  return log_alpha < LOG_ALPHA_FLOOR ? LOG_ALPHA_FLOOR : log_alpha;  // a NaN stays one
}

// Fills the controls: the first warp sums the decays (two tokens a lane), the second loads the strengths.
// A barrier must follow.
__device__ __forceinline__ void load_controls(const ChunkControls &out, const float *controls, const uint8_t *starts,
                                              const Sizes &sizes, const Chunk &chunk) {
  const int lane = lane_idx(), t = 2 * lane;
  if (warp_idx() == 0) {
    const double first = log_decay(controls, starts, sizes, chunk, t);
    const double pair = first + log_decay(controls, starts, sizes, chunk, t + 1);
    double sum = pair;
    for (int distance = 1; distance < LANES; distance *= 2) {
      const double before = __shfl_up_sync(ALL_LANES, sum, distance);
      if (lane >= distance) sum += before;
    }
    out.cumulative[t] = sum - pair + first;
    out.cumulative[t + 1] = sum;
  } else if (warp_idx() == 1) {
    for (int i = lane; i < CHUNK; i += LANES) {
      const bool inside = i < chunk.tokens;
      out.beta_key[i] = inside ? controls[control_at(sizes, chunk, i, 1)] : 0.0f;
      out.beta_value[i] = inside ? controls[control_at(sizes, chunk, i, 2)] : 0.0f;
    }
  }
}

// Γ_ti for i ≤ t.
__device__ __forceinline__ float decay_between(const double *cumulative, int t, int i) {
  return expf(static_cast<float>(cumulative[t] - cumulative[i]));
}

// Column `column` of (I + M diag(β))⁻¹ by forward substitution, in registers:
// n_t = [t = column] − Σ_{i<t} M_ti β_i n_i.
template <class T>
__device__ __forceinline__ void invert_column(const float *m, const float *beta, int column, Split<T> n) {
  float weighted[TILE];  // β_i n_i of the rows done
#pragma unroll
  for (int t = 0; t < TILE; ++t) {
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
    for (int i = 0; i < t; ++i) sums[i % 4] = fmaf(m[t * PITCH<float> + i], weighted[i], sums[i % 4]);
    const float value = (t == column ? 1.0f : 0.0f) - ((sums[0] + sums[1]) + (sums[2] + sums[3]));
    weighted[t] = beta[t] * value;
    n.high[t * PITCH<T> + column] = from_float<T>(value);
    if (PARTS<T> == 2) n.low[t * PITCH<T> + column] = from_float<T>(value - to_float(from_float<T>(value)));
  }
}

template <class T>
constexpr size_t prepare_shared_bytes() {
  return ChunkControls::BYTES + sizeof(float) * TILE_ELEMENTS<float> +
         (3 * PARTS<T> + 1) * sizeof(T) * TILE_ELEMENTS<T>;
}

template <class T>
__device__ __forceinline__ void prepare(const T *x, const float *controls, const uint8_t *starts, const T *s,
                                        const T *q, const T *d, const Sizes &sizes, const Prepared<T> &out) {
  const Chunk chunk(sizes, static_cast<int64_t>(blockIdx.x));
  SharedCursor cursor = {shared_memory()};
  const ChunkControls gates(cursor);
  // Memory is used twice: the low part of γS lies where M was before the inverse, D where N_V will be after it.
  float *m_f32 = cursor.take<float>(TILE_ELEMENTS<float>);
  const Split<T> s_tile = {cursor.take<T>(TILE_ELEMENTS<T>), reinterpret_cast<T *>(m_f32), PITCH<T>};
  const Split<T> out_tile = take_split<T>(cursor);
  const Split<T> n_tiles[2] = {take_split<T>(cursor), take_split<T>(cursor)};
  T *const q_tile = out_tile.high, *const d_tile = n_tiles[1].high;
  const int address = sizes.address;

  load_controls(gates, controls, starts, sizes, chunk);

  // S Dᵀ and Q Dᵀ, summed over panels of 64 address columns.
  Accumulator sd, qd;
  sd.clear();
  qd.clear();
  for (int panel = 0; panel < address; panel += TILE) {
    const int columns = min(TILE, address - panel);
    __syncthreads();
    load_tile(s_tile.high, rows_of(s, chunk, address, panel, columns));
    load_tile(q_tile, rows_of(q, chunk, address, panel, columns));
    load_tile(d_tile, rows_of(d, chunk, address, panel, columns));
    finish_loads();
    multiply_add(sd, plain(s_tile.high), transposed(d_tile), TILE, columns);
    multiply_add(qd, plain(q_tile), transposed(d_tile), TILE, columns);
  }

  // M in f32 for the inverse, B for the scan; zero outside their triangles.
#pragma unroll
  for (int i = 0; i < Accumulator::LENGTH; ++i) {
    const int t = Accumulator::row(i), before = Accumulator::column(i);
    const float decay = before <= t ? decay_between(gates.cumulative, t, before) : 0.0f;
    sd.at[i] = before < t ? sd.at[i] * decay : 0.0f;
    qd.at[i] = before <= t ? qd.at[i] * decay : 0.0f;
  }
  sd.store(m_f32);
  __syncthreads();  // q_tile and d_tile are free
  qd.store(out_tile);
  copy_square_out(out_tile, square_at(out.b, chunk, 1, 0));
  if (out.m != nullptr) {
    sd.store(out_tile);
    copy_square_out(out_tile, square_at(out.m, chunk, 1, 0));
  }

  // Both inverses, a column a thread.
  const bool for_value = threadIdx.x >= TILE;
  invert_column<T>(m_f32, gates.beta(for_value), threadIdx.x % TILE, for_value ? n_tiles[1] : n_tiles[0]);
  if (threadIdx.x < CHUNK) {
    const double g = gates.cumulative[threadIdx.x];
    out.decays.gamma(chunk)[threadIdx.x] = expf(static_cast<float>(g));
    out.decays.tail(chunk)[threadIdx.x] = expf(static_cast<float>(gates.cumulative[CHUNK - 1] - g));
  }
  __syncthreads();
  if (out.n != nullptr) {
#pragma unroll
    for (int block = 0; block < 2; ++block) copy_square_out(n_tiles[block], square_at(out.n, chunk, 2, block));
  }

  float betas[2][2];
  load_rows(betas[0], gates.beta_key);
  load_rows(betas[1], gates.beta_value);
  Accumulator product;

  // W_β = β ⊙ N_β γS; the last panel of S is still in its tile.
  const int last_panel = (address - 1) / TILE * TILE;
  for (int panel = last_panel; panel >= 0; panel -= TILE) {
    const int columns = min(TILE, address - panel);
    if (panel != last_panel) {
      __syncthreads();
      load_tile(s_tile.high, rows_of(s, chunk, address, panel, columns));
      finish_loads();
    }
    float gammas[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      gammas[half] = expf(static_cast<float>(gates.cumulative[Accumulator::row_of_half(half)]));
    product.load(s_tile.high);
    product.scale_rows(gammas);
    product.store(s_tile);
    __syncthreads();
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      product.clear();
      multiply_add(product, plain(n_tiles[block]), plain(s_tile), columns, CHUNK);
      product.scale_rows(betas[block]);
      product.store(q_tile);
      copy_rows_out(q_tile, out.w + (chunk.idx * 2 + block) * CHUNK * address + panel, address, CHUNK, columns);
    }
  }

  // U0 = β ⊙ N_β X, slice by slice of the entity.
  if (out.u0 == nullptr) return;
  for (int slice_idx = 0; slice_idx < sizes.slices(); ++slice_idx) {
    const Slice slice(sizes, slice_idx);
    __syncthreads();
    load_tile(s_tile.high, inputs_of(x, sizes, chunk, 2 * address + slice.first, slice.columns));
    finish_loads();
    const float beta[2] = {slice.is_value ? betas[1][0] : betas[0][0], slice.is_value ? betas[1][1] : betas[0][1]};
    product.clear();
    multiply_add(product, plain(slice.is_value ? n_tiles[1] : n_tiles[0]), plain(s_tile.high), slice.columns, CHUNK);
    product.scale_rows(beta);
    product.store(out_tile);
    T *u0 = out.u0 + chunk.idx * PARTS<T> * CHUNK * sizes.entity() + slice.first;
    copy_rows_out(out_tile.high, u0, sizes.entity(), CHUNK, slice.columns);
    if (PARTS<T> == 2) copy_rows_out(out_tile.low, u0 + CHUNK * sizes.entity(), sizes.entity(), CHUNK, slice.columns);
  }
}

}  // namespace mixer
