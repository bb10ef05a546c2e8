// From what a head reads to its addresses, forward and backward; one block a chunk.
//
//   s = s_raw/√(Σ s_raw² + ε)                               source address; q0 likewise with query_norm
//   z = (A_K k̂) ⊙ (A_V v̂),  c = C z/√R,  b = c/√(1+‖c‖²)    proposal, inside the unit ball
//   τ = b − (sᵀb)s,  d = s + ρτ                             transport; sᵀd = 1
//   a = d/‖d‖,  q = q0 + λ(1 − q0ᵀa)a                       recall correction; a = 0 where ‖d‖ = 0
//
// k̂, v̂ are the entity's blocks over their RMS. The three products with A_K, A_V and C are tile products;
// everything else is done row by row, a warp to a row, in f32.
#pragma once

#include "sizes.cuh"

namespace mixer {

// Pairs of neighbouring columns that a lane holds of a row of at most 256.
constexpr int PAIRS = MOST_WIDTH / (2 * LANES);

// A row spread over a warp: lane l holds columns 2l + 64j and 2l + 64j + 1.
struct WarpRow {
  float2 at[PAIRS];

  template <class T>
  __device__ __forceinline__ void load(const T *from, int width) {
#pragma unroll
    for (int j = 0; j < PAIRS; ++j) {
      const int column = 2 * lane_idx() + 2 * LANES * j;
      at[j] = column < width ? load_pair(from + column) : make_float2(0.0f, 0.0f);
    }
  }
  template <class T>
  __device__ __forceinline__ void store(T *to, int width) const {
#pragma unroll
    for (int j = 0; j < PAIRS; ++j) {
      const int column = 2 * lane_idx() + 2 * LANES * j;
      if (column < width) store_pair(to + column, at[j].x, at[j].y);
    }
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int j = 0; j < PAIRS; ++j) at[j] = make_float2(0.0f, 0.0f);
  }
  __device__ __forceinline__ void scale(float factor) {
#pragma unroll
    for (int j = 0; j < PAIRS; ++j) at[j] = make_float2(at[j].x * factor, at[j].y * factor);
  }
};

// x ← x + f·y
__device__ __forceinline__ void add_scaled(WarpRow &x, float factor, const WarpRow &y) {
#pragma unroll
  for (int j = 0; j < PAIRS; ++j) {
    x.at[j].x = fmaf(factor, y.at[j].x, x.at[j].x);
    x.at[j].y = fmaf(factor, y.at[j].y, x.at[j].y);
  }
}

__device__ __forceinline__ float dot(const WarpRow &x, const WarpRow &y) {
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < PAIRS; ++j) sum += x.at[j].x * y.at[j].x + x.at[j].y * y.at[j].y;
  return warp_sum(sum);
}

// x ← x·f with f = 1/√(Σx²/n + ε); returns f. n = 1 is L2, n = the width is RMS.
__device__ __forceinline__ float normalize(WarpRow &x, float n) {
  const float factor = 1.0f / sqrtf(dot(x, x) / n + NORM_EPS);
  x.scale(factor);
  return factor;
}

// The gradient of `normalize` from that of its result: f·(dout − out·(outᵀdout)/n).
__device__ __forceinline__ void normalize_backward(const WarpRow &out, WarpRow &dout, float factor, float n) {
  add_scaled(dout, -dot(out, dout) / n, out);
  dout.scale(factor);
}

// The factors of one token's transport and recall.
struct Scales {
  float soft;     // 1/√(1+‖c‖²)
  float along;    // sᵀb
  float anchor;   // 1/‖d‖; 0 where ‖d‖ = 0, which makes a and all its gradients 0
  float overlap;  // q0ᵀa

  __device__ __forceinline__ float norm() const { return anchor == 0.0f ? 0.0f : 1.0f / anchor; }
};

// From c (in `b`), s and q0 to b, d and q.
__device__ __forceinline__ Scales transport(const WarpRow &s, WarpRow &b, const WarpRow &query, float rho, float lambda,
                                            WarpRow &d, WarpRow &q) {
  Scales scales;
  scales.soft = 1.0f / sqrtf(1.0f + dot(b, b));
  b.scale(scales.soft);
  scales.along = dot(s, b);
  d = s;
  add_scaled(d, rho, b);
  add_scaled(d, -rho * scales.along, s);
  const float norm = sqrtf(dot(d, d));
  scales.anchor = norm == 0.0f ? 0.0f : 1.0f / norm;
  scales.overlap = dot(query, d) * scales.anchor;
  q = query;
  add_scaled(q, lambda * (1.0f - scales.overlap) * scales.anchor, d);
  return scales;
}

// A_K [H,R,K], A_V [H,R,V], C [H,S,R] in f32.
struct Transport {
  const float *a_key, *a_value, *c;
};

// Rows and columns of an f32 matrix times `factor` as a tile, zeros around it.
template <class T>
__device__ __forceinline__ void load_weights(Split<T> tile, const float *from, int pitch, int rows, int columns,
                                             float factor) {
  for (int i = threadIdx.x; i < TILE * TILE / 2; i += TILE_THREADS) {
    const int row = i / (TILE / 2), column = i % (TILE / 2) * 2;
    auto element = [&](int at) { return row < rows && at < columns ? from[row * pitch + at] * factor : 0.0f; };
    store_split_pair(tile, row * PITCH<T> + column, element(column), element(column + 1));
  }
}

// Shared memory of the proposal.
template <class T>
struct Proposal {
  float *c;                        // [64, S+4]: c of each token
  Split<T> z, unit, weight;        // z, a panel of k̂ or v̂, a panel of a weight
  float *key_scale, *value_scale;  // [64]: 1/RMS

  static __host__ __device__ constexpr int c_pitch(int address) { return address + 4; }
  static constexpr size_t bytes(int address) {
    return sizeof(float) * TILE * (c_pitch(address) + 2) + 3 * PARTS<T> * sizeof(T) * TILE_ELEMENTS<T>;
  }
  __device__ __forceinline__ Proposal(SharedCursor &shared, int address) {
    c = shared.take<float>(TILE * c_pitch(address));
    z = take_split<T>(shared);
    unit = take_split<T>(shared);
    weight = take_split<T>(shared);
    key_scale = shared.take<float>(TILE);
    value_scale = shared.take<float>(TILE);
  }
};

// A panel of k̂ or v̂ (`scale` is 1/RMS), columns `first`… of the entity, by the warp that owns the rows.
template <class T>
__device__ __forceinline__ void load_unit_panel(Split<T> tile, const T *x, const Sizes &sizes, const Chunk &chunk,
                                                const float *scale, int first, int columns) {
  const Matrix<const T> from = inputs_of(x, sizes, chunk, 2 * sizes.address + first, columns);
  for (int row = warp_idx() * WARP_ROWS; row < (warp_idx() + 1) * WARP_ROWS; ++row) {
    const int column = 2 * lane_idx();
    const bool inside = row < from.rows && column < from.columns;
    const float2 pair = inside ? load_pair(from.data + row * from.pitch + column) : make_float2(0.0f, 0.0f);
    store_split_pair(tile, row * PITCH<T> + column, pair.x * scale[row], pair.y * scale[row]);
  }
}

// A x̂ for one block of the entity: sums over panels of 64 columns.
template <class T>
__device__ __forceinline__ void project_block(Accumulator &sum, const Proposal<T> &shared, const T *x,
                                              const Sizes &sizes, const Chunk &chunk, const float *weight,
                                              const float *scale, int first, int width) {
  sum.clear();
  for (int panel = 0; panel < width; panel += TILE) {
    const int columns = min(TILE, width - panel);
    __syncthreads();
    load_unit_panel(shared.unit, x, sizes, chunk, scale, first + panel, columns);
    load_weights(shared.weight, weight + panel, width, sizes.rank, columns, 1.0f);
    __syncthreads();
    multiply_add(sum, plain(shared.unit), transposed(shared.weight), sizes.rank, columns);
  }
}

// Fills 1/RMS of k and v of the chunk's tokens; a token past the end has 0.
template <class T>
__device__ __forceinline__ void entity_scales(const Proposal<T> &shared, const T *x, const Sizes &sizes,
                                              const Chunk &chunk) {
  for (int row = warp_idx() * WARP_ROWS; row < (warp_idx() + 1) * WARP_ROWS; ++row) {
    float key_scale = 0.0f, value_scale = 0.0f;
    if (row < chunk.tokens) {
      const Matrix<const T> entity = inputs_of(x, sizes, chunk, 2 * sizes.address, sizes.entity());
      WarpRow part;
      part.load(entity.data + row * entity.pitch, sizes.key);
      key_scale = normalize(part, static_cast<float>(sizes.key));
      part.load(entity.data + row * entity.pitch + sizes.key, sizes.value);
      value_scale = normalize(part, static_cast<float>(sizes.value));
    }
    if (lane_idx() == 0) {
      shared.key_scale[row] = key_scale;
      shared.value_scale[row] = value_scale;
    }
  }
  __syncwarp();
}

// z_K, z_V in registers, z = z_K ⊙ z_V as a tile, c in f32. Ends with each warp's rows of c visible to it.
template <class T>
__device__ __forceinline__ void propose(const Proposal<T> &shared, const T *x, const Sizes &sizes, const Chunk &chunk,
                                        const Transport &weights, Accumulator &z_key, Accumulator &z_value) {
  const int64_t head = chunk.head;
  entity_scales(shared, x, sizes, chunk);
  project_block(z_key, shared, x, sizes, chunk, weights.a_key + head * sizes.rank * sizes.key, shared.key_scale, 0,
                sizes.key);
  project_block(z_value, shared, x, sizes, chunk, weights.a_value + head * sizes.rank * sizes.value, shared.value_scale,
                sizes.key, sizes.value);
  Accumulator product;
#pragma unroll
  for (int i = 0; i < Accumulator::LENGTH; ++i) product.at[i] = z_key.at[i] * z_value.at[i];
  product.store(shared.z);
  const float *c_weight = weights.c + head * sizes.address * sizes.rank;
  const float root_rank = 1.0f / sqrtf(static_cast<float>(sizes.rank));
  for (int panel = 0; panel < sizes.address; panel += TILE) {
    const int columns = min(TILE, sizes.address - panel);
    __syncthreads();
    load_weights(shared.weight, c_weight + panel * sizes.rank, sizes.rank, columns, sizes.rank, root_rank);
    __syncthreads();
    product.clear();
    multiply_add(product, plain(shared.z), transposed(shared.weight), columns, sizes.rank);
#pragma unroll
    for (int i = 0; i < Accumulator::LENGTH; i += 2) {
      const int column = Accumulator::column(i);
      float *c_row = shared.c + Accumulator::row(i) * Proposal<T>::c_pitch(sizes.address) + panel;
      if (column < columns) store_pair(c_row + column, product.at[i], product.at[i + 1]);
    }
  }
  __syncwarp();
}

// s, q, d [B,H,N,64,S] (zero past the last token) and Σ‖d‖ of each chunk, norms [B,H,N].
template <class T>
__device__ __forceinline__ void addresses(const T *x, const float *controls, Transport weights, const Sizes &sizes,
                                          bool query_norm, T *s_out, T *q_out, T *d_out, float *norms) {
  const Chunk chunk(sizes, static_cast<int64_t>(blockIdx.x));
  SharedCursor cursor = {shared_memory()};
  const Proposal<T> shared(cursor, sizes.address);
  Accumulator z_key, z_value;
  propose(shared, x, sizes, chunk, weights, z_key, z_value);

  const int address = sizes.address;
  const Matrix<const T> inputs = inputs_of(x, sizes, chunk, 0, address);
  float norm_sum = 0.0f;
  for (int row = warp_idx() * WARP_ROWS; row < (warp_idx() + 1) * WARP_ROWS; ++row) {
    WarpRow s, d, q;
    const int64_t out = (chunk.idx * CHUNK + row) * address;
    if (row < chunk.tokens) {
      WarpRow query, b;
      const T *read = inputs.data + row * inputs.pitch;
      query.load(read, address);
      if (query_norm) normalize(query, 1.0f);
      s.load(read + address, address);
      normalize(s, 1.0f);
      b.load(shared.c + row * Proposal<T>::c_pitch(address), address);
      const float rho = controls[control_at(sizes, chunk, row, 3)];
      const float lambda = controls[control_at(sizes, chunk, row, 4)];
      norm_sum += transport(s, b, query, rho, lambda, d, q).norm();
    } else {
      s.clear();
      d = q = s;
    }
    s.store(s_out + out, address);
    q.store(q_out + out, address);
    d.store(d_out + out, address);
  }
  // Every warp is done with the proposal's tiles once it is here; their memory holds the four sums.
  __syncthreads();
  if (lane_idx() == 0) shared.key_scale[warp_idx()] = norm_sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    norms[chunk.idx] = shared.key_scale[0] + shared.key_scale[1] + shared.key_scale[2] + shared.key_scale[3];
  }
}

template <class T>
constexpr size_t addresses_shared_bytes(const Sizes &sizes) {
  return Proposal<T>::bytes(sizes.address);
}

}  // namespace mixer
