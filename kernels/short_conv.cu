// Depthwise causal convolution over time, then SiLU; it never crosses a document's start. And its gradient.
//
//   pre_t  = Σ_j w_j ⊙ x_{t−W+1+j}        y = silu(pre)        final = x_{T−W+1} … x_{T−1}
//   dpre_t = dy_t ⊙ σ(1 + pre(1 − σ)), σ = sigmoid(pre)
//   dx_u   = Σ_j w_j ⊙ dpre_{u+W−1−j}     dw_j += Σ_t dpre_t ⊙ x_{t−W+1+j}
//
// Inputs before the row come from the state; inputs of another document count as zero, and so does the state once a
// document has begun. The token after the row goes on with its last document.
//
// x, y, dy, dx [B,T,C] and states [B,W−1,C] (oldest first) in T; w [C,W] and partials [blocks, C·W] in f32. W from 2
// to 8. `state`, `dfinal` and `starts` may be null; `dstate` is always written, zeros where there is no state.
// Launch: blocks(B, T, C) of 128 threads, a channel a thread and 64 tokens a block; after backward,
// add_partials(partials, token_blocks(B, T), C·W, dw).
#include "common/device.cuh"

namespace short_conv {

constexpr int THREADS = 128;
// Blocks on a multiprocessor that the compiler must allow for; left to itself it aims at more, and spills.
constexpr int LEAST_BLOCKS = 4;
// Backward computes W − 1 tokens beyond a block's own once more.
constexpr int TOKENS_PER_BLOCK = 64;

constexpr int64_t blocks_in_row(int tokens) { return (tokens + TOKENS_PER_BLOCK - 1) / TOKENS_PER_BLOCK; }
constexpr int64_t token_blocks(int batch, int tokens) { return batch * blocks_in_row(tokens); }
constexpr int64_t channel_blocks(int channels) { return (channels + THREADS - 1) / THREADS; }
constexpr int64_t blocks(int batch, int tokens, int channels) {
  return token_blocks(batch, tokens) * channel_blocks(channels);
}

// What one thread works on: a channel, and a block of tokens of a row.
template <int W>
struct Place {
  int64_t row, token_block;
  int channel, tokens, channels, first, past;

  __device__ __forceinline__ Place(int tokens, int channels) : tokens(tokens), channels(channels) {
    token_block = blockIdx.x / channel_blocks(channels);
    channel = static_cast<int>(blockIdx.x % channel_blocks(channels)) * THREADS + threadIdx.x;
    row = token_block / blocks_in_row(tokens);
    first = static_cast<int>(token_block % blocks_in_row(tokens)) * TOKENS_PER_BLOCK;
    past = min(first + TOKENS_PER_BLOCK, tokens);
  }
  __device__ __forceinline__ int64_t token(int t) const { return (row * tokens + t) * channels + channel; }
  __device__ __forceinline__ int64_t slot(int i) const { return (row * (W - 1) + i) * channels + channel; }
};

// The last W inputs of a channel, oldest first, and how many of them the newest token sees before itself.
template <int W, class T>
struct Window {
  float x[W];
  int seen;
  const T *inputs, *state;
  const uint8_t *starts;
  Place<W> place;

  // Just before token `first`.
  __device__ __forceinline__ Window(const T *inputs, const T *state, const uint8_t *starts, const Place<W> &place)
      : seen(W), inputs(inputs), state(state), starts(starts), place(place) {
#pragma unroll
    for (int j = 0; j < W; ++j) x[j] = 0.0f;
#pragma unroll
    for (int t = 1 - W; t < 0; ++t) advance(place.first + t);
  }

  // Takes in token t, which may lie before the row, where the state is.
  __device__ __forceinline__ void advance(int t) {
    float next = 0.0f;
    if (t >= 0) {
      begin(t);
      next = to_float(inputs[place.token(t)]);
    } else if (state != nullptr) {
      next = to_float(state[place.slot(t + W - 1)]);
    }
#pragma unroll
    for (int j = 0; j + 1 < W; ++j) x[j] = x[j + 1];
    x[W - 1] = next;
  }
  // A token's place in its document: at a start, what was seen before is gone.
  __device__ __forceinline__ void begin(int t) {
    if (starts != nullptr && starts[place.row * place.tokens + t] != 0) {
      seen = 0;
#pragma unroll
      for (int j = 0; j < W; ++j) x[j] = 0.0f;
    } else {
      seen = min(seen + 1, W);
    }
  }
  __device__ __forceinline__ float convolve(const float (&weight)[W]) const {
    float sum = weight[0] * x[0];
#pragma unroll
    for (int j = 1; j < W; ++j) sum = fmaf(weight[j], x[j], sum);
    return sum;
  }
};

template <int W, class T>
__device__ __forceinline__ void forward(const T *x, const float *weight, const T *state, const uint8_t *starts, T *y,
                                        T *final_state, int tokens, int channels) {
  const Place<W> place(tokens, channels);
  if (place.channel >= channels) return;
  float taps[W];
#pragma unroll
  for (int j = 0; j < W; ++j) taps[j] = weight[place.channel * W + j];
  Window<W, T> window(x, state, starts, place);
  for (int t = place.first; t < place.past; ++t) {
    window.advance(t);
    const float pre = window.convolve(taps);
    y[place.token(t)] = from_float<T>(pre * sigmoid(pre));
  }
  if (place.past < tokens) return;
#pragma unroll
  for (int i = 0; i < W - 1; ++i) final_state[place.slot(i)] = from_float<T>(window.x[i + 1]);
}

template <int W, class T>
__device__ __forceinline__ void backward(const T *x, const float *weight, const T *state, const uint8_t *starts,
                                         const T *dy, const T *dfinal, T *dx, T *dstate, float *partials, int tokens,
                                         int channels) {
  const Place<W> place(tokens, channels);
  if (place.channel >= channels) return;
  float taps[W], dweight[W], pending[W];  // pending[j]: what dx of token t − W + 1 + j has so far
#pragma unroll
  for (int j = 0; j < W; ++j) {
    taps[j] = weight[place.channel * W + j];
    dweight[j] = pending[j] = 0.0f;
  }
  Window<W, T> window(x, state, starts, place);
  // What is known of token u's gradient for good; the state stands before token 0.
  auto emit = [&](int u, float gradient) {
    if (u >= place.first && u < place.past) dx[place.token(u)] = from_float<T>(gradient);
    if (u < 0 && place.first == 0) dstate[place.slot(u + W - 1)] = from_float<T>(state == nullptr ? 0.0f : gradient);
  };
  const int end = min(place.past + W - 1, tokens);
  for (int t = place.first; t < end; ++t) {
#pragma unroll
    for (int j = 0; j + 1 < W; ++j) pending[j] = pending[j + 1];
    pending[W - 1] = 0.0f;
    window.advance(t);
    const float pre = window.convolve(taps), open = sigmoid(pre);
    const float dpre = to_float(dy[place.token(t)]) * open * fmaf(pre, 1.0f - open, 1.0f);
#pragma unroll
    for (int j = 0; j < W; ++j) {
      if (W - 1 - j <= window.seen) pending[j] = fmaf(taps[j], dpre, pending[j]);
      if (t < place.past) dweight[j] = fmaf(dpre, window.x[j], dweight[j]);
    }
    emit(t - W + 1, pending[0]);
  }
  // At the row's end, the tokens that the final state keeps, as the token after it would see them.
  if (end == tokens) {
    const int seen = min(window.seen + 1, W);
#pragma unroll
    for (int i = 0; i < W - 1; ++i) {
      float gradient = pending[i + 1];
      if (dfinal != nullptr && W - 1 - i <= seen) gradient += to_float(dfinal[place.slot(i)]);
      emit(tokens - W + 1 + i, gradient);
    }
  }
  float *partial = partials + (place.token_block * channels + place.channel) * W;
#pragma unroll
  for (int j = 0; j < W; ++j) partial[j] = dweight[j];
}

}  // namespace short_conv

// Runs the statement with the constant W standing for the width, which the launcher has checked.
#define WITH_WIDTH(statement) \
  switch (width) {            \
    case 2: {                 \
      constexpr int W = 2;    \
      statement;              \
    } break;                  \
    case 3: {                 \
      constexpr int W = 3;    \
      statement;              \
    } break;                  \
    case 4: {                 \
      constexpr int W = 4;    \
      statement;              \
    } break;                  \
    case 5: {                 \
      constexpr int W = 5;    \
      statement;              \
    } break;                  \
    case 6: {                 \
      constexpr int W = 6;    \
      statement;              \
    } break;                  \
    case 7: {                 \
      constexpr int W = 7;    \
      statement;              \
    } break;                  \
    default: {                \
      constexpr int W = 8;    \
      statement;              \
    }                         \
  }

#define SHORT_CONV_KERNELS(T, SUFFIX)                                                                               \
  extern "C" __global__ void __launch_bounds__(short_conv::THREADS, short_conv::LEAST_BLOCKS)                       \
      short_conv_forward_##SUFFIX(const T *x, const float *weight, const T *state, const uint8_t *starts, T *y,     \
                                  T *final_state, int tokens, int channels, int width) {                            \
    WITH_WIDTH((short_conv::forward<W, T>(x, weight, state, starts, y, final_state, tokens, channels)))             \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(short_conv::THREADS, short_conv::LEAST_BLOCKS)                       \
      short_conv_backward_##SUFFIX(const T *x, const float *weight, const T *state, const uint8_t *starts,          \
                                   const T *dy, const T *dfinal, T *dx, T *dstate, float *partials, int tokens,     \
                                   int channels, int width) {                                                       \
    WITH_WIDTH(                                                                                                     \
        (short_conv::backward<W, T>(x, weight, state, starts, dy, dfinal, dx, dstate, partials, tokens, channels))) \
  }

SHORT_CONV_KERNELS(float, f32)
SHORT_CONV_KERNELS(bf16, bf16)
