// What is done to whole tensors element by element, of `count` elements.
//
//   out = a + b, in f32 or bf16        to = from, in f32        out = 0, in f32
//
// Launch: ⌈count/256⌉ blocks of 256 threads.
#include "common/rows.cuh"

namespace elements {

__device__ __forceinline__ int64_t index() {
  return static_cast<int64_t>(blockIdx.x) * ROW_THREADS + threadIdx.x;
}

template <class T>
__device__ __forceinline__ void add(const T *a, const T *b, T *out, int64_t count) {
  const int64_t i = index();
  if (i < count) out[i] = from_float<T>(to_float(a[i]) + to_float(b[i]));
}

}  // namespace elements

extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    elements_add_f32(const float *a, const float *b, float *out, int64_t count) {
  elements::add(a, b, out, count);
}
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    elements_add_bf16(const bf16 *a, const bf16 *b, bf16 *out, int64_t count) {
  elements::add(a, b, out, count);
}
extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    elements_copy(const float *from, float *to, int64_t count) {
  const int64_t i = elements::index();
  if (i < count) to[i] = from[i];
}
extern "C" __global__ void __launch_bounds__(ROW_THREADS) elements_clear(float *out, int64_t count) {
  const int64_t i = elements::index();
  if (i < count) out[i] = 0.0f;
}
