// The ATPM mixer on a GPU: from what the heads read to what they give, and back.
//
// Equations: crates/atpm-core/src/ops/mixer/mod.rs; each file in mixer/ opens with those it computes.
// Sizes: mixer/sizes.cuh. Every kernel exists for x, y and scratch in f32 (`_f32`, exact products) and in bf16
// (`_bf16`, products on tensor cores with f32 sums). Controls, transport weights, initial and final states, their
// gradients and the decays are f32 in both (their sums are f64). No atomics: the same bits on every run.
//
// `starts [B,T]` holds 1 where a document begins; null when none does. N = ⌈T/64⌉. Blocks have 128 threads; sizes of
// scratch stand where the parts of the mixer describe it, with PARTS 2 for bf16 and 1 for f32.
//
// | kernel | blocks | reads | writes |
// |---|---|---|---|
// | addresses | B·H·N | x, controls, weights | s, q, d, norms |
// | prepare | B·H·N | x, controls, s, q, d | w, u0, b, decays; m, n for backward |
// | scan | B·H·slices(width) | q, d, prepared | y, final state, chunk states, mean ‖d‖ |
//
// That is forward. Backward runs addresses and prepare again (u0 null, m and n given), then
//
// | scan_backward | B·H·slices(width) | q, d, prepared, dy | gradient of the state after each chunk, of the first state |
// | entity_backward | B·H·N·slices(64) | x, prepared, states, dy | dR, U, shares of the gates' gradients |
// | address_backward | B·H·N | the same, dR, U | ds, dq, dd, dlog α, dβ_K, dβ_V |
// | addresses_backward | B·H·⌈N/8⌉ | x, ds, dq, dd, dR | dx, dρ, dλ, partial dA_K, dA_V, dC |
// | transport_gradients | ⌈H·R(K+V+S)/128⌉ | the partial sums | adds to dA_K, dA_V, dC |
//
// slices(w) = ⌈K/w⌉ + ⌈V/w⌉. `width`, of the two scans, is 64, 32 or 16, at most 32 where S > 192: narrower slices make
// more blocks, and the same bits. Dynamic shared memory in bytes, with tile = 9,216 in bf16 and 17,408 in f32
// (kernels/tests/launches.cpp holds these lines to the functions `…_shared_bytes`):
//
// | kernel | bf16 | f32 |
// |---|---|---|
// | addresses | 256(S+4) + 512 + 6 tile | 256(S+4) + 512 + 3 tile |
// | prepare | 18,432 + 7 tile | 18,432 + 4 tile |
// | scan, scan_backward | 64⌈S/64⌉(6·width + 32) + 6 tile | 64⌈S/64⌉(4·width + 16) + 4 tile |
// | entity_backward | 1,280 + 8 tile | 1,280 + 5 tile |
// | address_backward | 9 tile | 7 tile |
// | addresses_backward | addresses + 3 tile | addresses + 2 tile |

#include "mixer/addresses_backward.cuh"
#include "mixer/scan.cuh"

// Blocks on a multiprocessor that the compiler must allow for: 256 registers a thread, which these kernels need. Left to
// itself it aims at more blocks, and spills.
constexpr int LEAST_BLOCKS = 2;

// The parameters that every kernel ends with, and what they make.
#define SIZE_PARAMETERS int batch, int tokens, int heads, int address, int key, int value, int rank
#define SIZES \
  mixer::Sizes { batch, tokens, heads, address, key, value, rank }

#define MIXER_KERNELS(T, SUFFIX)                                                                                       \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS, LEAST_BLOCKS)                                             \
      mixer_addresses_##SUFFIX(const T *x, const float *controls, const float *a_key, const float *a_value,            \
                               const float *c, T *s, T *q, T *d, float *norms, int query_norm, SIZE_PARAMETERS) {      \
    mixer::addresses(x, controls, {a_key, a_value, c}, SIZES, query_norm != 0, s, q, d, norms);                        \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS, LEAST_BLOCKS)                                             \
      mixer_prepare_##SUFFIX(const T *x, const float *controls, const uint8_t *starts, const T *s, const T *q,         \
                             const T *d, T *w, T *u0, T *b, T *m, T *n, float *gamma_tail, SIZE_PARAMETERS) {          \
    mixer::prepare<T>(x, controls, starts, s, q, d, SIZES, {w, u0, b, m, n, {gamma_tail}});                            \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS, LEAST_BLOCKS) mixer_scan_##SUFFIX(                        \
      const T *q, const T *d, T *w, T *u0, T *b, float *gamma_tail, const float *norms, const float *initial_state,    \
      T *y, float *final_state, T *chunk_states, float *address_norm, int width, SIZE_PARAMETERS) {                    \
    mixer::scan<T>(q, d, {w, u0, b, nullptr, nullptr, {gamma_tail}}, norms, initial_state, SIZES, width, y,            \
                   final_state, chunk_states, address_norm);                                                           \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS, LEAST_BLOCKS) mixer_scan_backward_##SUFFIX(               \
      const T *q, const T *d, T *w, T *b, float *gamma_tail, const T *dy, const float *dfinal_state,                   \
      T *chunk_gradients, float *dinitial_state, int width, SIZE_PARAMETERS) {                                         \
    mixer::scan_backward<T>(q, d, {w, nullptr, b, nullptr, nullptr, {gamma_tail}}, dy, dfinal_state, SIZES, width,     \
                            chunk_gradients, dinitial_state);                                                          \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS, LEAST_BLOCKS) mixer_entity_backward_##SUFFIX(             \
      const T *x, const float *controls, const uint8_t *starts, const T *s, const T *q, const T *d, T *b, T *m, T *n,  \
      float *gamma_tail, const T *chunk_states, const T *chunk_gradients, const T *dy, T *dr, T *u, float *per_token,  \
      SIZE_PARAMETERS) {                                                                                               \
    mixer::entity_backward<T>(x, controls, starts, s, q, d, {nullptr, nullptr, b, m, n, {gamma_tail}}, chunk_states,   \
                              chunk_gradients, dy, SIZES, {dr, u, per_token});                                         \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS, LEAST_BLOCKS) mixer_address_backward_##SUFFIX(            \
      const float *controls, const uint8_t *starts, const T *s, const T *q, const T *d, T *b, T *m, float *gamma_tail, \
      const T *chunk_states, const T *chunk_gradients, const T *dy, T *dr, T *u, float *per_token, float *ds,          \
      float *dq, float *dd, float *dcontrols, SIZE_PARAMETERS) {                                                       \
    mixer::address_backward<T>(controls, starts, s, q, d, {nullptr, nullptr, b, m, nullptr, {gamma_tail}},             \
                               chunk_states, chunk_gradients, dy, {dr, u, per_token}, SIZES, ds, dq, dd, dcontrols);   \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(TILE_THREADS, LEAST_BLOCKS) mixer_addresses_backward_##SUFFIX(          \
      const T *x, const float *controls, const float *a_key, const float *a_value, const float *c, const float *ds,    \
      const float *dq, const float *dd, const T *dr, T *dx, float *dcontrols, float *partials, int query_norm,         \
      SIZE_PARAMETERS) {                                                                                               \
    mixer::addresses_backward<T>(x, controls, {a_key, a_value, c}, SIZES, query_norm != 0, ds, dq, dd, dr, dx,         \
                                 dcontrols, partials);                                                                 \
  }

MIXER_KERNELS(float, f32)
MIXER_KERNELS(bf16, bf16)

extern "C" __global__ void __launch_bounds__(TILE_THREADS, LEAST_BLOCKS)
    mixer_transport_gradients(const float *partials, float *da_key, float *da_value, float *dc, SIZE_PARAMETERS) {
  mixer::transport_gradients(partials, SIZES, da_key, da_value, dc);
}
