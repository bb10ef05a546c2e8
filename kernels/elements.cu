// What is done to whole tensors element by element, of `count` f32.
//
//   out = a + b        to = from        out = 0
//
// Launch: ⌈count/256⌉ blocks of 256 threads.
#include "common/rows.cuh"

namespace elements {

__device__ __forceinline__ int64_t index() {
  return static_cast<int64_t>(blockIdx.x) * ROW_THREADS + threadIdx.x;
}

}  // namespace elements

extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    elements_add(const float *a, const float *b, float *out, int64_t count) {
  const int64_t i = elements::index();
  if (i < count) out[i] = a[i] + b[i];
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
