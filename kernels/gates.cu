// From gate logits to the mixer's controls, and the gradient of that.
//
//   log α = −min(m, 10⁵), m = exp(A_log)·softplus(u), u = x_α + dt_bias       β_K, β_V, ρ, λ = σ = sigmoid(x + bias)
//   dx_α = ddt_bias = −exp(A_log)·sigmoid(u)·d(log α), dA_log = −m·d(log α)    dx = dbias = σ(1 − σ)·dσ
//
// logits, controls and their gradients [N,5,H], N tokens, in the order log α, β_K, β_V, ρ, λ; A_log, dt_bias [H], bias
// [4,H], partials [blocks,6,H] for A_log, dt_bias and bias. All f32, in every precision of the run: a decay multiplies
// over a whole document, and so would its rounding. Where the bound holds, the gradient is 0. `rho_pin`, `lambda_pin`:
// a constant instead of the controller, NaN for none; it has no gradient. With `tie_beta`, β_V follows β_K and gives
// it its gradient. Launch: blocks(N) of 128 threads; after backward, add_partials over 6·H columns.
#include "common/device.cuh"

namespace gates {

constexpr int THREADS = 128;
constexpr int TOKENS_PER_BLOCK = 64;
constexpr float MAX_DECAY = 1e5f;
// Below this, softplus(u) is e^u to the last bit, and the decay one exponential.
constexpr float EXPONENTIAL_TAIL = -40.0f;

constexpr int64_t blocks(int64_t tokens) { return (tokens + TOKENS_PER_BLOCK - 1) / TOKENS_PER_BLOCK; }

// m = exp(a)·softplus(u), bounded, with its slopes. No product here is ∞·0: where softplus(u) could vanish, the
// exponents are added instead, and a product past the bound is dropped before it meets anything else.
struct Decay {
  float value, slope, log_slope;
  __device__ __forceinline__ Decay(float u, float a_log) {
    const bool tail = u < EXPONENTIAL_TAIL;
    const float rate = expf(tail ? a_log + u : a_log);
    value = tail ? rate : rate * (u > 0.0f ? u + log1pf(expf(-u)) : log1pf(expf(u)));
    log_slope = value;
    slope = tail ? value : rate * sigmoid(u);
    if (value > MAX_DECAY) {
      value = MAX_DECAY;
      slope = log_slope = 0.0f;
    }
  }
};

struct Parameters {
  const float *a_log, *dt_bias, *bias;
  float rho_pin, lambda_pin;
  bool tie_beta;

  // The pin of controller 1 … 4, NaN for none.
  __device__ __forceinline__ float pin(int controller) const {
    const float none = nanf("");
    return controller == 3 ? rho_pin : controller == 4 ? lambda_pin : none;
  }
  // Whose logit makes controller 1 … 4.
  __device__ __forceinline__ int source(int controller) const { return controller == 2 && tie_beta ? 1 : controller; }
};

// Calls `body(column, first, past)` for the thread's columns of [5,H] and the block's tokens.
template <class Body>
__device__ __forceinline__ void for_columns(int64_t tokens, int heads, Body &&body) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * TOKENS_PER_BLOCK;
  const int64_t past = first + TOKENS_PER_BLOCK < tokens ? first + TOKENS_PER_BLOCK : tokens;
  for (int column = threadIdx.x; column < 5 * heads; column += THREADS) body(column, first, past);
}

__device__ __forceinline__ void forward(const float *logits, const Parameters &parameters, float *controls,
                                        int64_t tokens, int heads) {
  for_columns(tokens, heads, [&](int column, int64_t first, int64_t past) {
    const int controller = column / heads, head = column % heads;
    const int source = parameters.source(controller) * heads + head;
    const float pin = parameters.pin(controller);
    for (int64_t t = first; t < past; ++t) {
      const float logit = logits[t * 5 * heads + source];
      float value = pin;
      if (controller == 0) {
        value = -Decay(logit + parameters.dt_bias[head], parameters.a_log[head]).value;
      } else if (pin != pin) {
        value = sigmoid(logit + parameters.bias[source - heads]);
      }
      controls[t * 5 * heads + column] = value;
    }
  });
}

__device__ __forceinline__ void backward(const float *logits, const Parameters &parameters, const float *dcontrols,
                                         float *dlogits, float *partials, int64_t tokens, int heads) {
  float *sums = partials + static_cast<int64_t>(blockIdx.x) * 6 * heads;
  for_columns(tokens, heads, [&](int column, int64_t first, int64_t past) {
    const int controller = column / heads, head = column % heads;
    float da_log = 0.0f, dbias = 0.0f;
    for (int64_t t = first; t < past; ++t) {
      const int64_t at = t * 5 * heads;
      const float logit = logits[at + column];
      float dlogit = 0.0f;
      if (controller == 0) {
        const Decay decay(logit + parameters.dt_bias[head], parameters.a_log[head]);
        dlogit = -decay.slope * dcontrols[at + column];
        da_log -= decay.log_slope * dcontrols[at + column];
      } else if (parameters.pin(controller) != parameters.pin(controller) &&
                 parameters.source(controller) == controller) {
        float gradient = dcontrols[at + column];
        if (controller == 1 && parameters.tie_beta) gradient += dcontrols[at + column + heads];
        // 1 − σ(u) is σ(−u), which keeps its digits where σ(u) is near 1.
        const float u = logit + parameters.bias[column - heads];
        dlogit = sigmoid(u) * sigmoid(-u) * gradient;
      }
      dlogits[at + column] = dlogit;
      dbias += dlogit;
    }
    if (controller == 0) sums[head] = da_log;
    sums[heads + column] = dbias;
  });
}

}  // namespace gates

extern "C" __global__ void __launch_bounds__(gates::THREADS)
    gates_forward(const float *logits, const float *a_log, const float *dt_bias, const float *bias, float rho_pin,
                  float lambda_pin, int tie_beta, float *controls, int64_t tokens, int heads) {
  gates::forward(logits, {a_log, dt_bias, bias, rho_pin, lambda_pin, tie_beta != 0}, controls, tokens, heads);
}

extern "C" __global__ void __launch_bounds__(gates::THREADS)
    gates_backward(const float *logits, const float *a_log, const float *dt_bias, const float *bias, float rho_pin,
                   float lambda_pin, int tie_beta, const float *dcontrols, float *dlogits, float *partials,
                   int64_t tokens, int heads) {
  gates::backward(logits, {a_log, dt_bias, bias, rho_pin, lambda_pin, tie_beta != 0}, dcontrols, dlogits, partials,
                  tokens, heads);
}
