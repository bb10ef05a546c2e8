// The ATPM mixer on a GPU: from what the heads read to what they give, and back.
//
// Equations: crates/atpm-core/src/ops/mixer/mod.rs; each file in mixer/ opens with those it computes.
// Sizes: mixer/sizes.cuh. Every kernel exists for x, y and scratch in f32 (`_f32`, exact products) and in bf16
// (`_bf16`, products on tensor cores with f32 sums). Controls, transport weights, initial and final states, their
// gradients and the decays are f32 in both (g is f64). No atomics: the same bits on every run.
//
// `starts [B,T]` holds 1 where a document begins; null when none does. Blocks have 128 threads; the dynamic
// shared memory of kernel `k` is `k_shared_bytes` in mixer/, at most 163 KiB for every supported size. N = ⌈T/64⌉.
//
// | kernel | blocks | reads | writes |
// |---|---|---|---|
// | addresses | B·H·N | x, controls, weights | s, q, d, norms |
// | prepare | B·H·N | x, controls, s, q, d | w, u0, b, decays; m, n for backward |
// | scan | B·H·slices(scan_width) | q, d, prepared | y, final state, chunk states, mean ‖d‖ |
//
// That is forward. Backward runs addresses and prepare again (u0 null, m and n given), then
//
// | scan_backward | B·H·slices(scan_width) | q, d, prepared, dy | gradient of the state after each chunk, of the first state |
// | entity_backward | B·H·N·slices() | x, prepared, states, dy | dR, U, shares of the gates' gradients |
// | address_backward | B·H·N | the same, dR, U | ds, dq, dd, dlog α, dβ_K, dβ_V |
// | addresses_backward | B·H·⌈N/8⌉ | x, ds, dq, dd, dR | dx, dρ, dλ, partial dA_K, dA_V, dC |
// | transport_gradients | ⌈H·R(K+V+S)/128⌉ | the partial sums | adds to dA_K, dA_V, dC |

#include "mixer/addresses_backward.cuh"
#include "mixer/scan.cuh"

// The parameters that every kernel ends with, and what they make.
#define SIZE_PARAMETERS int batch, int tokens, int heads, int address, int key, int value, int rank
#define SIZES \
  mixer::Sizes { batch, tokens, heads, address, key, value, rank }

#define MIXER_KERNELS(T, SUFFIX)                                                                                       \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS, 2) mixer_addresses_##SUFFIX(                                 \
      const T *x, const float *controls, const float *a_key, const float *a_value, const float *c, T *s, T *q, T *d,   \
      float *norms, int query_norm, SIZE_PARAMETERS) {                                                                 \
    mixer::addresses(x, controls, {a_key, a_value, c}, SIZES, query_norm != 0, s, q, d, norms);                        \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS, 2) mixer_prepare_##SUFFIX(                                   \
      const T *x, const float *controls, const uint8_t *starts, const T *s, const T *q, const T *d, T *w, T *u0, T *b, \
      T *m, T *n, float *gamma_tail, double *cumulative, SIZE_PARAMETERS) {                                            \
    mixer::prepare<T>(x, controls, starts, s, q, d, SIZES, {w, u0, b, m, n, {gamma_tail, cumulative}});                \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS, 2) mixer_scan_##SUFFIX(                                      \
      const T *q, const T *d, T *w, T *u0, T *b, float *gamma_tail, const float *norms, const float *initial_state,    \
      T *y, float *final_state, T *chunk_states, float *address_norm, SIZE_PARAMETERS) {                               \
    mixer::scan<T>(q, d, {w, u0, b, nullptr, nullptr, {gamma_tail, nullptr}}, norms, initial_state, SIZES, y,          \
                   final_state, chunk_states, address_norm);                                                           \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS, 2) mixer_scan_backward_##SUFFIX(                             \
      const T *q, const T *d, T *w, T *b, float *gamma_tail, const T *dy, const float *dfinal_state,                   \
      T *chunk_gradients, float *dinitial_state, SIZE_PARAMETERS) {                                                    \
    mixer::scan_backward<T>(q, d, {w, nullptr, b, nullptr, nullptr, {gamma_tail, nullptr}}, dy, dfinal_state, SIZES,   \
                            chunk_gradients, dinitial_state);                                                          \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS, 2) mixer_entity_backward_##SUFFIX(                           \
      const T *x, const float *controls, const uint8_t *starts, const T *s, const T *q, const T *d, T *b, T *m, T *n,  \
      float *gamma_tail, const T *chunk_states, const T *chunk_gradients, const T *dy, T *dr, T *u, float *per_token,  \
      SIZE_PARAMETERS) {                                                                                               \
    mixer::entity_backward<T>(x, controls, starts, s, q, d, {nullptr, nullptr, b, m, n, {gamma_tail, nullptr}},        \
                              chunk_states, chunk_gradients, dy, SIZES, {dr, u, per_token});                           \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS, 2) mixer_address_backward_##SUFFIX(                          \
      const float *controls, const uint8_t *starts, const T *s, const T *q, const T *d, T *b, T *m, float *gamma_tail, \
      const T *chunk_states, const T *chunk_gradients, const T *dy, T *dr, T *u, float *per_token, float *ds,          \
      float *dq, float *dd, float *dcontrols, SIZE_PARAMETERS) {                                                                      \
    mixer::address_backward<T>(controls, starts, s, q, d, {nullptr, nullptr, b, m, nullptr, {gamma_tail, nullptr}},    \
                               chunk_states, chunk_gradients, dy, {dr, u, per_token}, SIZES, ds, dq, dd, dcontrols);   \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS, 2) mixer_addresses_backward_##SUFFIX(                        \
      const T *x, const float *controls, const float *a_key, const float *a_value, const float *c, const float *ds,    \
      const float *dq, const float *dd, const T *dr, T *dx, float *dcontrols, float *partials, int query_norm,                 \
      SIZE_PARAMETERS) {                                                                                               \
    mixer::addresses_backward<T>(x, controls, {a_key, a_value, c}, SIZES, query_norm != 0, ds, dq, dd, dr, dx,         \
                                 dcontrols, partials);                                                                 \
  }

MIXER_KERNELS(float, f32)
MIXER_KERNELS(bf16, bf16)

extern "C" __global__ void __launch_bounds__(TILE_THREADS, 2)
    mixer_transport_gradients(const float *partials, float *da_key, float *da_value, float *dc, SIZE_PARAMETERS) {
  mixer::transport_gradients(partials, SIZES, da_key, da_value, dc);
}
