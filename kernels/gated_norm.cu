// RMSNorm per head times a SiLU gate: out = y/√(mean_head(y²) + ε) ⊙ w ⊙ silu(z), and its gradient.
//
//   i = 1/√(mean_head(y²) + ε), σ = sigmoid(z), g = z·σ, u = w ⊙ g ⊙ dout
//   dz = dout ⊙ i·y ⊙ w ⊙ σ(1 + z(1 − σ))      dy = i·u − (i³/D)(u·y) y      dw += Σ i·y ⊙ g ⊙ dout
//
// y, z, out and their gradients [rows, D] in T, a row being one head of one token; w [D] and partials [blocks, D] in
// f32; sums in f32. D even, at most MOST_ROW_WIDTH in backward. Blocks of 256 threads: row_blocks(rows) forward;
// row_backward_blocks(rows) backward with row_backward_shared_bytes(D), then add_partials(partials, blocks, D, dw).
#include "common/rows.cuh"

namespace gated_norm {

// Value and slope of silu.
struct Gate {
  float value, slope;
  __device__ __forceinline__ explicit Gate(float z) {
    const float open = sigmoid(z);
    value = z * open;
    slope = open * fmaf(z, 1.0f - open, 1.0f);
  }
};

template <class T>
__device__ __forceinline__ void forward(const T *y, const T *gate, const float *weight, float eps, T *out, int64_t rows,
                                        int width) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * ROW_WARPS + warp_idx();
  if (row >= rows) return;
  const int64_t at = row * width;
  const float scale = inverse_rms(y + at, width, eps);
  for_each_pair(width, [&](int column) {
    const float2 value = load_pair(y + at + column), z = load_pair(gate + at + column);
    const float2 w = load_pair(weight + column);
    store_pair(out + at + column, scale * value.x * w.x * Gate(z.x).value, scale * value.y * w.y * Gate(z.y).value);
  });
}

template <class T>
__device__ __forceinline__ void backward(const T *y, const T *gate, const float *weight, float eps, const T *dout,
                                         T *dy, T *dgate, float *partials, int64_t rows, int width) {
  rows_with_partials(rows, width, partials, [&](int64_t row, float *dweight) {
    const int64_t at = row * width;
    const float scale = inverse_rms(y + at, width, eps);
    float along = 0.0f;
    for_each_pair(width, [&](int column) {
      const float2 value = load_pair(y + at + column), z = load_pair(gate + at + column);
      const float2 w = load_pair(weight + column), gradient = load_pair(dout + at + column);
      const Gate x_gate(z.x), y_gate(z.y);
      const float2 normalized = make_float2(scale * value.x, scale * value.y);
      along += w.x * x_gate.value * gradient.x * value.x + w.y * y_gate.value * gradient.y * value.y;
      add_pair(dweight + column, normalized.x * x_gate.value * gradient.x, normalized.y * y_gate.value * gradient.y);
      store_pair(dgate + at + column, gradient.x * normalized.x * w.x * x_gate.slope,
                 gradient.y * normalized.y * w.y * y_gate.slope);
    });
    const float pull = scale * scale * scale / static_cast<float>(width) * warp_sum(along);
    for_each_pair(width, [&](int column) {
      const float2 value = load_pair(y + at + column), z = load_pair(gate + at + column);
      const float2 w = load_pair(weight + column), gradient = load_pair(dout + at + column);
      store_pair(dy + at + column, scale * w.x * Gate(z.x).value * gradient.x - pull * value.x,
                 scale * w.y * Gate(z.y).value * gradient.y - pull * value.y);
    });
  });
}

}  // namespace gated_norm

#define GATED_NORM_KERNELS(T, SUFFIX)                                                                               \
  extern "C" __global__ void __launch_bounds__(ROW_THREADS) gated_norm_forward_##SUFFIX(                            \
      const T *y, const T *gate, const float *weight, float eps, T *out, int64_t rows, int width) {                 \
    gated_norm::forward(y, gate, weight, eps, out, rows, width);                                                    \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(ROW_THREADS)                                                         \
      gated_norm_backward_##SUFFIX(const T *y, const T *gate, const float *weight, float eps, const T *dout, T *dy, \
                                   T *dgate, float *partials, int64_t rows, int width) {                            \
    gated_norm::backward(y, gate, weight, eps, dout, dy, dgate, partials, rows, width);                             \
  }

GATED_NORM_KERNELS(float, f32)
GATED_NORM_KERNELS(bf16, bf16)
