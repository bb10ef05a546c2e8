// AdamW over all parameters in one launch, and the squares of the gradient norm before it; from their sum the host makes
// the clipping factor.
//
// For update number t, with g the gradient times the clipping factor, η the learning rate and λ the weight decay:
//
//   m ← β₁ m + (1 − β₁) g        v ← β₂ v + (1 − β₂) g²
//   p ← p − η λ p − η (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)
//
// Parameters, moments and gradients are f32; a bf16 copy of the parameter is written where one is kept. Constants
// come from the host, made in f64. `parts` lists pieces of at most PART_ELEMENTS of the tensors, one a block. The norm is
// summed in f64: threads, warps, and on the host parts in order, so it is the same on every run.
// Launch: one block of 256 threads a part.
#include "common/device.cuh"

namespace adamw {

constexpr int THREADS = 256;
constexpr int PART_ELEMENTS = 8192;

}  // namespace adamw

// One parameter tensor; `copy` is null where no bf16 copy is kept.
struct AdamwTensor {
  float *parameter, *m, *v;
  const float *gradient;
  bf16 *copy;
  int64_t elements;
  float decay;  // η λ; 0 outside the decay group
};
// `first`: of the part's elements in its tensor.
struct AdamwPart {
  int64_t tensor, first;
};
struct AdamwConstants {
  float beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
  float rate;         // η / (1 − β₁ᵗ)
  float correction2;  // 1 / (1 − β₂ᵗ)
};

namespace adamw {

// Calls `body(i)` for the elements of the block's part.
template <class Body>
__device__ __forceinline__ void for_each_element(const AdamwTensor &tensor, const AdamwPart &part, Body &&body) {
  const int64_t left = tensor.elements - part.first;
  const int64_t past = part.first + (left < PART_ELEMENTS ? left : PART_ELEMENTS);
  for (int64_t i = part.first + threadIdx.x; i < past; i += THREADS) body(i);
}

}  // namespace adamw

extern "C" __global__ void __launch_bounds__(adamw::THREADS)
    adamw_update(const AdamwTensor *tensors, const AdamwPart *parts, const float *grad_scale, AdamwConstants c) {
  const AdamwPart part = parts[blockIdx.x];
  const AdamwTensor tensor = tensors[part.tensor];
  const float scale = *grad_scale;
  adamw::for_each_element(tensor, part, [&](int64_t i) {
    const float g = tensor.gradient[i] * scale, p = tensor.parameter[i];
    const float m = fmaf(c.beta1, tensor.m[i], c.one_minus_beta1 * g);
    const float v = fmaf(c.beta2, tensor.v[i], c.one_minus_beta2 * g * g);
    const float updated = fmaf(-tensor.decay, p, p) - c.rate * m / (sqrtf(v * c.correction2) + c.eps);
    tensor.m[i] = m;
    tensor.v[i] = v;
    tensor.parameter[i] = updated;
    if (tensor.copy != nullptr) tensor.copy[i] = from_float<bf16>(updated);
  });
}

// Σ g² of each part.
extern "C" __global__ void __launch_bounds__(adamw::THREADS)
    squared_norm(const AdamwTensor *tensors, const AdamwPart *parts, double *sums) {
  __shared__ double scratch[adamw::THREADS / LANES];
  const AdamwPart part = parts[blockIdx.x];
  const AdamwTensor tensor = tensors[part.tensor];
  double sum = 0.0;
  adamw::for_each_element(tensor, part, [&](int64_t i) {
    const double g = tensor.gradient[i];
    sum = fma(g, g, sum);
  });
  sum = block_sum<adamw::THREADS>(sum, scratch);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
