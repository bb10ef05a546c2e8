// The walk over a head's chunks, and the walk back with the gradient of the state.
//
// One block a (row, head, slice of at most `width` columns of the entity: 16, 32 or 64); the slice of the state stays in shared
// memory. Per chunk, forward, from E0 to E1:
//
//   U = U0 − W E0        Y = γ ⊙ Q E0 + B U        E1 = γ_C E0 + Dᵀ (tail ⊙ U)
//
// and backward, from dE1 to dE0:
//
//   dU = Bᵀ dY + tail ⊙ D dE1        dE0 = γ_C dE1 + Qᵀ (γ ⊙ dY) − Wᵀ dU
//
// Tiles come through a ring of buffers while the products on earlier ones run.
#pragma once

#include "prepare.cuh"

namespace mixer {

// The state's slice [S,width]: f32, and as operand of products. For f32 the two are one.
template <class T>
struct StateSlice {
  float *exact;
  T *operand;
  int address, width, exact_pitch, pitch;

  static __host__ __device__ constexpr int pitch_of(int width, size_t element) {
    return width + static_cast<int>(16 / element);
  }
  static constexpr size_t bytes(const Sizes &sizes, int width) {
    const size_t rows = tiles_of(sizes.address) * TILE;
    return rows * (sizeof(float) * pitch_of(width, 4) + (PARTS<T> == 2 ? sizeof(T) * pitch_of(width, sizeof(T)) : 0));
  }

  __device__ __forceinline__ StateSlice(SharedCursor &shared, const Sizes &sizes, int width)
      : address(sizes.address), width(width), exact_pitch(pitch_of(width, 4)), pitch(pitch_of(width, sizeof(T))) {
    exact = shared.take<float>(tiles_of(address) * TILE * exact_pitch);
    if constexpr (PARTS<T> == 2) {
      operand = shared.take<T>(tiles_of(address) * TILE * pitch);
    } else {
      operand = exact;
    }
  }
  __device__ __forceinline__ const T *rows_from(int row) const { return operand + row * pitch; }
  // 64 rows of it as the right operand of a product.
  __device__ __forceinline__ Operand<T, false, false> panel(int idx) const {
    return plain(rows_from(idx * TILE), pitch);
  }

  // 64 rows ← factor·rows + change, each warp its own.
  __device__ __forceinline__ void update(int idx, float factor, const Accumulator &change) const {
#pragma unroll
    for (int i = 0; i < Accumulator::LENGTH; i += 2) {
      const int row = idx * TILE + Accumulator::row(i), column = Accumulator::column(i);
      if (column < width) {
        const float2 before = load_pair(exact + row * exact_pitch + column);
        set_pair(row, column, fmaf(factor, before.x, change.at[i]), fmaf(factor, before.y, change.at[i + 1]));
      }
    }
  }
  // From a [S,D] state (zeros when null); zero outside the slice.
  __device__ __forceinline__ void load(const float *state, int entity, const Slice &slice) const {
    for (int i = threadIdx.x; i < tiles_of(address) * TILE * width / 2; i += TILE_THREADS) {
      const int row = i / (width / 2), column = i % (width / 2) * 2;
      const bool inside = state != nullptr && row < address && column < slice.columns;
      const float2 pair = inside ? load_pair(state + static_cast<int64_t>(row) * entity + slice.first + column)
                                 : make_float2(0.0f, 0.0f);
      set_pair(row, column, pair.x, pair.y);
    }
  }
  __device__ __forceinline__ void store(float *state, int entity, const Slice &slice) const {
    for (int i = threadIdx.x; i < address * width / 2; i += TILE_THREADS) {
      const int row = i / (width / 2), column = i % (width / 2) * 2;
      const float2 pair = load_pair(exact + row * exact_pitch + column);
      if (column < slice.columns)
        store_pair(state + static_cast<int64_t>(row) * entity + slice.first + column, pair.x, pair.y);
    }
  }
  // The operand form into a [S,D] array of T.
  __device__ __forceinline__ void save(T *states, int entity, const Slice &slice) const {
    for (int row = 0; row < address; row += TILE)
      copy_rows_out(rows_from(row), states + static_cast<int64_t>(row) * entity + slice.first, entity,
                    min(TILE, address - row), slice.columns, pitch);
  }

 private:
  // Sets two neighbours in both forms.
  __device__ __forceinline__ void set_pair(int row, int column, float x, float y) const {
    store_pair(exact + row * exact_pitch + column, x, y);
    if (PARTS<T> == 2) store_pair(operand + row * pitch + column, x, y);
  }
};

// The state, the ring of tiles, and a tile and a split tile that stay over several steps.
template <class T>
constexpr size_t scan_shared_bytes(const Sizes &sizes, int width) {
  return StateSlice<T>::bytes(sizes, width) + (TILES_AHEAD<T> + 1 + PARTS<T> + 1) * sizeof(T) * TILE_ELEMENTS<T>;
}

// A lane's share of a chunk's decays.
struct LaneDecays {
  float gamma[2], tail[2], whole;  // of its two rows; γ_C
  __device__ __forceinline__ LaneDecays(const Decays &decays, const Chunk &chunk) {
    load_rows(gamma, decays.gamma(chunk));
    load_rows(tail, decays.tail(chunk));
    whole = decays.gamma(chunk)[CHUNK - 1];
  }
};

// y [B,T,H·D], final_state [B,H,S,D], address_norm [B,H] (mean ‖d‖), and, unless null, the state before each
// chunk, chunk_states [B,H,N,S,D]. initial_state [B,H,S,D] is zero when null.
template <class T>
__device__ __forceinline__ void scan(const T *q, const T *d, const Prepared<T> &prepared, const float *norms,
                                     const float *initial_state, const Sizes &sizes, int width, T *y,
                                     float *final_state, T *chunk_states, float *address_norm) {
  const int slices = sizes.slices(width), slice_idx = blockIdx.x % slices;
  const int64_t head_idx = blockIdx.x / slices;
  const Slice slice(sizes, slice_idx, width);
  const int address = sizes.address, entity = sizes.entity(), panels = tiles_of(address);
  const int chunks = sizes.chunks();

  SharedCursor cursor = {shared_memory()};
  const StateSlice<T> state(cursor, sizes, width);
  const Split<T> u_tile = take_split<T>(cursor);  // U, then tail ⊙ U
  T *const y_tile = cursor.take<T>(TILE_ELEMENTS<T>);
  T *ring = cursor.take<T>(0);

  const int64_t state_at = head_idx * sizes.state_elements();
  state.load(initial_state == nullptr ? nullptr : initial_state + state_at, entity, slice);

  // The tiles of a chunk in the order of their use: W panels, U0's parts, Q panels, B's parts, D panels.
  const int per_chunk = 3 * panels + 2 * PARTS<T>;
  auto source = [&](int tile) -> Matrix<const T> {
    const Chunk chunk(sizes, head_idx, tile / per_chunk);
    int which = tile % per_chunk;
    if (which < panels) return w_panel(prepared, sizes, chunk, slice.is_value, which);
    which -= panels;
    if (which < PARTS<T>) return rows_part<const T>(prepared.u0, chunk, entity, slice.first, slice.columns, which);
    which -= PARTS<T>;
    if (which < panels) return rows_of<const T>(q, chunk, address, which * TILE, min(TILE, address - which * TILE));
    which -= panels;
    if (which < PARTS<T>) return square_part<const T>(prepared.b, chunk, 1, 0, which);
    which -= PARTS<T>;
    return rows_of<const T>(d, chunk, address, which * TILE, min(TILE, address - which * TILE));
  };
  TileStream<T, decltype(source)> tiles(ring, chunks * per_chunk, source);

  float norm_sum = 0.0f;
  for (int number = 0; number < chunks; ++number) {
    const Chunk chunk(sizes, head_idx, number);
    const LaneDecays decays(prepared.decays, chunk);
    norm_sum += norms[chunk.idx];

    Accumulator u, product;
    product.clear();
    for (int panel = 0; panel < panels; ++panel) {
      const T *w = tiles.next();
      if (panel == 0 && chunk_states != nullptr)
        state.save(chunk_states + chunk.idx * sizes.state_elements(), entity, slice);
      multiply_add(product, plain(w), state.panel(panel), slice.columns, min(TILE, address - panel * TILE));
    }
    u.load(tiles.next());
    if (PARTS<T> == 2) u.add(tiles.next());
#pragma unroll
    for (int i = 0; i < Accumulator::LENGTH; ++i) u.at[i] -= product.at[i];
    u.store(u_tile);

    product.clear();
    for (int panel = 0; panel < panels; ++panel) {
      const T *queries = tiles.next();
      multiply_add(product, plain(queries), state.panel(panel), slice.columns, min(TILE, address - panel * TILE));
    }
    product.scale_rows(decays.gamma);
    multiply_add(product, plain(tiles.next()), plain(u_tile), slice.columns, CHUNK);
    if (PARTS<T> == 2) multiply_add(product, plain(tiles.next()), plain(u_tile.high), slice.columns, CHUNK);

    for (int panel = 0; panel < panels; ++panel) {
      const T *write = tiles.next();
      if (panel == 0) {
        const Matrix<T> out = outputs_of(y, sizes, chunk, slice.first, slice.columns);
        product.store(y_tile);
        copy_rows_out(y_tile, out.data, out.pitch, out.rows, out.columns);
        // Every warp is done with U.
        u.scale_rows(decays.tail);
        u.store(u_tile);
        __syncthreads();
      }
      product.clear();
      multiply_add(product, transposed(write), plain(u_tile), slice.columns, CHUNK);
      state.update(panel, decays.whole, product);
    }
  }
  __syncthreads();
  state.store(final_state + state_at, entity, slice);
  if (slice_idx == 0 && threadIdx.x == 0) address_norm[head_idx] = norm_sum / static_cast<float>(sizes.tokens);
}

// From dy [B,T,H·D] and dfinal_state [B,H,S,D] (zero when null): the gradient of the state after each chunk,
// chunk_gradients [B,H,N,S,D], and that of the initial state, dinitial_state [B,H,S,D].
template <class T>
__device__ __forceinline__ void scan_backward(const T *q, const T *d, const Prepared<T> &prepared, const T *dy,
                                              const float *dfinal_state, const Sizes &sizes, int width,
                                              T *chunk_gradients, float *dinitial_state) {
  const int slices = sizes.slices(width);
  const int64_t head_idx = blockIdx.x / slices;
  const Slice slice(sizes, blockIdx.x % slices, width);
  const int address = sizes.address, entity = sizes.entity(), panels = tiles_of(address);
  const int chunks = sizes.chunks();

  SharedCursor cursor = {shared_memory()};
  const StateSlice<T> dstate(cursor, sizes, width);
  const Split<T> du_tile = take_split<T>(cursor);       // −dU
  T *const dy_tile = cursor.take<T>(TILE_ELEMENTS<T>);  // dY, then γ ⊙ dY
  T *ring = cursor.take<T>(0);

  const int64_t state_at = head_idx * sizes.state_elements();
  dstate.load(dfinal_state == nullptr ? nullptr : dfinal_state + state_at, entity, slice);

  // The tiles of a chunk in the order of their use: dY, B's parts, D panels, then Q and W panel by panel.
  const int per_chunk = 3 * panels + 1 + PARTS<T>;
  auto source = [&](int tile) -> Matrix<const T> {
    const Chunk chunk(sizes, head_idx, chunks - 1 - tile / per_chunk);
    int which = tile % per_chunk;
    if (which == 0) return outputs_of<const T>(dy, sizes, chunk, slice.first, slice.columns);
    which -= 1;
    if (which < PARTS<T>) return square_part<const T>(prepared.b, chunk, 1, 0, which);
    which -= PARTS<T>;
    if (which < panels) return rows_of<const T>(d, chunk, address, which * TILE, min(TILE, address - which * TILE));
    which -= panels;
    const int panel = which / 2;
    if (which % 2 == 1) return w_panel(prepared, sizes, chunk, slice.is_value, panel);
    return rows_of<const T>(q, chunk, address, panel * TILE, min(TILE, address - panel * TILE));
  };
  TileStream<T, decltype(source)> tiles(ring, chunks * per_chunk, source);

  for (int number = chunks - 1; number >= 0; --number) {
    const Chunk chunk(sizes, head_idx, number);
    const LaneDecays decays(prepared.decays, chunk);

    Accumulator dy_rows, du, product;
    dy_rows.load(tiles.next());
    dstate.save(chunk_gradients + chunk.idx * sizes.state_elements(), entity, slice);
    dy_rows.store(dy_tile);
    du.clear();
    for (int part = 0; part < PARTS<T>; ++part)
      multiply_add(du, transposed(tiles.next()), plain(dy_tile), slice.columns, CHUNK);

    product.clear();
    for (int panel = 0; panel < panels; ++panel) {
      const T *write = tiles.next();
      if (panel == 0) {  // every warp is done with dY
        dy_rows.scale_rows(decays.gamma);
        dy_rows.store(dy_tile);
      }
      multiply_add(product, plain(write), dstate.panel(panel), slice.columns, min(TILE, address - panel * TILE));
    }
    // −dU, so that what follows is a sum.
#pragma unroll
    for (int i = 0; i < Accumulator::LENGTH; ++i)
      du.at[i] = -fmaf(decays.tail[Accumulator::half(i)], product.at[i], du.at[i]);
    du.store(du_tile);

    for (int panel = 0; panel < panels; ++panel) {
      const T *queries = tiles.next();
      product.clear();
      multiply_add(product, transposed(queries), plain(dy_tile), slice.columns, CHUNK);
      const T *w = tiles.next();
      multiply_add(product, transposed(w), plain(du_tile), slice.columns, CHUNK);
      dstate.update(panel, decays.whole, product);
    }
  }
  __syncthreads();
  dstate.store(dinitial_state + state_at, entity, slice);
}

}  // namespace mixer
