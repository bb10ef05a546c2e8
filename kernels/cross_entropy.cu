// Losses of a block of tokens from their logits, and the logits' gradient in their place.
//
//   lse = ln Σ_v exp(l_v)      loss = lse − l_target      G = scale·((1 + 2·z·lse)·softmax(l) − onehot(target))
//
// logits [N,V] in f32, from a matrix product over a block of N tokens; targets [N] (u32); losses [N] in f32. A token
// whose target is IGNORE has loss 0 and G = 0. `cross_entropy_loss` leaves the logits alone. The other two write G over
// them: in f32, or in bf16 as rows that begin where the f32 rows did, 2·V elements apart, ready to be an operand of the
// products dx = G W and dW += Gᵀx. Partial sums are f32 a thread and f64 between threads. Launch: N blocks of 256
// threads, no shared memory of the launcher's.
#include "common/device.cuh"

namespace cross_entropy {

constexpr int THREADS = 256;
constexpr uint32_t IGNORE = 0xffffffffu;
// Columns that a thread has in its registers at a time.
constexpr int PER_THREAD = 4;
constexpr int COLUMNS_AT_ONCE = THREADS * PER_THREAD;

// The largest logit so far, and Σ exp(l − max). A NaN stays in the sum whatever comes after it.
struct Softmax {
  float max, sum;
  __device__ __forceinline__ void add(float logit) {
    if (logit <= max) {
      sum += expf(logit - max);
    } else {
      sum = (max == -INFINITY ? 0.0f : sum * expf(max - logit)) + 1.0f;
      max = logit;
    }
  }
};

struct Normalizer {
  double lse, sum;
  float max;
};

// The largest logit of the row and its sum of exponentials, in every thread.
__device__ __forceinline__ Normalizer normalizer(const float *row, int vocabulary) {
  __shared__ float maxima[THREADS / LANES];
  __shared__ double sums[THREADS / LANES];
  Softmax own = {-INFINITY, 0.0f};
  for (int column = threadIdx.x; column < vocabulary; column += THREADS) own.add(row[column]);
  float max = own.max;
#pragma unroll
  for (int distance = LANES / 2; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(ALL_LANES, max, distance);
    max = other > max ? other : max;
  }
  if (lane_idx() == 0) maxima[warp_idx()] = max;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < THREADS / LANES; ++warp) max = maxima[warp] > max ? maxima[warp] : max;
  const double part = own.sum == 0.0f ? 0.0 : static_cast<double>(own.sum) * expf(own.max - max);
  const double sum = block_sum<THREADS>(part, sums);
  return {static_cast<double>(max) + log(sum), sum, max};
}

__device__ __forceinline__ float loss_of(const Normalizer &normalizer, float target_logit) {
  return static_cast<float>(normalizer.lse - static_cast<double>(target_logit));
}

__device__ __forceinline__ void loss(const float *logits, const uint32_t *targets, float *losses, int vocabulary) {
  const int64_t token = blockIdx.x;
  const uint32_t target = targets[token];
  if (target == IGNORE) {
    if (threadIdx.x == 0) losses[token] = 0.0f;
    return;
  }
  const float *row = logits + token * vocabulary;
  const Normalizer whole = normalizer(row, vocabulary);
  if (threadIdx.x == 0) losses[token] = loss_of(whole, row[target]);
}

template <class T>
__device__ __forceinline__ void loss_and_gradient(float *logits, const uint32_t *targets, float scale, float z_loss,
                                                  float *losses, int vocabulary) {
  const int64_t token = blockIdx.x;
  const uint32_t target = targets[token];
  float *row = logits + token * vocabulary;
  T *gradient = reinterpret_cast<T *>(row);
  if (target == IGNORE) {
    for (int column = threadIdx.x; column < vocabulary; column += THREADS) gradient[column] = from_float<T>(0.0f);
    if (threadIdx.x == 0) losses[token] = 0.0f;
    return;
  }
  const Normalizer whole = normalizer(row, vocabulary);
  if (threadIdx.x == 0) losses[token] = loss_of(whole, row[target]);
  const float factor = static_cast<float>(scale * (1.0 + 2.0 * z_loss * whole.lse) / whole.sum);
  // A gradient takes no more room than its logit, so what is written lies at or before what was read last.
  for (int first = 0; first < vocabulary; first += COLUMNS_AT_ONCE) {
    float part[PER_THREAD];
#pragma unroll
    for (int i = 0; i < PER_THREAD; ++i) {
      const int column = first + i * THREADS + threadIdx.x;
      part[i] = column < vocabulary ? row[column] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < PER_THREAD; ++i) {
      const int column = first + i * THREADS + threadIdx.x;
      const float hit = column == static_cast<int>(target) ? scale : 0.0f;
      if (column < vocabulary) gradient[column] = from_float<T>(expf(part[i] - whole.max) * factor - hit);
    }
  }
}

}  // namespace cross_entropy

extern "C" __global__ void __launch_bounds__(cross_entropy::THREADS)
    cross_entropy_loss(const float *logits, const uint32_t *targets, float *losses, int vocabulary) {
  cross_entropy::loss(logits, targets, losses, vocabulary);
}
extern "C" __global__ void __launch_bounds__(cross_entropy::THREADS)
    cross_entropy_gradient_f32(float *logits, const uint32_t *targets, float scale, float z_loss, float *losses,
                               int vocabulary) {
  cross_entropy::loss_and_gradient<float>(logits, targets, scale, z_loss, losses, vocabulary);
}
extern "C" __global__ void __launch_bounds__(cross_entropy::THREADS)
    cross_entropy_gradient_bf16(float *logits, const uint32_t *targets, float scale, float z_loss, float *losses,
                                int vocabulary) {
  cross_entropy::loss_and_gradient<bf16>(logits, targets, scale, z_loss, losses, vocabulary);
}
