// CUDA blocks on one CPU core, for tests: the language's keywords and built-ins in C++17.
//
// Every CUDA thread is a fiber with its own stack; a block's fibers take turns on one OS thread, and
// blocks run one after another. A fiber runs until it has to wait (barrier, warp collective), then the
// scheduler resumes one that can go on, drawn by a seeded generator: a kernel whose result depends on
// the order in which threads run gives different results for different seeds.
//
// What ends the process with a message: a barrier that part of the block does not reach or reaches at
// another line, lanes of a warp that meet in different collectives or with different masks, a calling
// lane outside its mask, misaligned `cp.async` and matrix loads, threads that wait for ever, a write past the dynamic shared memory
// that the launch asked for.
// What it does not see is listed in docs/cuda.md.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __restrict__ __restrict
// Blocks run one after another, so one copy of a kernel's static shared memory is enough.
#define __shared__ static

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }

namespace emulation {

constexpr unsigned LANES = 32;

// What lanes of a warp bring to a collective, and what they take away from it.
struct Warp {
  unsigned arrived = 0;  // lanes waiting in the collective now being formed
  unsigned mask = 0;
  const char *kind = nullptr;
  unsigned generation = 0;        // collectives done; even and odd ones use different slots, so that
  uint64_t slots[2][LANES] = {};  // a lane may enter the next one before all have read this one's
};

// One cp.async copy that has been asked for and may not have landed yet.
struct PendingCopy {
  void *to;
  const void *from;  // null: zeros
  int group;
};

struct Thread {
  void *stack_pointer = nullptr;
  uint3 index = {};
  unsigned lane = 0;
  Warp *warp = nullptr;
  enum { READY, WAITING, DONE } state = READY;
  const char *place = "";  // where it waits
  std::vector<PendingCopy> copies;
  int copy_group = 0;
};

struct Block {
  uint3 index = {};
  dim3 size, grid;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<Thread *> ready;
  unsigned running = 0, at_barrier = 0;
  const char *barrier_place = "";
  unsigned char *shared = nullptr;
  size_t shared_bytes = 0;
};

// How the next launches are scheduled. `seed` draws the order of threads; odd seeds let a cp.async
// land at once, even ones not before it is waited for, both of which the hardware may do.
struct Schedule {
  unsigned seed = 0;
};
extern Schedule schedule;

extern Block block;      // the block that is running
extern Thread *current;  // the thread that is running

// Runs `body` as every thread of every block, with `shared_bytes` of dynamic shared memory that
// hold NaN at the start of each block.
void launch(dim3 grid, dim3 block_size, size_t shared_bytes, const std::function<void()> &body);

// Gives the processor to the scheduler until the thread is made ready again.
void wait_at(const char *place);
void make_ready(Thread &thread);
[[noreturn]] void fault(const char *what, const char *place);
void barrier(const char *place);

// All lanes of `mask` meet; the last to come runs `finish`. Returns which slots this meeting uses.
template <class Finish>
unsigned meet(unsigned mask, const char *kind, const char *place, Finish &&finish) {
  Warp &warp = *current->warp;
  const unsigned bit = 1u << current->lane, slots = warp.generation & 1;
  if (!(mask & bit)) fault("the calling lane is not in its mask", place);
  if (warp.arrived == 0) {
    warp.mask = mask;
    warp.kind = kind;
  } else if (warp.mask != mask || std::strcmp(warp.kind, kind) != 0) {
    fault("lanes of a warp meet in different collectives", place);
  }
  warp.arrived |= bit;
  if (warp.arrived != warp.mask) {
    wait_at(place);
    return slots;
  }
  finish(warp);
  warp.arrived = 0;
  ++warp.generation;
  Thread *lanes = current - current->lane;
  for (unsigned lane = 0; lane < LANES; ++lane)
    if ((mask >> lane & 1) && lane != current->lane) make_ready(lanes[lane]);
  return slots;
}

// Brings `value`, takes that of lane `source`.
template <class Value>
Value exchange(unsigned mask, Value value, unsigned source, const char *kind, const char *place) {
  static_assert(sizeof(Value) <= 8, "a lane exchanges at most eight bytes");
  Warp &warp = *current->warp;
  std::memcpy(&warp.slots[warp.generation & 1][current->lane], &value, sizeof(Value));
  const unsigned slots = meet(mask, kind, place, [](Warp &) {});
  if (!(mask >> source & 1)) fault("a lane reads from a lane outside the mask", place);
  Value taken;
  std::memcpy(&taken, &warp.slots[slots][source], sizeof(Value));
  return taken;
}

inline unsigned clamped(unsigned lane, unsigned otherwise) { return lane < LANES ? lane : otherwise; }

}  // namespace emulation

#define EMULATION_TEXT_OF(x) #x
#define EMULATION_TEXT(x) EMULATION_TEXT_OF(x)
#define EMULATION_PLACE __FILE__ ":" EMULATION_TEXT(__LINE__)

#define threadIdx (::emulation::current->index)
#define blockIdx (::emulation::block.index)
#define blockDim (::emulation::block.size)
#define gridDim (::emulation::block.grid)

#define __syncthreads() ::emulation::barrier(EMULATION_PLACE)
#define __syncwarp() ::emulation::meet(0xffffffffu, "syncwarp", EMULATION_PLACE, [](::emulation::Warp &) {})
#define __shfl_sync(mask, value, source) ::emulation::exchange(mask, value, (source) % 32u, "shfl", EMULATION_PLACE)
#define __shfl_xor_sync(mask, value, bits) \
  ::emulation::exchange(mask, value, ::emulation::current->lane ^ (bits), "shfl_xor", EMULATION_PLACE)
#define __shfl_up_sync(mask, value, by)                                                                      \
  ::emulation::exchange(mask, value,                                                                         \
                        ::emulation::clamped(::emulation::current->lane - (by), ::emulation::current->lane), \
                        "shfl_up", EMULATION_PLACE)
#define __shfl_down_sync(mask, value, by)                                                                    \
  ::emulation::exchange(mask, value,                                                                         \
                        ::emulation::clamped(::emulation::current->lane + (by), ::emulation::current->lane), \
                        "shfl_down", EMULATION_PLACE)

inline int min(int x, int y) { return x < y ? x : y; }
