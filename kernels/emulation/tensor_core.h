// bf16, and the few PTX instructions that the kernels use, in C++: the twin of common/ptx.cuh's device half.
#pragma once

#include "emulation.h"

struct __nv_bfloat16 {
  uint16_t bits;
};

// Rounds to nearest, ties to even; a NaN stays one.
inline __nv_bfloat16 __float2bfloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (value != value) return {0x7fff};
  return {static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
}
inline float __bfloat162float(__nv_bfloat16 value) {
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float wide;
  std::memcpy(&wide, &bits, 4);
  return wide;
}
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__float2bfloat16(x), __float2bfloat16(y)}; }
inline float2 __bfloat1622float2(__nv_bfloat162 pair) { return {__bfloat162float(pair.x), __bfloat162float(pair.y)}; }

namespace emulation {

// The lower or upper half of a register, as a number.
inline float half_of(uint32_t pair, int upper) {
  return __bfloat162float({static_cast<uint16_t>(upper ? pair >> 16 : pair & 0xffff)});
}

struct MmaLane {
  float *d;
  const uint32_t *a, *b;
};

// m16n8k16 with the fragment layout of the PTX manual: with g = lane/4 and t = lane%4, register i of A
// holds row g + 8·(i odd), columns 2t, 2t+1 of half i/2; of B rows 2t, 2t+1 of half i, column g; of C
// row g + 8·(i/2), column 2t + i%2.
inline void mma_of_warp(Warp &warp) {
  float a[16][16], b[16][8], c[16][8];
  const auto &lanes = warp.slots[warp.generation & 1];
  for (unsigned lane = 0; lane < LANES; ++lane) {
    const auto &own = *reinterpret_cast<const MmaLane *>(lanes[lane]);
    const unsigned g = lane / 4, t = lane % 4;
    for (int i = 0; i < 4; ++i)
      for (int half = 0; half < 2; ++half) a[g + i % 2 * 8][i / 2 * 8 + 2 * t + half] = half_of(own.a[i], half);
    for (int i = 0; i < 2; ++i)
      for (int half = 0; half < 2; ++half) b[i * 8 + 2 * t + half][g] = half_of(own.b[i], half);
    for (int i = 0; i < 4; ++i) c[g + i / 2 * 8][2 * t + i % 2] = own.d[i];
  }
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
  for (unsigned lane = 0; lane < LANES; ++lane) {
    const auto &own = *reinterpret_cast<const MmaLane *>(lanes[lane]);
    for (int i = 0; i < 4; ++i) own.d[i] = c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  }
}

}  // namespace emulation

// d += a·b; see common/ptx.cuh.
inline void mma_m16n8k16(float *d, const uint32_t *a, const uint32_t *b) {
  using namespace emulation;
  const MmaLane own = {d, a, b};
  Warp &warp = *current->warp;
  warp.slots[warp.generation & 1][current->lane] = reinterpret_cast<uint64_t>(&own);
  meet(0xffffffffu, "mma", "mma_m16n8k16", mma_of_warp);
}

namespace emulation {

struct LdmatrixLane {
  uint32_t *registers;
  const uint16_t *row;
};

// The last lane to come loads for all, so that none of them can be overtaken by a store of another.
template <bool TRANSPOSED>
void ldmatrix_of_warp(Warp &warp) {
  auto lane_of = [&](unsigned lane) -> const LdmatrixLane & {
    return *reinterpret_cast<const LdmatrixLane *>(warp.slots[warp.generation & 1][lane]);
  };
  for (unsigned lane = 0; lane < LANES; ++lane) {
    const unsigned g = lane / 4, t = lane % 4 * 2;
    for (unsigned matrix = 0; matrix < 4; ++matrix) {
      auto element = [&](unsigned row, unsigned column) -> uint32_t { return lane_of(matrix * 8 + row).row[column]; };
      lane_of(lane).registers[matrix] =
          TRANSPOSED ? element(t, g) | element(t + 1, g) << 16 : element(g, t) | element(g, t + 1) << 16;
    }
  }
}

inline void land(const PendingCopy &copy) {
  copy.from ? std::memcpy(copy.to, copy.from, 16) : std::memset(copy.to, 0, 16);
}

}  // namespace emulation

// Four 8×8 matrices whose rows start at the addresses that the lanes give, eight lanes a matrix.
template <bool TRANSPOSED>
void ldmatrix_x4(uint32_t *registers, const void *row) {
  using namespace emulation;
  if (reinterpret_cast<uint64_t>(row) % 16 != 0) fault("a row is not aligned to 16 bytes", "ldmatrix");
  const LdmatrixLane own = {registers, static_cast<const uint16_t *>(row)};
  Warp &warp = *current->warp;
  warp.slots[warp.generation & 1][current->lane] = reinterpret_cast<uint64_t>(&own);
  meet(0xffffffffu, TRANSPOSED ? "ldmatrix.trans" : "ldmatrix", "ldmatrix_x4", ldmatrix_of_warp<TRANSPOSED>);
}

// Copies 16 bytes, or writes zeros where `inside` is false. Lands at once or as late as it may.
inline void copy_async(void *to, const void *from, bool inside) {
  using namespace emulation;
  if ((reinterpret_cast<uint64_t>(to) | reinterpret_cast<uint64_t>(from)) % 16 != 0)
    fault("an address is not aligned to 16 bytes", "cp.async");
  const PendingCopy copy = {to, inside ? from : nullptr, current->copy_group};
  schedule.seed % 2 == 1 ? land(copy) : current->copies.push_back(copy);
}
inline void copy_async_commit() { ++emulation::current->copy_group; }
template <int PENDING>
void copy_async_wait() {
  using namespace emulation;
  auto &copies = current->copies;
  size_t landed = 0;
  while (landed < copies.size() && copies[landed].group < current->copy_group - PENDING) land(copies[landed++]);
  copies.erase(copies.begin(), copies.begin() + landed);
}
