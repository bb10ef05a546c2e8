// The emulation itself: what it must compute, and the faults that it must report.
#include "../common/ptx.cuh"
#include "check.h"

#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int REPORTED = 3;  // the exit code of a reported fault

// The exit code of a child process that runs the kernel on one block of 64 threads.
template <class Kernel>
int outcome(Kernel &&kernel, size_t shared_bytes = 256) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stderr) == nullptr) std::_Exit(1);
    emulation::launch(dim3(2), dim3(64), shared_bytes, kernel);
    std::_Exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void test_faults() {
  check::expect(outcome([] { __syncthreads(); }) == 0, "a sound kernel passes");
  check::expect(outcome([] {
                  if (threadIdx.x < 40) __syncthreads();
                }) == REPORTED,
                "a barrier that some threads skip");
  check::expect(outcome([] {
                  if (threadIdx.x < 32) {
                    __syncthreads();
                  } else {
                    __syncthreads();
                  }
                }) == REPORTED,
                "two barriers that look like one");
  check::expect(outcome([] {
                  if (lane_idx() < 16) warp_sum(1.0f);
                }) == REPORTED,
                "a shuffle that half a warp skips");
  check::expect(outcome([] {
                  if (lane_idx() == 3) {
                    __shfl_up_sync(ALL_LANES, 1, 1);
                  } else {
                    __shfl_xor_sync(ALL_LANES, 1, 1);
                  }
                }) == REPORTED,
                "lanes in different shuffles");
  check::expect(outcome([] { __shfl_sync(0x0000ffffu, 1, 0); }) == REPORTED, "a lane outside its mask");
  check::expect(outcome([] {
                  if (threadIdx.x == 0) return;
                  __syncthreads();
                }) == REPORTED,
                "a barrier after a thread has returned");
  check::expect(outcome([] {
                  uint32_t registers[4];
                  ldmatrix_x4<false>(registers, shared_memory() + 8);
                }) == REPORTED,
                "a matrix row that is not aligned");
  check::expect(outcome([] { copy_async(shared_memory() + blockDim.x / 16, shared_memory(), true); }) == REPORTED,
                "an asynchronous copy that is not aligned");
}

// A launch with less shared memory than the kernel uses is the launcher's mistake, which no pointer check would see.
void test_shared_memory() {
#ifdef __SANITIZE_ADDRESS__
  constexpr int noticed = 1;  // by AddressSanitizer, at the write
#else
  constexpr int noticed = REPORTED;
#endif
  auto uses = [](size_t bytes) {
    return [bytes] {
      for (size_t i = threadIdx.x; i < bytes; i += 64) shared_memory()[i] = 1;
    };
  };
  for (size_t bytes : {size_t{1}, size_t{255}, size_t{256}, MOST_SHARED_BYTES}) {
    const std::string name = std::to_string(bytes) + " bytes of shared memory, used up";
    check::expect(outcome(uses(bytes), bytes) == 0, name);
    check::expect(outcome(uses(bytes + 1), bytes) == noticed, name + " and one more");
  }
  check::expect(outcome(uses(MOST_SHARED_BYTES), 0) == noticed, "shared memory that was not asked for");
  check::expect(outcome(uses(9216), 4608) == noticed, "half a tile for a tile");
}

void test_shuffles() {
  std::vector<int> got(128);
  emulation::launch(dim3(1), dim3(32), 0, [&] {
    const int lane = lane_idx();
    got[lane] = __shfl_xor_sync(ALL_LANES, lane, 5);
    got[32 + lane] = __shfl_up_sync(ALL_LANES, lane, 3);
    got[64 + lane] = __shfl_down_sync(ALL_LANES, lane, 4);
    got[96 + lane] = __shfl_sync(ALL_LANES, lane * lane, 7);
  });
  for (int lane = 0; lane < 32; ++lane) {
    check::expect(got[lane] == (lane ^ 5), "shfl_xor");
    check::expect(got[32 + lane] == (lane < 3 ? lane : lane - 3), "shfl_up");
    check::expect(got[64 + lane] == (lane > 27 ? lane : lane + 4), "shfl_down");
    check::expect(got[96 + lane] == 49, "shfl");
  }
}

// Shared memory must not carry anything from block to block, and a race must show under some order of threads.
void test_order() {
  int not_nan = 0, stale = 0;
  for (unsigned seed = 0; seed < 8; ++seed) {
    emulation::schedule.seed = seed;
    emulation::launch(dim3(3), dim3(64), 256, [&] {
      auto *shared = reinterpret_cast<float *>(shared_memory());
      if (shared[threadIdx.x] == shared[threadIdx.x]) ++not_nan;
      __syncthreads();
      shared[threadIdx.x] = 1.0f;
      if (shared[63 - threadIdx.x] != 1.0f) ++stale;  // no barrier before this
    });
  }
  emulation::schedule.seed = 0;
  check::expect(not_nan == 0, "shared memory is NaN at the start of every block");
  check::expect(stale > 0, "a missing barrier is seen");
}

// A copy lands no later than its wait; with even seeds it lands no earlier.
void test_copies() {
  for (unsigned seed = 0; seed < 2; ++seed) {
    emulation::schedule.seed = seed;
    std::vector<float> source(8, 7.0f);
    int early = 0, late = 0;
    emulation::launch(dim3(1), dim3(32), 512, [&] {
      auto *own = reinterpret_cast<float *>(shared_memory()) + 4 * threadIdx.x;
      copy_async(own, source.data() + 4, true);
      copy_async_commit();
      early += own[0] == 7.0f;
      copy_async_wait<0>();
      late += own[0] != 7.0f || own[3] != 7.0f;
      copy_async(own, source.data(), false);
      copy_async_commit();
      copy_async_wait<0>();
      late += own[0] != 0.0f || own[3] != 0.0f;
    });
    check::expect(late == 0, "a copy has landed after its wait");
    check::expect(early == (seed == 1 ? 32 : 0), "when a copy lands before its wait");
  }
  emulation::schedule.seed = 0;
}

// Both forms of matrix load feed the tensor cores' product with what the layout says.
void test_product() {
  check::Random random(1);
  float a[16][16], b[16][8];
  for (auto &row : a)
    for (float &x : row) x = static_cast<float>(check::rounded<bf16>(random.normal()));
  for (auto &row : b)
    for (float &x : row) x = static_cast<float>(check::rounded<bf16>(random.normal()));
  std::vector<double> got(128), want(128, 0.0);
  emulation::launch(dim3(1), dim3(32), 1024, [&] {
    auto *a_rows = reinterpret_cast<bf16 *>(shared_memory()), *b_rows = a_rows + 256;  // [16,16] each
    for (int i = lane_idx(); i < 256; i += 32) {
      a_rows[i] = from_float<bf16>(a[i / 16][i % 16]);
      b_rows[i] = from_float<bf16>(i % 16 < 8 ? b[i / 16][i % 16] : 0.0f);
    }
    __syncthreads();
    const int lane = lane_idx();
    uint32_t a_registers[4], b_registers[4];
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    ldmatrix_x4<false>(a_registers, a_rows + lane % 16 * 16 + lane / 16 * 8);
    ldmatrix_x4<true>(b_registers, b_rows + lane % 16 * 16 + lane / 16 * 8);
    mma_m16n8k16(sums, a_registers, b_registers);
    for (int i = 0; i < 4; ++i) got[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
  });
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column)
      for (int k = 0; k < 16; ++k) want[row * 8 + column] += static_cast<double>(a[row][k]) * b[k][column];
  check::close("mma of ldmatrix", got, want, 1e-6);
}

void test_rounding() {
  const struct {
    float from, to;
  } cases[] = {{1.0f, 1.0f}, {1.00390625f, 1.0f}, {1.01171875f, 1.015625f}, {3.4e38f, INFINITY}, {-0.0f, -0.0f}};
  for (const auto &one : cases)
    check::expect(__bfloat162float(__float2bfloat16(one.from)) == one.to, "bf16 rounds to nearest, ties to even");
  check::expect(std::isnan(__bfloat162float(__float2bfloat16(NAN))), "a NaN stays one");
}

}  // namespace

int main() {
  test_faults();
  test_shared_memory();
  test_shuffles();
  test_order();
  test_copies();
  test_product();
  test_rounding();
  return check::finish("emulation");
}
