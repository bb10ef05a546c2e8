// SwiGLU on one packed projection: out = silu(x[.., :F]) ⊙ x[.., F:], and its gradient.
//
//   g = x[.., :F], u = x[.., F:], σ = sigmoid(g)      dg = dout ⊙ u ⊙ σ(1 + g(1 − σ))      du = dout ⊙ g·σ
//
// x, dx [rows, 2F], out, dout [rows, F] in T. F even. Launch: rows·⌈F/512⌉ blocks of 256 threads, a pair a thread.
#include "common/rows.cuh"

namespace swiglu {

constexpr int COLUMNS_PER_BLOCK = 2 * ROW_THREADS;
constexpr int64_t blocks(int64_t rows, int width) {
  return rows * ((width + COLUMNS_PER_BLOCK - 1) / COLUMNS_PER_BLOCK);
}

// Calls `body(row, column)` for the thread's pair.
template <class Body>
__device__ __forceinline__ void for_the_pair(int width, Body &&body) {
  const int per_row = (width + COLUMNS_PER_BLOCK - 1) / COLUMNS_PER_BLOCK;
  const int64_t row = blockIdx.x / per_row;
  const int column = static_cast<int>(blockIdx.x % per_row) * COLUMNS_PER_BLOCK + 2 * threadIdx.x;
  if (column < width) body(row, column);
}

template <class T>
__device__ __forceinline__ void forward(const T *x, T *out, int width) {
  for_the_pair(width, [&](int64_t row, int column) {
    const float2 gate = load_pair(x + row * 2 * width + column), up = load_pair(x + row * 2 * width + width + column);
    store_pair(out + row * width + column, gate.x * sigmoid(gate.x) * up.x, gate.y * sigmoid(gate.y) * up.y);
  });
}

template <class T>
__device__ __forceinline__ void backward(const T *x, const T *dout, T *dx, int width) {
  for_the_pair(width, [&](int64_t row, int column) {
    const int64_t gate_at = row * 2 * width + column, up_at = gate_at + width;
    const float2 gate = load_pair(x + gate_at), up = load_pair(x + up_at);
    const float2 gradient = load_pair(dout + row * width + column);
    const float open_x = sigmoid(gate.x), open_y = sigmoid(gate.y);
    store_pair(dx + gate_at, gradient.x * up.x * open_x * fmaf(gate.x, 1.0f - open_x, 1.0f),
               gradient.y * up.y * open_y * fmaf(gate.y, 1.0f - open_y, 1.0f));
    store_pair(dx + up_at, gradient.x * gate.x * open_x, gradient.y * gate.y * open_y);
  });
}

}  // namespace swiglu

#define SWIGLU_KERNELS(T, SUFFIX)                                                                                    \
  extern "C" __global__ void __launch_bounds__(ROW_THREADS) swiglu_forward_##SUFFIX(const T *x, T *out, int width) { \
    swiglu::forward(x, out, width);                                                                                  \
  }                                                                                                                  \
  extern "C" __global__ void __launch_bounds__(ROW_THREADS)                                                          \
      swiglu_backward_##SUFFIX(const T *x, const T *dout, T *dx, int width) {                                        \
    swiglu::backward(x, dout, dx, width);                                                                            \
  }

SWIGLU_KERNELS(float, f32)
SWIGLU_KERNELS(bf16, bf16)
