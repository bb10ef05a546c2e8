// sum_i += Σ_p partials_pi, partial sums in order: the end of every gradient that is summed over rows.
//
// partials [count, width], sum [width], f32. Launch: ⌈width/256⌉ blocks of 256 threads.
#include "common/rows.cuh"

extern "C" __global__ void __launch_bounds__(ROW_THREADS)
    add_partials(const float *partials, int64_t count, int64_t width, float *sum) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * ROW_THREADS + threadIdx.x;
  if (i >= width) return;
  float total = 0.0f;
  for (int64_t partial = 0; partial < count; ++partial) total += partials[partial * width + i];
  sum[i] += total;
}
