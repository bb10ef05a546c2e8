// The gradient of addresses.cuh; one block walks a group of chunks of one (row, head), so that its share of
// the weights' gradients is summed in one place and in order.
#pragma once

#include "addresses.cuh"
#include "chunk_backward.cuh"

namespace mixer {

// Chunks that one block walks: more make fewer partial sums of the weights' gradients, fewer make more blocks.
constexpr int CHUNKS_PER_GROUP = 8;

constexpr int groups_of(const Sizes &sizes) { return (sizes.chunks() + CHUNKS_PER_GROUP - 1) / CHUNKS_PER_GROUP; }

template <class T>
constexpr size_t addresses_backward_shared_bytes(const Sizes &sizes) {
  return Proposal<T>::bytes(sizes.address) + (PARTS<T> + 1) * sizeof(T) * TILE_ELEMENTS<T>;
}

// Where one block sums its share of dA_K [R,K], dA_V [R,V], dC [S,R]: [B,H,groups] of these, in f32.
struct TransportPartial {
  float *a_key, *a_value, *c;
  __device__ __forceinline__ TransportPartial(float *partials, const Sizes &sizes, int64_t idx) {
    a_key = partials + idx * sizes.transport_elements();
    a_value = a_key + static_cast<int64_t>(sizes.rank) * sizes.key;
    c = a_value + static_cast<int64_t>(sizes.rank) * sizes.value;
  }
};

// Adds (or, the first time, writes) rows and columns of a sum to a row-major array.
__device__ __forceinline__ void accumulate(float *to, int pitch, const Accumulator &sum, int rows, int columns,
                                           bool is_first) {
#pragma unroll
  for (int i = 0; i < Accumulator::LENGTH; ++i) {
    const int row = Accumulator::row(i), column = Accumulator::column(i);
    if (row < rows && column < columns) {
      float *place = to + static_cast<int64_t>(row) * pitch + column;
      *place = is_first ? sum.at[i] : *place + sum.at[i];
    }
  }
}

// The gradients of one token's transport and recall: q's becomes q0's, s's is added to, and that of c takes
// the place of b. Returns dρ and dλ.
__device__ __forceinline__ float2 transport_backward(const WarpRow &s, WarpRow &b, const WarpRow &query,
                                                     const WarpRow &d, const Scales &scales, float rho, float lambda,
                                                     WarpRow &ds, WarpRow &dq, WarpRow &dd) {
  // q = q0 + λ(1 − m)a with m = q0ᵀa and a = d/‖d‖.
  const float gap = 1.0f - scales.overlap;
  const float dq_a = dot(dq, d) * scales.anchor;
  const float doverlap = -lambda * dq_a;
  // da = λ(1−m) dq + dm·q0, and dd += (da − a(aᵀda))/‖d‖; aᵀda needs only known products.
  const float a_da = lambda * gap * dq_a + doverlap * scales.overlap;
  add_scaled(dd, lambda * gap * scales.anchor, dq);
  add_scaled(dd, doverlap * scales.anchor, query);
  add_scaled(dd, -a_da * scales.anchor * scales.anchor, d);
  add_scaled(dq, doverlap * scales.anchor, d);

  // d = s + ρτ, τ = b − (sᵀb)s.
  const float dd_s = dot(dd, s), dd_b = dot(dd, b);
  add_scaled(ds, 1.0f - rho * scales.along, dd);
  add_scaled(ds, -rho * dd_s, b);
  // db = ρ(dd − (sᵀdd)s), then the soft sphere: dc = (db − b(bᵀdb))·soft.
  const float b_db = rho * (dd_b - dd_s * scales.along);
  b.scale(-b_db * scales.soft);
  add_scaled(b, rho * scales.soft, dd);
  add_scaled(b, -rho * dd_s * scales.soft, s);
  return make_float2(dd_b - scales.along * dd_s, gap * dq_a);
}

// dc [64,S] where c was: a row of c has room for both parts of a row of dc, the low one behind the high one.
template <class T>
__device__ __forceinline__ Split<T> dc_of(const Proposal<T> &shared, int address) {
  T *rows = reinterpret_cast<T *>(shared.c);
  return {rows, rows + (PARTS<T> - 1) * address, Proposal<T>::c_pitch(address) * PARTS<T>};
}

// One chunk: q, s of dx, dρ and dλ; and dc, which takes the place of c.
template <class T>
__device__ __forceinline__ void rows_backward(const Proposal<T> &shared, const T *x, const float *controls,
                                              const Sizes &sizes, const Chunk &chunk, bool query_norm,
                                              const float *ds_in, const float *dq_in, const float *dd_in, T *dx,
                                              float *dcontrols) {
  const int address = sizes.address;
  const Matrix<const T> inputs = inputs_of(x, sizes, chunk, 0, address);
  T *dx_rows = dx + (inputs.data - x);
  for (int row = warp_idx() * WARP_ROWS; row < (warp_idx() + 1) * WARP_ROWS; ++row) {
    float *c_row = shared.c + row * Proposal<T>::c_pitch(address);
    WarpRow s, b, query, d, q, ds, dq, dd;
    if (row < chunk.tokens) {
      const T *read = inputs.data + row * inputs.pitch;
      query.load(read, address);
      const float query_scale = query_norm ? normalize(query, 1.0f) : 1.0f;
      s.load(read + address, address);
      const float source_scale = normalize(s, 1.0f);
      b.load(c_row, address);
      const float rho = controls[control_at(sizes, chunk, row, 3)];
      const float lambda = controls[control_at(sizes, chunk, row, 4)];
      const Scales scales = transport(s, b, query, rho, lambda, d, q);

      const int64_t at = (chunk.idx * CHUNK + row) * address;
      ds.load(ds_in + at, address);
      dq.load(dq_in + at, address);
      dd.load(dd_in + at, address);
      const float2 drho_dlambda = transport_backward(s, b, query, d, scales, rho, lambda, ds, dq, dd);
      if (lane_idx() == 0) {
        dcontrols[control_at(sizes, chunk, row, 3)] = drho_dlambda.x;
        dcontrols[control_at(sizes, chunk, row, 4)] = drho_dlambda.y;
      }
      if (query_norm) normalize_backward(query, dq, query_scale, 1.0f);
      normalize_backward(s, ds, source_scale, 1.0f);
      T *write = dx_rows + row * inputs.pitch;
      dq.store(write, address);
      ds.store(write + address, address);
    } else {
      b.clear();
    }
    __syncwarp();  // c's row is read
    const Split<T> dc = dc_of(shared, address);
#pragma unroll
    for (int j = 0; j < PAIRS; ++j) {
      const int column = 2 * lane_idx() + 2 * LANES * j;
      if (column < address) store_split_pair(dc, row * dc.pitch + column, b.at[j].x, b.at[j].y);
    }
  }
}

// k̂ or v̂'s share of the gradients: dA += dzᵀ x̂, and dx of the block from dz A and the direct gradient.
// `dz` is in `shared.z`.
template <class T>
__device__ __forceinline__ void block_backward(const Proposal<T> &shared, T *panel_tile, const T *x, const Sizes &sizes,
                                               const Chunk &chunk, const float *weight, const float *scale, int first,
                                               int width, const T *direct, T *dx, float *dweight, bool is_first) {
  const Matrix<T> out = inputs_of(dx, sizes, chunk, 2 * sizes.address + first, width);
  Accumulator product, unit;
  // x̂ᵀdx̂ of each row needs all panels before the first dx can be written: two passes over them.
  float along[2] = {0.0f, 0.0f}, scales[2];
  load_rows(scales, scale);
  for (int pass = 0; pass < 2; ++pass) {
    for (int panel = 0; panel < width; panel += TILE) {
      const int columns = min(TILE, width - panel);
      __syncthreads();
      load_unit_panel(shared.unit, x, sizes, chunk, scale, first + panel, columns);
      load_weights(shared.weight, weight + panel, width, sizes.rank, columns, 1.0f);
      if (pass == 1) load_tile(panel_tile, rows_of(direct, chunk, sizes.entity(), first + panel, columns));
      finish_loads();
      unit.load(shared.unit);
      product.clear();
      multiply_add(product, plain(shared.z), plain(shared.weight), columns, sizes.rank);
      if (pass == 0) {
        add_row_products(along, product, unit);
        product.clear();
        multiply_add(product, transposed(shared.z), plain(shared.unit), columns, CHUNK);
        accumulate(dweight + panel, width, product, sizes.rank, columns, is_first);
      } else {
        float pull[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) pull[half] = along[half] / static_cast<float>(width);
#pragma unroll
        for (int i = 0; i < Accumulator::LENGTH; ++i) {
          const int half = Accumulator::half(i);
          product.at[i] = scales[half] * (product.at[i] - unit.at[i] * pull[half]);
        }
        unit.load(panel_tile);
#pragma unroll
        for (int i = 0; i < Accumulator::LENGTH; ++i) product.at[i] += unit.at[i];
        product.store(panel_tile);
        copy_rows_out(panel_tile, out.data + panel, out.pitch, out.rows, columns);
      }
    }
  }
}

// dx [B,T,H·(2S+K+V)], rows 3 and 4 of dcontrols [B,T,5,H], and partial sums of the weights' gradients.
template <class T>
__device__ __forceinline__ void addresses_backward(const T *x, const float *controls, const Transport &weights,
                                                   const Sizes &sizes, bool query_norm, const float *ds,
                                                   const float *dq, const float *dd, const T *dr, T *dx,
                                                   float *dcontrols, float *partials) {
  const int groups = groups_of(sizes);
  const int64_t state = blockIdx.x / groups;
  const int first_chunk = blockIdx.x % groups * CHUNKS_PER_GROUP;
  const TransportPartial partial(partials, sizes, blockIdx.x);
  SharedCursor cursor = {shared_memory()};
  const Proposal<T> shared(cursor, sizes.address);
  const Split<T> dz_value_tile = take_split<T>(cursor);
  T *panel_tile = cursor.take<T>(TILE_ELEMENTS<T>);
  const int address = sizes.address, rank = sizes.rank;
  const float root_rank = 1.0f / sqrtf(static_cast<float>(rank));

  for (int number = first_chunk; number < min(sizes.chunks(), first_chunk + CHUNKS_PER_GROUP); ++number) {
    const Chunk chunk(sizes, state, number);
    const bool is_first = number == first_chunk;
    Accumulator z_key, z_value, product, dz;
    __syncthreads();
    propose(shared, x, sizes, chunk, weights, z_key, z_value);
    rows_backward(shared, x, controls, sizes, chunk, query_norm, ds, dq, dd, dx, dcontrols);

    // dC += dcᵀ z/√R and dz = dc C/√R, over panels of S.
    const Split<T> dc = dc_of(shared, address);
    const float *c_weight = weights.c + static_cast<int64_t>(chunk.head) * address * rank;
    dz.clear();
    for (int panel = 0; panel < address; panel += TILE) {
      const int columns = min(TILE, address - panel);
      const Split<T> dc_panel = {dc.high + panel, dc.low + panel, dc.pitch};
      __syncthreads();
      load_weights(shared.weight, c_weight + panel * rank, rank, columns, rank, root_rank);
      __syncthreads();
      multiply_add(dz, plain(dc_panel), plain(shared.weight), rank, columns);
      product.clear();
      multiply_add(product, transposed(dc_panel), plain(shared.z), rank, CHUNK);
#pragma unroll
      for (int i = 0; i < Accumulator::LENGTH; ++i) product.at[i] *= root_rank;
      accumulate(partial.c + static_cast<int64_t>(panel) * rank, rank, product, columns, rank, is_first);
    }

    // z = z_K ⊙ z_V: each factor's gradient takes the other factor.
    __syncthreads();
#pragma unroll
    for (int i = 0; i < Accumulator::LENGTH; ++i) {
      z_value.at[i] *= dz.at[i];
      z_key.at[i] *= dz.at[i];
    }
    z_value.store(shared.z);
    z_key.store(dz_value_tile);
    const int64_t head = chunk.head;
    block_backward(shared, panel_tile, x, sizes, chunk, weights.a_key + head * rank * sizes.key, shared.key_scale, 0,
                   sizes.key, dr, dx, partial.a_key, is_first);
    __syncthreads();
    dz.load(dz_value_tile);
    dz.store(shared.z);
    block_backward(shared, panel_tile, x, sizes, chunk, weights.a_value + head * rank * sizes.value, shared.value_scale,
                   sizes.key, sizes.value, dr, dx, partial.a_value, is_first);
  }
}

// Adds the partial sums [B,H,groups] to the gradients dA_K [H,R,K], dA_V [H,R,V], dC [H,S,R]; a thread an
// element, rows and groups in order.
__device__ __forceinline__ void transport_gradients(const float *partials, const Sizes &sizes, float *da_key,
                                                    float *da_value, float *dc) {
  const int64_t elements = sizes.transport_elements();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= elements * sizes.heads) return;
  const int64_t head = i / elements, at = i % elements;
  const int groups = groups_of(sizes);
  const int64_t key = static_cast<int64_t>(sizes.rank) * sizes.key,
                value = static_cast<int64_t>(sizes.rank) * sizes.value;
  float sum = 0.0f;
  for (int64_t row = 0; row < sizes.batch; ++row)
    for (int64_t group = 0; group < groups; ++group)
      sum += partials[((row * sizes.heads + head) * groups + group) * elements + at];
  if (at < key) {
    da_key[head * key + at] += sum;
  } else if (at < key + value) {
    da_value[head * value + at - key] += sum;
  } else {
    dc[head * (elements - key - value) + at - key - value] += sum;
  }
}

}  // namespace mixer
