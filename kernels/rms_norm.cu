// RMSNorm: y = x/√(mean(x²) + ε) ⊙ w, and its gradient.
//
//   i = 1/√(mean(x²) + ε), u = w ⊙ dy      dx = i·u − (i³/D)(u·x) x + residual      dw += Σ_rows i·x ⊙ dy
//
// x, y, dy, dx and residual (may be null) [rows, D] in T, w [D] in f32, partials [blocks, D] in f32; sums in f32. D
// even, at most MOST_ROW_WIDTH in backward. Blocks of 256 threads: row_blocks(rows) forward; row_backward_blocks(rows)
// backward with row_backward_shared_bytes(D), then add_partials(partials, blocks, D, dw).
#include "common/rows.cuh"

namespace rms_norm {

template <class T>
__device__ __forceinline__ void forward(const T *x, const float *weight, float eps, T *y, int64_t rows, int width) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * ROW_WARPS + warp_idx();
  if (row >= rows) return;
  const T *x_row = x + row * width;
  const float scale = inverse_rms(x_row, width, eps);
  for_each_pair(width, [&](int column) {
    const float2 value = load_pair(x_row + column), w = load_pair(weight + column);
    store_pair(y + row * width + column, scale * value.x * w.x, scale * value.y * w.y);
  });
}

template <class T>
__device__ __forceinline__ void backward(const T *x, const float *weight, float eps, const T *dy, const T *residual,
                                         T *dx, float *partials, int64_t rows, int width) {
  rows_with_partials(rows, width, partials, [&](int64_t row, float *dweight) {
    const int64_t at = row * width;
    const float scale = inverse_rms(x + at, width, eps);
    float along = 0.0f;
    for_each_pair(width, [&](int column) {
      const float2 value = load_pair(x + at + column), gradient = load_pair(dy + at + column);
      const float2 w = load_pair(weight + column);
      along += w.x * gradient.x * value.x + w.y * gradient.y * value.y;
      add_pair(dweight + column, scale * value.x * gradient.x, scale * value.y * gradient.y);
    });
    const float pull = scale * scale * scale / static_cast<float>(width) * warp_sum(along);
    for_each_pair(width, [&](int column) {
      const float2 value = load_pair(x + at + column), gradient = load_pair(dy + at + column);
      const float2 w = load_pair(weight + column);
      const float2 bypass = residual == nullptr ? make_float2(0.0f, 0.0f) : load_pair(residual + at + column);
      store_pair(dx + at + column, scale * w.x * gradient.x - pull * value.x + bypass.x,
                 scale * w.y * gradient.y - pull * value.y + bypass.y);
    });
  });
}

}  // namespace rms_norm

#define RMS_NORM_KERNELS(T, SUFFIX)                                                                                 \
  extern "C" __global__ void __launch_bounds__(ROW_THREADS)                                                         \
      rms_norm_forward_##SUFFIX(const T *x, const float *weight, float eps, T *y, int64_t rows, int width) {        \
    rms_norm::forward(x, weight, eps, y, rows, width);                                                              \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(ROW_THREADS)                                                         \
      rms_norm_backward_##SUFFIX(const T *x, const float *weight, float eps, const T *dy, const T *residual, T *dx, \
                                 float *partials, int64_t rows, int width) {                                        \
    rms_norm::backward(x, weight, eps, dy, residual, dx, partials, rows, width);                                    \
  }

RMS_NORM_KERNELS(float, f32)
RMS_NORM_KERNELS(bf16, bf16)
