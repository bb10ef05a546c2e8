// Products of 64×64 tiles by one thread block: the building block of the mixer's kernels.
//
// A tile is 64 rows of PITCH elements in shared memory; what lies outside the matrix is zero. A block has
// four warps, and warp w owns rows 16w … 16w+15 of every result, which it holds in registers (Accumulator).
// bf16 tiles are multiplied on the tensor cores, f32 tiles with fused multiply-adds (never TF32); the
// registers hold the same elements in both, so everything around a product is written once.
#pragma once

#include "ptx.cuh"

constexpr int TILE = 64;
constexpr int TILE_THREADS = 128;
constexpr int WARP_ROWS = 16;

// Elements from one row to the next: 16 bytes more than a row, so that the eight rows that ldmatrix
// reads together, and the rows that f32 products read together, lie in different banks.
template <class T>
constexpr int PITCH = TILE + static_cast<int>(16 / sizeof(T));
template <class T>
constexpr int TILE_ELEMENTS = TILE * PITCH<T>;

constexpr int tiles_of(int n) { return (n + TILE - 1) / TILE; }

// A number in bf16 keeps 8 bits. Factors of which a chunk's result is a small difference, and those that pass
// through several products, are kept as a sum of two bf16 numbers, 16 bits: two tiles in shared memory, and
// three products on the tensor cores instead of one. In f32 there is one part.
template <class T>
constexpr int PARTS = sizeof(T) == 2 ? 2 : 1;

template <class T>
struct Split {
  T *high, *low;  // `low` is unused in f32
  int pitch;
};
template <class T>
__device__ __forceinline__ Split<T> take_split(SharedCursor &shared) {
  T *tiles = shared.take<T>(PARTS<T> * TILE_ELEMENTS<T>);
  return {tiles, tiles + (PARTS<T> - 1) * TILE_ELEMENTS<T>, PITCH<T>};
}
// Writes two neighbours at `at` of a split tile.
template <class T>
__device__ __forceinline__ void store_split_pair(Split<T> tile, int at, float x, float y) {
#ifdef PLANT_MISALIGNED_PAIR
  at ^= 1;
#endif
  store_pair(tile.high + at, x, y);
  if (PARTS<T> == 2) {
    const float2 high = load_pair(tile.high + at);
    store_pair(tile.low + at, x - high.x, y - high.y);
  }
}

// A matrix in global memory: row i begins at data + i·pitch. Rows are aligned to 16 bytes.
template <class T>
struct Matrix {
  T *data;
  int64_t pitch;
  int rows, columns;  // of the part that is meant; at most 64 each, columns a multiple of 8
};

// Starts the copy of a matrix into a tile, zeros around it.
template <class T, class From>
__device__ __forceinline__ void load_tile(T *tile, Matrix<From> from) {
  constexpr int PER_COPY = 16 / sizeof(T), PER_ROW = TILE / PER_COPY;
#pragma unroll
  for (int i = threadIdx.x; i < TILE * PER_ROW; i += TILE_THREADS) {
    const int row = i / PER_ROW, column = i % PER_ROW * PER_COPY;
    const bool inside = row < from.rows && column < from.columns;
    copy_async(tile + row * PITCH<T> + column, inside ? from.data + row * from.pitch + column : from.data, inside);
  }
}

// Waits for every copy that was started, and makes them visible to the block.
__device__ __forceinline__ void finish_loads() {
  copy_async_commit();
  copy_async_wait<0>();
  __syncthreads();
}

// A warp's 16 rows of a 64×64 result. Element i of a lane is row `row(i)`, column `column(i)`: the
// layout of the tensor cores' f32 results, eight times side by side.
struct Accumulator {
  static constexpr int LENGTH = 32;
  float at[LENGTH];

  // Which of the lane's two rows element i is in.
  static __device__ __forceinline__ constexpr int half(int i) { return i / 2 % 2; }
  static __device__ __forceinline__ int row_of_half(int half) {
    return warp_idx() * WARP_ROWS + lane_idx() / 4 + half * 8;
  }
  static __device__ __forceinline__ int row(int i) { return row_of_half(half(i)); }
  static __device__ __forceinline__ int column(int i) { return i / 4 * 8 + lane_idx() % 4 * 2 + i % 2; }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < LENGTH; ++i) at[i] = 0.0f;
  }

  // Multiplies each row by its factor; `factors[h]` belongs to `row_of_half(h)`.
  __device__ __forceinline__ void scale_rows(const float (&factors)[2]) {
#pragma unroll
    for (int i = 0; i < LENGTH; ++i) at[i] *= factors[half(i)];
  }

  // Reads a tile's elements (their own or in f32) into the registers.
  template <class T>
  __device__ __forceinline__ void load(const T *tile) {
#pragma unroll
    for (int i = 0; i < LENGTH; i += 2) {
      const float2 pair = load_pair(tile + row(i) * PITCH<T> + column(i));
      at[i] = pair.x;
      at[i + 1] = pair.y;
    }
  }

  template <class T>
  __device__ __forceinline__ void load(Split<T> tile) {
    load(tile.high);
    if (PARTS<T> == 2) add(tile.low);
  }
  template <class T>
  __device__ __forceinline__ void add(const T *tile) {
#pragma unroll
    for (int i = 0; i < LENGTH; i += 2) {
      const float2 pair = load_pair(tile + row(i) * PITCH<T> + column(i));
      at[i] += pair.x;
      at[i + 1] += pair.y;
    }
  }

  // Writes the warp's rows of a tile; other warps see them after a barrier.
  template <class T>
  __device__ __forceinline__ void store(T *tile) const {
#pragma unroll
    for (int i = 0; i < LENGTH; i += 2) store_pair(tile + row(i) * PITCH<T> + column(i), at[i], at[i + 1]);
  }
  template <class T>
  __device__ __forceinline__ void store(Split<T> tile) const {
#pragma unroll
    for (int i = 0; i < LENGTH; i += 2) store_split_pair(tile, row(i) * PITCH<T> + column(i), at[i], at[i + 1]);
  }
  // The same to rows of f32 in global memory.
  __device__ __forceinline__ void store(float *to, int64_t pitch, int columns) const {
#pragma unroll
    for (int i = 0; i < LENGTH; i += 2)
      if (column(i) < columns) store_pair(to + row(i) * pitch + column(i), at[i], at[i + 1]);
  }
};

// The lane's rows of a per-token array.
__device__ __forceinline__ void load_rows(float (&out)[2], const float *per_row) {
#pragma unroll
  for (int half = 0; half < 2; ++half) out[half] = per_row[Accumulator::row_of_half(half)];
}

// Adds Σ_columns x∘y of each row to `sums`, in every one of the four lanes that share the row.
__device__ __forceinline__ void add_row_products(float (&sums)[2], const Accumulator &x, const Accumulator &y) {
  float part[2] = {0.0f, 0.0f};
#pragma unroll
  for (int i = 0; i < Accumulator::LENGTH; ++i) part[Accumulator::half(i)] += x.at[i] * y.at[i];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    part[half] += __shfl_xor_sync(ALL_LANES, part[half], 1);
    part[half] += __shfl_xor_sync(ALL_LANES, part[half], 2);
    sums[half] += part[half];
  }
}

// Writes one value a row, from one of the lanes that share it.
__device__ __forceinline__ void store_rows(float *per_row, const float (&values)[2]) {
  if (lane_idx() % 4 != 0) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) per_row[Accumulator::row_of_half(half)] = values[half];
}

// A tile as an operand: as it lies, or its transpose; with IS_SPLIT, the sum of two tiles.
template <class T, bool IS_TRANSPOSED, bool IS_SPLIT>
struct Operand {
  const T *data, *low;
  int pitch;
};
template <class T>
__device__ __forceinline__ Operand<T, false, false> plain(const T *tile, int pitch = PITCH<T>) {
  return {tile, nullptr, pitch};
}
template <class T>
__device__ __forceinline__ Operand<T, true, false> transposed(const T *tile, int pitch = PITCH<T>) {
  return {tile, nullptr, pitch};
}
template <class T>
__device__ __forceinline__ Operand<T, false, (PARTS<T> > 1)> plain(Split<T> tile) {
  return {tile.high, tile.low, tile.pitch};
}
template <class T>
__device__ __forceinline__ Operand<T, true, (PARTS<T> > 1)> transposed(Split<T> tile) {
  return {tile.high, tile.low, tile.pitch};
}

// sum += A·B over `inner` (rounded up to 16) for the first `columns` (likewise) of the result. Of two split
// operands, the product of their low parts is left out: it is below the others' rounding.
template <bool A_TRANSPOSED, bool A_SPLIT, bool B_TRANSPOSED, bool B_SPLIT>
__device__ __forceinline__ void multiply_add(Accumulator &sum, Operand<bf16, A_TRANSPOSED, A_SPLIT> a,
                                             Operand<bf16, B_TRANSPOSED, B_SPLIT> b, int columns, int inner) {
  const int lane = lane_idx(), first_row = warp_idx() * WARP_ROWS;
  // Where this lane's row of the four 8×8 matrices begins: the matrices go down, then right, and registers
  // 0, 1 and 2, 3 of B are its two 16×8 operands. A stored transpose goes right, then down.
  const int down = lane / 8 % 2 * 8 + lane % 8, right = lane / 16 * 8;
  const int down_stored = lane / 16 * 8 + lane % 8, right_stored = lane / 8 % 2 * 8;
  const int a_lane =
      A_TRANSPOSED ? down_stored * a.pitch + first_row + right_stored : (first_row + down) * a.pitch + right;
  const int b_lane = B_TRANSPOSED ? down_stored * b.pitch + right_stored : down * b.pitch + right;
  for (int k = 0; k < inner; k += 16) {
    const int a_at = a_lane + (A_TRANSPOSED ? k * a.pitch : k);
    uint32_t a_high[4], a_low[4];
    ldmatrix_x4<A_TRANSPOSED>(a_high, a.data + a_at);
    if (A_SPLIT) ldmatrix_x4<A_TRANSPOSED>(a_low, a.low + a_at);
#pragma unroll
    for (int column = 0; column < TILE; column += 16) {
      if (column < columns) {
        const int b_at = b_lane + (B_TRANSPOSED ? column * b.pitch + k : k * b.pitch + column);
        uint32_t b_high[4], b_low[4];
        ldmatrix_x4<!B_TRANSPOSED>(b_high, b.data + b_at);
        if (B_SPLIT) ldmatrix_x4<!B_TRANSPOSED>(b_low, b.low + b_at);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float *sums = sum.at + column / 2 + half * 4;
          mma_m16n8k16(sums, a_high, b_high + half * 2);
          if (A_SPLIT) mma_m16n8k16(sums, a_low, b_high + half * 2);
          if (B_SPLIT) mma_m16n8k16(sums, a_high, b_low + half * 2);
        }
      }
    }
  }
}

template <bool A_TRANSPOSED, bool B_TRANSPOSED>
__device__ __forceinline__ void multiply_add(Accumulator &sum, Operand<float, A_TRANSPOSED, false> a,
                                             Operand<float, B_TRANSPOSED, false> b, int columns, int inner) {
  const int row = Accumulator::row_of_half(0), first_column = lane_idx() % 4 * 2;
  for (int k = 0; k < inner; ++k) {
    float a_values[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      a_values[half] = A_TRANSPOSED ? a.data[k * a.pitch + row + half * 8] : a.data[(row + half * 8) * a.pitch + k];
#pragma unroll
    for (int block = 0; block < TILE; block += 8) {
      if (block < columns) {
        float2 b_pair;
        const int column = block + first_column;
        if (B_TRANSPOSED) {
          b_pair = make_float2(b.data[column * b.pitch + k], b.data[(column + 1) * b.pitch + k]);
        } else {
          b_pair = load_pair(b.data + k * b.pitch + column);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float *sums = sum.at + block / 2 + half * 2;
          sums[0] = fmaf(a_values[half], b_pair.x, sums[0]);
          sums[1] = fmaf(a_values[half], b_pair.y, sums[1]);
        }
      }
    }
  }
}

// Copies the warp's rows of a tile to global memory, 16 bytes a lane. The warp's own stores to the tile
// are visible, and the tile may be overwritten by the warp afterwards.
template <class T>
__device__ __forceinline__ void copy_rows_out(const T *tile, T *to, int64_t pitch, int rows, int columns,
                                              int tile_pitch = PITCH<T>) {
  constexpr int PER_COPY = 16 / sizeof(T), PER_ROW = TILE / PER_COPY;
  __syncwarp();
#pragma unroll
  for (int i = lane_idx(); i < WARP_ROWS * PER_ROW; i += LANES) {
    const int row = warp_idx() * WARP_ROWS + i / PER_ROW, column = i % PER_ROW * PER_COPY;
#ifdef PLANT_STORE_ONE_TOO_MANY
    const bool inside = row <= rows && column < columns;
#else
    const bool inside = row < rows && column < columns;
#endif
    if (inside)
      *reinterpret_cast<uint4 *>(to + row * pitch + column) =
          *reinterpret_cast<const uint4 *>(tile + row * tile_pitch + column);
  }
  __syncwarp();
}

// The parts of a split tile to [PARTS,64,64].
template <class T>
__device__ __forceinline__ void copy_square_out(Split<T> tile, T *to) {
  copy_rows_out(tile.high, to, TILE, TILE, TILE);
  if (PARTS<T> == 2) copy_rows_out(tile.low, to + TILE * TILE, TILE, TILE, TILE);
}

// How many tiles a stream loads ahead of their use.
template <class T>
constexpr int TILES_AHEAD = sizeof(T) == 2 ? 2 : 1;

// A sequence of tiles on its way through a ring of buffers, TILES_AHEAD of their use.
//
// `next()` gives the next tile, which stays valid until the call after; it is also a barrier of the block.
// `source(i)` says where tile i of the sequence is.
template <class T, class Source>
struct TileStream {
  static constexpr int DISTANCE = TILES_AHEAD<T>;
  static constexpr int SLOTS = DISTANCE + 1;

  T *slots;
  Source source;
  int count, used;

  __device__ __forceinline__ TileStream(T *slots, int count, Source source)
      : slots(slots), source(source), count(count), used(0) {
    for (int i = 0; i < DISTANCE; ++i) start(i);
  }

  __device__ __forceinline__ T *slot(int i) { return slots + i % SLOTS * TILE_ELEMENTS<T>; }

  __device__ __forceinline__ void start(int i) {
    if (i < count) load_tile(slot(i), source(i));
    copy_async_commit();
  }

  __device__ __forceinline__ T *next() {
#ifdef PLANT_WRONG_WAIT
    copy_async_wait<DISTANCE>();
#else
    copy_async_wait<DISTANCE - 1>();
#endif
#ifndef PLANT_MISSING_BARRIER
    __syncthreads();
#endif
    start(used + DISTANCE);
    return slot(used++);
  }
};
