// Ops whose rows are independent: a warp takes a row, and a lane every 32nd pair of its columns.
//
// Widths are even, so that pairs are aligned. Gradients of per-column weights are summed without atomics: each
// warp adds up its own rows in shared memory, a block its warps, and `add_partials` (partials.cu) the blocks, all
// in order.
#pragma once

#include "device.cuh"

constexpr int ROW_THREADS = 256;
constexpr int ROW_WARPS = ROW_THREADS / LANES;
// Rows of one block in backward, and with it the number of partial sums.
constexpr int ROWS_PER_BLOCK = 64;
// Widest row of an op that sums weight gradients: a column of f32 for each warp.
constexpr int MOST_ROW_WIDTH = static_cast<int>(MOST_SHARED_BYTES / (ROW_WARPS * sizeof(float)));

constexpr int64_t row_blocks(int64_t rows) { return (rows + ROW_WARPS - 1) / ROW_WARPS; }
constexpr int64_t row_backward_blocks(int64_t rows) { return (rows + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK; }
constexpr size_t row_backward_shared_bytes(int width) { return ROW_WARPS * width * sizeof(float); }

// Calls `body` with the first column of each of the lane's pairs.
template <class Body>
__device__ __forceinline__ void for_each_pair(int width, Body &&body) {
  for (int column = 2 * lane_idx(); column < width; column += 2 * LANES) body(column);
}

// 1/√(mean(x²) + ε) of one row.
template <class T>
__device__ __forceinline__ float inverse_rms(const T *row, int width, float eps) {
  float sum = 0.0f;
  for_each_pair(width, [&](int column) {
    const float2 x = load_pair(row + column);
    sum += x.x * x.x + x.y * x.y;
  });
  return 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(width) + eps);
}

// Runs `row(idx, dweight)` for the block's rows, with the warp's own sums dweight [width], then writes the sums of
// the warps to the block's row of `partials`.
template <class Row>
__device__ __forceinline__ void rows_with_partials(int64_t rows, int width, float *partials, Row &&row) {
  float *all = reinterpret_cast<float *>(shared_memory());
  float *own = all + warp_idx() * width;
  for_each_pair(width, [&](int column) { store_pair(own + column, 0.0f, 0.0f); });
  const int64_t first = static_cast<int64_t>(blockIdx.x) * ROWS_PER_BLOCK;
  const int64_t past = first + ROWS_PER_BLOCK < rows ? first + ROWS_PER_BLOCK : rows;
  for (int64_t idx = first + warp_idx(); idx < past; idx += ROW_WARPS) row(idx, own);
  __syncthreads();
  for (int column = threadIdx.x; column < width; column += ROW_THREADS) {
    float sum = 0.0f;
    for (int warp = 0; warp < ROW_WARPS; ++warp) sum += all[warp * width + column];
    partials[static_cast<int64_t>(blockIdx.x) * width + column] = sum;
  }
}

// x ← x + y, for a pair in shared memory.
__device__ __forceinline__ void add_pair(float *to, float x, float y) {
  const float2 before = load_pair(to);
  store_pair(to, before.x + x, before.y + y);
}
