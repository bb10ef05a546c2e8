// What every kernel starts from: the compiler's CUDA or its emulation, element types, shared memory,
// sums over a warp and over a block.
//
// An element type T is float or bf16; arithmetic is f32. Offsets into global memory are 64-bit.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#else
#include "../emulation/tensor_core.h"
#endif

using bf16 = __nv_bfloat16;

constexpr int LANES = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

// Dynamic shared memory of a thread block on sm_80, the smallest of the devices compiled for.
constexpr size_t MOST_SHARED_BYTES = 163 * 1024;

__device__ __forceinline__ unsigned char *shared_memory() {
#ifdef __CUDACC__
  extern __shared__ __align__(128) unsigned char dynamic_shared_memory[];
  return dynamic_shared_memory;
#else
  return emulation::block.shared;
#endif
}

// Cuts shared memory into arrays, each aligned to 16 bytes.
struct SharedCursor {
  unsigned char *next;
  template <class T>
  __device__ __forceinline__ T *take(int count) {
    T *array = reinterpret_cast<T *>(next);
    next += (count * sizeof(T) + 15) / 16 * 16;
    return array;
  }
};

__device__ __forceinline__ int lane_idx() { return threadIdx.x % LANES; }
__device__ __forceinline__ int warp_idx() { return threadIdx.x / LANES; }

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(bf16 value) { return __bfloat162float(value); }
template <class T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float value) {
  return __float2bfloat16(value);
}

// Two neighbours at once; the first has an even place.
__device__ __forceinline__ float2 load_pair(const float *from) { return *reinterpret_cast<const float2 *>(from); }
__device__ __forceinline__ float2 load_pair(const bf16 *from) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162 *>(from));
}
__device__ __forceinline__ void store_pair(float *to, float x, float y) {
  *reinterpret_cast<float2 *>(to) = make_float2(x, y);
}
__device__ __forceinline__ void store_pair(bf16 *to, float x, float y) {
  *reinterpret_cast<__nv_bfloat162 *>(to) = __floats2bfloat162_rn(x, y);
}

// The sum over the warp, in every lane; the same order on every run.
template <class Real>
__device__ __forceinline__ Real warp_sum(Real value) {
#pragma unroll
  for (int distance = LANES / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(ALL_LANES, value, distance);
  return value;
}

// The sum over a block of `THREADS` threads, in every thread. `scratch` holds THREADS/32 numbers, and
// is free again after the next barrier.
template <int THREADS, class Real>
__device__ __forceinline__ Real block_sum(Real value, Real *scratch) {
  value = warp_sum(value);
  if (lane_idx() == 0) scratch[warp_idx()] = value;
  __syncthreads();
  Real sum = 0;
#pragma unroll
  for (int warp = 0; warp < THREADS / LANES; ++warp) sum += scratch[warp];
  return sum;
}

__device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
