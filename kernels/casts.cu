// f32 to bf16 (to nearest, ties to even) and back, element by element.
//
// Launch: blocks(count) of 256 threads, eight elements a thread; pointers aligned to 16 bytes.
#include "common/device.cuh"

namespace casts {

constexpr int THREADS = 256;
constexpr int PER_THREAD = 8;
constexpr int64_t blocks(int64_t count) { return (count + THREADS * PER_THREAD - 1) / (THREADS * PER_THREAD); }

template <class From, class To>
__device__ __forceinline__ void cast(const From *from, To *to, int64_t count) {
  // Neighbouring threads take neighbouring pairs.
  const int64_t first = static_cast<int64_t>(blockIdx.x) * THREADS * PER_THREAD + 2 * threadIdx.x;
#pragma unroll
  for (int i = 0; i < PER_THREAD; i += 2) {
    const int64_t at = first + i * THREADS;
    if (at + 1 < count) {
      const float2 pair = load_pair(from + at);
      store_pair(to + at, pair.x, pair.y);
    } else if (at < count) {
      to[at] = from_float<To>(to_float(from[at]));
    }
  }
}

}  // namespace casts

extern "C" __global__ void __launch_bounds__(casts::THREADS)
    cast_f32_to_bf16(const float *from, bf16 *to, int64_t count) {
  casts::cast(from, to, count);
}
extern "C" __global__ void __launch_bounds__(casts::THREADS)
    cast_bf16_to_f32(const bf16 *from, float *to, int64_t count) {
  casts::cast(from, to, count);
}
