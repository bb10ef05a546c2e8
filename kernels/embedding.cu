// Rows of a table by id, and the gradient of that.
//
//   y_t = table[id_t]        dtable[v] += Σ_{t : id_t = v} dy_t, in the order of t
//
// ids [N] (u32, each below V), table and dtable [V,D] in f32, y and dy [N,D] in T. D even. For backward the launcher
// sorts: `order [N]` holds the positions by id and then by place, `segments [U+1]` where each of the U ids begins in
// it. A thread takes a pair of columns of one id and adds its uses in order, so no two threads touch one element.
// Launch: blocks(N, D) forward, blocks(U, D) backward, of 128 threads.
#include "common/device.cuh"

namespace embedding {

constexpr int THREADS = 128;
constexpr int column_blocks(int width) { return (width + 2 * THREADS - 1) / (2 * THREADS); }
constexpr int64_t blocks(int64_t rows, int width) { return rows * column_blocks(width); }

// Uses of an id whose rows are read before the first is added: a frequent id waits for memory less often.
constexpr int BATCH = 8;

template <class T>
__device__ __forceinline__ void forward(const uint32_t *ids, const float *table, T *y, int width) {
  const int64_t position = blockIdx.x / column_blocks(width);
  const int column = static_cast<int>(blockIdx.x % column_blocks(width)) * 2 * THREADS + 2 * threadIdx.x;
  if (column >= width) return;
  const float2 pair = load_pair(table + static_cast<int64_t>(ids[position]) * width + column);
  store_pair(y + position * width + column, pair.x, pair.y);
}

template <class T>
__device__ __forceinline__ void backward(const uint32_t *ids, const uint32_t *order, const uint32_t *segments,
                                         const T *dy, float *dtable, int width) {
  const int64_t segment = blockIdx.x / column_blocks(width);
  const int column = static_cast<int>(blockIdx.x % column_blocks(width)) * 2 * THREADS + 2 * threadIdx.x;
  if (column >= width) return;
  const uint32_t first = segments[segment], past = segments[segment + 1];
  float *row = dtable + static_cast<int64_t>(ids[order[first]]) * width + column;
  float2 sum = load_pair(row);
  for (uint32_t use = first; use < past; use += BATCH) {
    float2 batch[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i)
      batch[i] = use + i < past ? load_pair(dy + static_cast<int64_t>(order[use + i]) * width + column)
                                : make_float2(0.0f, 0.0f);
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      sum.x += batch[i].x;
      sum.y += batch[i].y;
    }
  }
  store_pair(row, sum.x, sum.y);
}

}  // namespace embedding

#define EMBEDDING_KERNELS(T, SUFFIX)                                                                                 \
  extern "C" __global__ void __launch_bounds__(embedding::THREADS)                                                   \
      embedding_forward_##SUFFIX(const uint32_t *ids, const float *table, T *y, int width) {                         \
    embedding::forward(ids, table, y, width);                                                                        \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(embedding::THREADS) embedding_backward_##SUFFIX(                      \
      const uint32_t *ids, const uint32_t *order, const uint32_t *segments, const T *dy, float *dtable, int width) { \
    embedding::backward(ids, order, segments, dy, dtable, width);                                                    \
  }

EMBEDDING_KERNELS(float, f32)
EMBEDDING_KERNELS(bf16, bf16)
