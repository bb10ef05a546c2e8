// How the kernels are launched: that their shared memory fits on sm_80 for every supported size, and that offsets are
// 64-bit. With the argument `table`, prints threads and shared bytes of the kernels that use dynamic shared memory, for
// scripts/kernels.sh.
#include "../mixer.cu"
#include "check.h"

#include "../common/rows.cuh"

namespace {

struct Launch {
  const char *kernel;
  int threads;
  size_t shared_bytes;
};

template <class T>
std::vector<Launch> mixer_launches(const mixer::Sizes &sizes, int width) {
  return {{"mixer_addresses", TILE_THREADS, mixer::addresses_shared_bytes<T>(sizes)},
          {"mixer_prepare", TILE_THREADS, mixer::prepare_shared_bytes<T>()},
          {"mixer_scan", TILE_THREADS, mixer::scan_shared_bytes<T>(sizes, width)},
          {"mixer_scan_backward", TILE_THREADS, mixer::scan_shared_bytes<T>(sizes, width)},
          {"mixer_entity_backward", TILE_THREADS, mixer::entity_backward_shared_bytes<T>()},
          {"mixer_address_backward", TILE_THREADS, mixer::address_backward_shared_bytes<T>()},
          {"mixer_addresses_backward", TILE_THREADS, mixer::addresses_backward_shared_bytes<T>(sizes)}};
}

template <class T>
void print_table(const char *suffix) {
  for (const Launch &launch : mixer_launches<T>({1, 64, 1, 64, 64, 64, 16}, 64))
    std::printf("%s_%s %d %zu\n", launch.kernel, suffix, launch.threads, launch.shared_bytes);
  for (const char *norm : {"rms_norm", "gated_norm"})
    std::printf("%s_backward_%s %d %zu\n", norm, suffix, ROW_THREADS, row_backward_shared_bytes(1024));
}

// The lines of bytes in mixer.cu, which launchers in other languages go by.
template <class T>
void test_formulas(const mixer::Sizes &sizes, int width) {
  const bool is_bf16 = sizeof(T) == 2;
  const size_t tile = is_bf16 ? 9216 : 17408, S = sizes.address, panels = (S + 63) / 64;
  const size_t addresses = 256 * (S + 4) + 512 + (is_bf16 ? 6 : 3) * tile;
  const size_t scan = 64 * panels * (is_bf16 ? 6 * width + 32 : 4 * width + 16) + (is_bf16 ? 6 : 4) * tile;
  const size_t want[] = {addresses,
                         18432 + (is_bf16 ? 7 : 4) * tile,
                         scan,
                         scan,
                         1280 + (is_bf16 ? 8 : 5) * tile,
                         (is_bf16 ? 9 : 7) * tile,
                         addresses + (is_bf16 ? 3 : 2) * tile};
  const std::vector<Launch> launches = mixer_launches<T>(sizes, width);
  for (size_t i = 0; i < launches.size(); ++i)
    check::expect(launches[i].shared_bytes == want[i], std::string(launches[i].kernel) + ": bytes as in mixer.cu");
}

template <class T>
void test_shared_memory() {
  for (int address = 16; address <= 256; address += 16)
    for (int width = 16; width <= 256; width += 16)
      for (int rank : {1, 16, 64}) {
        const mixer::Sizes sizes = {1, 64, 1, address, width, width, rank};
        check::expect(sizes.supported(), "sizes from 16 to 256 in steps of 16 are supported");
        for (const Launch &launch : mixer_launches<T>(sizes, sizes.most_scan_width()))
          check::expect(launch.shared_bytes <= MOST_SHARED_BYTES,
                        std::string(launch.kernel) + " fits at S = " + std::to_string(address));
        for (int scan_width = 16; scan_width <= sizes.most_scan_width(); scan_width *= 2)
          test_formulas<T>(sizes, scan_width);
      }
  check::expect(row_backward_shared_bytes(MOST_ROW_WIDTH) <= MOST_SHARED_BYTES, "the widest norm fits");
}

void test_supported() {
  for (int bad : {0, 8, 60, 100, 257, 272})
    check::expect(!mixer::Sizes{1, 64, 1, bad, 64, 64, 16}.supported(), "an address size that is not supported");
  for (int bad : {0, 4, 60, 257, 264})
    check::expect(!mixer::Sizes{1, 64, 1, 64, bad, 64, 16}.supported(), "an entity block that is not supported");
  check::expect(!mixer::Sizes{1, 64, 1, 64, 64, 64, 65}.supported(), "a rank that is not supported");
}

// The last chunk of arrays with more than 2³¹ elements, by index functions alone.
void test_offsets() {
  const mixer::Sizes sizes = {64, 131072, 16, 64, 64, 64, 16};
  const int64_t last = sizes.all_chunks() - 1;
  const mixer::Chunk chunk(sizes, last);
  check::expect(chunk.row == 63 && chunk.head == 15 && chunk.first_token == 131008, "the last chunk's place");
  const float *const base = nullptr;
  auto offset = [&](const float *pointer) {
    return static_cast<int64_t>((reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(base)) /
                                sizeof(float));
  };
  const int64_t tokens = 64LL * 131072, first_token = tokens - 64;
  check::expect(offset(mixer::inputs_of(base, sizes, chunk, 0, 16).data) == (first_token * 16 + 15) * 256, "x");
  check::expect(offset(mixer::outputs_of(base, sizes, chunk, 0, 16).data) == (first_token * 16 + 15) * 128, "y");
  check::expect(offset(mixer::rows_of(base, chunk, 64, 0, 16).data) == last * 64 * 64, "scratch rows");
  check::expect(offset(mixer::rows_part(base, chunk, 128, 0, 16, 0).data) == last * 64 * 128, "scratch parts");
  check::expect(offset(mixer::square_part(base, chunk, 2, 1, 0).data) == (last * 2 + 1) * 64 * 64, "scratch squares");
  check::expect(offset(mixer::state_of(base, sizes, chunk, 0, {sizes, 0}).data) == last * 64 * 128, "states");
  check::expect(mixer::control_at(sizes, chunk, 63, 4) == ((tokens - 1) * 5 + 4) * 16 + 15, "controls");
}

}  // namespace

int main(int argc, char **argv) {
  if (argc > 1 && std::string(argv[1]) == "table") {
    print_table<float>("f32");
    print_table<bf16>("bf16");
    return 0;
  }
  test_shared_memory<float>();
  test_shared_memory<bf16>();
  test_supported();
  test_offsets();
  return check::finish("launches");
}
