// Sizes of a mixer call, where things lie in global memory, and how each kernel is launched.
#pragma once

#include "../common/tile.cuh"

namespace mixer {

// Tokens of a chunk: the rows of a tile.
constexpr int CHUNK = TILE;
// Largest address size and entity block, and largest transport rank.
constexpr int MOST_WIDTH = 256;
constexpr int MOST_RANK = TILE;
// Added to squared norms and mean squares before the root.
constexpr float NORM_EPS = 1e-6f;
// Log decay of a document's first token, and the floor of any other: e^-1000 is zero in f32.
constexpr double LOG_ALPHA_FLOOR = -1000.0;

// `B` rows, `T` tokens, `H` heads, `S` address, `K`/`V` blocks of the entity, `D = K + V`, `R` rank.
// S is a multiple of 16, K and V of 8; S, K, V at most 256, R at most 64.
struct Sizes {
  int batch, tokens, heads, address, key, value, rank;

  __host__ __device__ constexpr int entity() const { return key + value; }
  // What a head reads per token, in the order query, source, key, value.
  __host__ __device__ constexpr int channels() const { return 2 * address + key + value; }
  __host__ __device__ constexpr int chunks() const { return (tokens + CHUNK - 1) / CHUNK; }
  // Slices of at most `width` columns of the entity, none of which crosses from K into V.
  __host__ __device__ constexpr int slices(int width = TILE) const {
    return (key + width - 1) / width + (value + width - 1) / width;
  }
  // The widest slice of the scans, whose S rows of state must fit in shared memory. Half and a quarter of it, down to 16,
  // give the same bits from more blocks; the launcher takes them for calls with few rows and heads.
  __host__ __device__ constexpr int most_scan_width() const { return address > 192 ? TILE / 2 : TILE; }
  __host__ __device__ constexpr int64_t states() const { return static_cast<int64_t>(batch) * heads; }
  __host__ __device__ constexpr int64_t all_chunks() const { return states() * chunks(); }
  __host__ __device__ constexpr int64_t state_elements() const { return static_cast<int64_t>(address) * entity(); }
  // A_K, A_V and C of one head.
  __host__ __device__ constexpr int64_t transport_elements() const {
    return static_cast<int64_t>(rank) * (key + value + address);
  }
  __host__ __device__ constexpr bool supported() const {
    return address % 16 == 0 && key % 8 == 0 && value % 8 == 0 && address > 0 && key > 0 && value > 0 && rank > 0 &&
           address <= MOST_WIDTH && key <= MOST_WIDTH && value <= MOST_WIDTH && rank <= MOST_RANK;
  }
};

// Columns of the entity that one block works on.
struct Slice {
  bool is_value;
  int first, columns;

  __device__ __forceinline__ Slice(const Sizes &sizes, int slice, int width = TILE) {
    const int key_slices = (sizes.key + width - 1) / width;
    is_value = slice >= key_slices;
    const int first_in_block = (is_value ? slice - key_slices : slice) * width;
    first = first_in_block + (is_value ? sizes.key : 0);
    columns = min(width, (is_value ? sizes.value : sizes.key) - first_in_block);
  }
};

// One chunk of one head of one row; `idx` counts chunks within heads within rows.
struct Chunk {
  int64_t idx;
  int64_t state;  // row·H + head
  int row, head, number;
  int first_token, tokens;

  __device__ __forceinline__ Chunk(const Sizes &sizes, int64_t state, int number)
      : idx(state * sizes.chunks() + number),
        state(state),
        row(static_cast<int>(state / sizes.heads)),
        head(static_cast<int>(state % sizes.heads)),
        number(number),
        first_token(number * CHUNK),
        tokens(min(CHUNK, sizes.tokens - number * CHUNK)) {}
  __device__ __forceinline__ Chunk(const Sizes &sizes, int64_t idx)
      : Chunk(sizes, idx / sizes.chunks(), static_cast<int>(idx % sizes.chunks())) {}

  __device__ __forceinline__ int64_t token(const Sizes &sizes, int t) const {
    return static_cast<int64_t>(row) * sizes.tokens + first_token + t;
  }
};

// --- Inputs and outputs, token by token ---

// Columns from `column` on of what the head reads, x [B,T,H·(2S+K+V)], over the chunk's tokens.
template <class T>
__device__ __forceinline__ Matrix<T> inputs_of(T *x, const Sizes &sizes, const Chunk &chunk, int column, int columns) {
  const int64_t pitch = static_cast<int64_t>(sizes.heads) * sizes.channels();
  const int64_t start = chunk.token(sizes, 0) * pitch + static_cast<int64_t>(chunk.head) * sizes.channels();
  return {x + start + column, pitch, chunk.tokens, columns};
}

// The same of y [B,T,H·D] or its gradient.
template <class T>
__device__ __forceinline__ Matrix<T> outputs_of(T *y, const Sizes &sizes, const Chunk &chunk, int column, int columns) {
  const int64_t pitch = static_cast<int64_t>(sizes.heads) * sizes.entity();
  const int64_t start = chunk.token(sizes, 0) * pitch + static_cast<int64_t>(chunk.head) * sizes.entity();
  return {y + start + column, pitch, chunk.tokens, columns};
}

// Place of control `index` (log α, β_K, β_V, ρ, λ) in controls [B,T,5,H].
__device__ __forceinline__ int64_t control_at(const Sizes &sizes, const Chunk &chunk, int t, int index) {
  return (chunk.token(sizes, t) * 5 + index) * sizes.heads + chunk.head;
}

// --- Scratch, chunk by chunk; rows past the last token are zero ---

// One part of columns of a [B,H,N,PARTS,64,width] array.
template <class T>
__device__ __forceinline__ Matrix<T> rows_part(T *array, const Chunk &chunk, int width, int column, int columns,
                                               int part) {
  return {array + (chunk.idx * PARTS<T> + part) * CHUNK * width + column, width, CHUNK, columns};
}

// Columns of a [B,H,N,64,width] array.
template <class T>
__device__ __forceinline__ Matrix<T> rows_of(T *array, const Chunk &chunk, int width, int column, int columns) {
  return {array + chunk.idx * CHUNK * width + column, width, CHUNK, columns};
}

// Matrix `which` of `count` in a [B,H,N,count,PARTS,64,64] array, or one of its parts.
template <class T>
__device__ __forceinline__ T *square_at(T *array, const Chunk &chunk, int count, int which) {
  return array + (chunk.idx * count + which) * PARTS<T> * TILE * TILE;
}
template <class T>
__device__ __forceinline__ Matrix<T> square_part(T *array, const Chunk &chunk, int count, int which, int part) {
  return {array + ((chunk.idx * count + which) * PARTS<T> + part) * TILE * TILE, TILE, TILE, TILE};
}
template <class T>
__device__ __forceinline__ void load_square(Split<T> tile, const T *array, const Chunk &chunk, int count, int which) {
  load_tile(tile.high, square_part(array, chunk, count, which, 0));
  if (PARTS<T> == 2) load_tile(tile.low, square_part(array, chunk, count, which, 1));
}

// Rows from `row` on, columns of the slice, of the chunk's state in a [B,H,N,S,D] array.
template <class T>
__device__ __forceinline__ Matrix<T> state_of(T *states, const Sizes &sizes, const Chunk &chunk, int row,
                                              const Slice &slice) {
  T *start = states + chunk.idx * sizes.state_elements();
  return {start + static_cast<int64_t>(row) * sizes.entity() + slice.first, sizes.entity(),
          min(TILE, sizes.address - row), slice.columns};
}

// The decays of all chunks.
struct Decays {
  float *gamma_tail;  // [B,H,N,2,64]: γ_t = e^{g_t}, tail_t = e^{g_C − g_t}

  __device__ __forceinline__ float *gamma(const Chunk &chunk) const { return gamma_tail + chunk.idx * 2 * CHUNK; }
  __device__ __forceinline__ float *tail(const Chunk &chunk) const { return gamma(chunk) + CHUNK; }
};

}  // namespace mixer
