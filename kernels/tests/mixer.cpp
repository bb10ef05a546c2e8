// The mixer's kernels, emulated, against the golden files and the float64 reference.
#include "mixer_run.h"
#include "safetensors.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace {

using check::Random;
using mixer_test::Absent;
using mixer_test::Results;
using reference::Numbers;

struct Case {
  std::string name;
  reference::Sizes sizes;
  reference::Inputs inputs;
  Numbers dy, dfinal;
};

template <class T>
Case random_case(const reference::Sizes &sizes, unsigned seed, double start_share) {
  Random random(seed);
  const size_t tokens = static_cast<size_t>(sizes.batch) * sizes.tokens, heads = sizes.heads;
  const size_t states = static_cast<size_t>(sizes.batch) * heads * sizes.address * sizes.entity();
  Case out;
  char name[96];
  std::snprintf(name, sizeof name, "B%d T%d H%d S%d K%d V%d R%d", sizes.batch, sizes.tokens, sizes.heads, sizes.address,
                sizes.key, sizes.value, sizes.rank);
  out.name = name;
  out.sizes = sizes;
  out.inputs.x = random.normals<T>(tokens * heads * sizes.channels());
  for (size_t i = 0; i < tokens * 5 * heads; ++i) {
    const bool is_decay = i / heads % 5 == 0;
    out.inputs.controls.push_back(check::rounded<float>(is_decay ? -0.2 * random.uniform() : random.uniform()));
  }
  out.inputs.a_key = random.normals<float>(heads * sizes.rank * sizes.key, 1.0 / std::sqrt(sizes.key));
  out.inputs.a_value = random.normals<float>(heads * sizes.rank * sizes.value, 1.0 / std::sqrt(sizes.value));
  out.inputs.c = random.normals<float>(heads * sizes.address * sizes.rank, 1.0 / std::sqrt(sizes.rank));
  out.inputs.state = random.normals<float>(states, 0.5);
  for (size_t i = 0; i < tokens; ++i) out.inputs.starts.push_back(random.uniform() < start_share);
  out.dy = random.normals<T>(tokens * heads * sizes.entity());
  out.dfinal = random.normals<float>(states);
  return out;
}

Results want(const Case &one) {
  Results results;
  reference::mixer(one.sizes, one.inputs, one.dy, one.dfinal, results.outputs, results.gradients);
  return results;
}

template <class T>
void test_random(const reference::Sizes &sizes, unsigned seed, double start_share) {
  const Case one = random_case<T>(sizes, seed, start_share);
  const Results got = mixer_test::run<T>(one.sizes, one.inputs, one.dy, one.dfinal);
  mixer_test::compare(std::string(check::type_name<T>()) + " " + one.name, sizes, got, want(one),
                      mixer_test::tolerances<T>());
}

// A golden file as a case of one row and one head, with inputs rounded to T, and what it asks for.
template <class T>
Case golden_case(const std::string &path, Results &wanted) {
  auto file = safetensors::read(path);
  auto joined = [&](const std::string &prefix, const std::vector<const char *> &names) {
    const int tokens = file.at("q0").shape[0];
    Numbers out;
    for (int t = 0; t < tokens; ++t)
      for (const char *name : names) {
        const Numbers &values = file.at(prefix + name).values;
        const size_t width = values.size() / tokens;
        out.insert(out.end(), values.begin() + t * width, values.begin() + (t + 1) * width);
      }
    return out;
  };
  auto values = [&](const char *name) { return file.at(name).values; };
  const std::vector<const char *> reads = {"q0", "s_raw", "k", "v"};
  const std::vector<const char *> controls = {"log_alpha", "beta_k", "beta_v", "rho", "lambda"};
  Case out;
  out.sizes = {1,
               file.at("q0").shape[0],
               1,
               file.at("q0").shape[1],
               file.at("A_K").shape[1],
               file.at("A_V").shape[1],
               file.at("A_K").shape[0],
               false};
  out.inputs = {joined("", reads),
                joined("", controls),
                values("A_K"),
                values("A_V"),
                values("C"),
                values("E0"),
                std::vector<uint8_t>(out.sizes.tokens, 0)};
  out.dy = values("dy");
  out.dfinal = values("dE_T");
  wanted.outputs = {values("y"), values("E_T"), {}};
  wanted.gradients = {joined("grad.", reads), joined("grad.", controls), values("grad.A_K"),
                      values("grad.A_V"),     values("grad.C"),          values("grad.E0")};
  return out;
}

// The files of $ATPM_GOLDEN; else the project's, and those beside the checkout, where they are.
std::vector<std::string> golden_files() {
  const char *chosen = std::getenv("ATPM_GOLDEN");
  const std::vector<std::string> folders =
      chosen ? std::vector<std::string>{chosen} : std::vector<std::string>{"data/golden", "../shared/golden"};
  std::vector<std::string> files;
  for (const std::string &folder : folders) {
    if (!std::filesystem::is_directory(folder)) continue;
    for (const auto &entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) check::fail("no golden files: run from the project's root, or set ATPM_GOLDEN to their folder");
  return files;
}

// The reference and the f32 kernels against the files themselves; the bf16 kernels against the reference
// on the files' inputs rounded to bf16, since what that rounding changes is not the kernels' error.
void test_golden() {
  for (const std::string &path : golden_files()) {
    const std::string name = std::filesystem::path(path).stem();
    Results wanted;
    Case one = golden_case<float>(path, wanted);
    Results sequential = want(one);
    sequential.outputs.address_norm.clear();
    mixer_test::compare("reference " + name, one.sizes, sequential, wanted, {1e-10, 1e-10, 1e-10});
    mixer_test::compare("f32 " + name, one.sizes,
                        mixer_test::run<float>(one.sizes, one.inputs, one.dy, one.dfinal, 0.0, {false, false, true}),
                        wanted, mixer_test::tolerances<float>());
    for (double &value : one.inputs.x) value = check::rounded<bf16>(value);
    for (double &value : one.dy) value = check::rounded<bf16>(value);
    mixer_test::compare("bf16 " + name, one.sizes,
                        mixer_test::run<bf16>(one.sizes, one.inputs, one.dy, one.dfinal), want(one),
                        mixer_test::tolerances<bf16>());
  }
}

// Without a first state, without the last one's gradient, and with gradient buffers that are not empty.
template <class T>
void test_absent() {
  const reference::Sizes sizes = {1, 90, 2, 32, 16, 32, 8, true};
  Case one = random_case<T>(sizes, 7, 0.05);
  std::fill(one.inputs.state.begin(), one.inputs.state.end(), 0.0);
  std::fill(one.dfinal.begin(), one.dfinal.end(), 0.0);
  Results wanted = want(one);
  for (Numbers *sum : {&wanted.gradients.a_key, &wanted.gradients.a_value, &wanted.gradients.c})
    for (double &value : *sum) value += 0.25;
  mixer_test::compare(std::string(check::type_name<T>()) + " without states", sizes,
                      mixer_test::run<T>(sizes, one.inputs, one.dy, one.dfinal, 0.25, {true, true, false}), wanted,
                      mixer_test::tolerances<T>());
}

// Decays that overflow where they are divided: constant and mixed within a chunk, exactly 0, −10⁴, −∞.
template <class T>
void test_decays() {
  const reference::Sizes sizes = {1, 130, 1, 16, 16, 16, 4, true};
  const double decays[] = {0.0, -1e-3, -5.0, -30.0, -100.0, -1e4, -std::numeric_limits<double>::infinity()};
  for (int mixed = 0; mixed < 2; ++mixed)
    for (double decay : decays) {
      Case one = random_case<T>(sizes, 11, 0.0);
      for (int t = 0; t < sizes.tokens; ++t) one.inputs.controls[t * 5] = mixed && t != 70 ? 0.0 : decay;
      char name[64];
      std::snprintf(name, sizeof name, "%s log alpha %g%s", check::type_name<T>(), decay, mixed ? " once" : "");
      mixer_test::compare(name, sizes, mixer_test::run<T>(sizes, one.inputs, one.dy, one.dfinal), want(one),
                          mixer_test::tolerances<T>());
    }
}

// Addresses that (nearly) repeat, slow decay and full writes: where powers of M would lose all digits.
template <class T>
void test_repeated_addresses() {
  const reference::Sizes sizes = {1, 512, 1, 64, 16, 16, 4, true};
  for (double noise : {0.0, 0.01})
    for (double beta : {0.835, 1.0}) {
      Case one = random_case<T>(sizes, 17, 0.0);
      Random random(18);
      for (int t = 0; t < sizes.tokens; ++t) {
        double *controls = one.inputs.controls.data() + t * 5,
               *source = one.inputs.x.data() + t * sizes.channels() + 64;
        controls[0] = check::rounded<float>(-1e-3);
        controls[1] = controls[2] = check::rounded<float>(beta);
        for (int i = 0; i < 64; ++i) source[i] = check::rounded<T>(one.inputs.x[64 + i] + noise * random.normal());
      }
      char name[64];
      std::snprintf(name, sizeof name, "%s address noise %g, beta %g", check::type_name<T>(), noise, beta);
      mixer_test::compare(name, sizes, mixer_test::run<T>(sizes, one.inputs, one.dy, one.dfinal), want(one),
                          mixer_test::tolerances<T>());
    }
}

// Sources of zeros: transported; not transported, for want of a strength or of a proposal, so that d = 0. One so small
// that ‖d‖² rounds to zero in f32 is like one of zeros.
template <class T>
void test_zero_sources() {
  const reference::Sizes sizes = {2, 70, 1, 16, 16, 16, 4, true};
  Case one = random_case<T>(sizes, 19, 0.0), tiny = one;
  for (int i = 0; i < sizes.batch * sizes.tokens / 7; ++i) {
    const int source = 7 * i * sizes.channels() + sizes.address, key = source + sizes.address;
    for (Case *each : {&one, &tiny}) {
      double *read = each->inputs.x.data();
      std::fill(read + source, read + key, each == &tiny && i % 3 == 1 ? check::rounded<T>(1e-30) : 0.0);
      if (i % 3 == 1) each->inputs.controls[7 * i * 5 + 3] = 0.0;
      if (i % 3 == 2) std::fill(read + key, read + key + sizes.key, 0.0);
    }
  }
  const Results wanted = want(one);
  for (const Case *each : {&one, &tiny}) {
    const std::string name = std::string(check::type_name<T>()) + (each == &one ? " zero sources" : " tiny sources");
    mixer_test::compare(name, sizes, mixer_test::run<T>(sizes, each->inputs, each->dy, each->dfinal), wanted,
                        mixer_test::tolerances<T>());
  }
}

// Past 65,536 tokens, the last ones from the state at the beginning of their chunk.
void test_long() {
  const reference::Sizes sizes = {1, 65637, 1, 16, 16, 16, 4, true};
  const Case one = random_case<float>(sizes, 13, 1e-4);
  mixer_test::Call<float> call(sizes, one.inputs, {});
  mixer_test::Forward<float> forward(call);
  const int first = sizes.tokens / mixer::CHUNK * mixer::CHUNK - mixer::CHUNK, left = sizes.tokens - first;
  auto tail = [&](const auto &all, int per_token) {
    return std::decay_t<decltype(all)>(all.begin() + static_cast<size_t>(first) * per_token, all.end());
  };
  Case rest = one;
  rest.sizes.tokens = left;
  rest.inputs.x = tail(one.inputs.x, sizes.channels());
  rest.inputs.controls = tail(one.inputs.controls, 5);
  rest.inputs.starts = tail(one.inputs.starts, 1);
  const Numbers states = forward.chunk_states.values();
  rest.inputs.state.assign(states.begin() + first / mixer::CHUNK * call.sizes.state_elements(),
                           states.begin() + (first / mixer::CHUNK + 1) * call.sizes.state_elements());
  rest.dy = tail(one.dy, sizes.entity());
  const Results wanted = want(rest);
  const double tolerance = mixer_test::tolerances<float>().value;
  check::close("f32 T65637, the last tokens' y", tail(forward.y.values(), sizes.entity()), wanted.outputs.y, tolerance);
  check::close("f32 T65637 state", forward.final_state.values(), wanted.outputs.state, tolerance);
}

void same_results(const std::string &name, const Results &got, const Results &want) {
  check::same_bits(name + " y", got.outputs.y, want.outputs.y);
  check::same_bits(name + " state", got.outputs.state, want.outputs.state);
  check::same_bits(name + " dx", got.gradients.x, want.gradients.x);
  check::same_bits(name + " dcontrols", got.gradients.controls, want.gradients.controls);
  check::same_bits(name + " dA_K", got.gradients.a_key, want.gradients.a_key);
  check::same_bits(name + " dA_V", got.gradients.a_value, want.gradients.a_value);
  check::same_bits(name + " dC", got.gradients.c, want.gradients.c);
  check::same_bits(name + " dE0", got.gradients.state, want.gradients.state);
}

// Another order of threads or of copies, narrower slices of the scans, or no saved states must not change a bit.
template <class T>
void test_same_bits() {
  const reference::Sizes sizes = {1, 130, 1, 80, 16, 72, 20, true};
  const Case one = random_case<T>(sizes, 3, 0.03);
  auto run = [&](unsigned seed, mixer_test::Options options) {
    emulation::schedule.seed = seed;
    return mixer_test::run<T>(one.sizes, one.inputs, one.dy, one.dfinal, 0.0, {}, options);
  };
  const Results first = run(0, {});
  const std::string type = check::type_name<T>();
  for (unsigned seed = 1; seed < 6; ++seed)
    same_results(type + " schedule " + std::to_string(seed), run(seed, {}), first);
  emulation::schedule.seed = 0;
  for (int width : {16, 32}) {
    const Results other = run(0, {width, true});
    const std::string name = type + " slices of " + std::to_string(width);
    same_results(name, other, first);
  }
  mixer_test::Call<T> call(one.sizes, one.inputs, {}, {0, false});
  mixer_test::Forward<T> forward(call);
  check::same_bits(type + " y without saved states", forward.y.values(), first.outputs.y);
}

template <class T>
void test_sizes() {
  for (int tokens : {1, 63, 64, 65, 130}) {
    test_random<T>({2, tokens, 2, 16, 16, 16, 4, true}, 100 + tokens, 0.03);
    test_random<T>({1, tokens, 1, 64, 64, 64, 16, true}, 200 + tokens, 0.0);
  }
  test_random<T>({1, 1000, 1, 64, 64, 64, 16, true}, 300, 0.005);
  test_random<T>({1, 600, 1, 16, 16, 32, 4, false}, 301, 0.0);  // more chunks than one group
  test_random<T>({1, 70, 2, 48, 32, 80, 20, false}, 302, 0.02);
  test_random<T>({1, 65, 1, 96, 208, 16, 33, true}, 303, 0.0);
  test_random<T>({1, 65, 1, 192, 64, 64, 16, true}, 305, 0.02);
  test_random<T>({1, 65, 1, 256, 256, 256, 64, true}, 304, 0.02);
}

// Enough to touch every kernel, whole and ragged chunks and several panels: for slow builds.
template <class T>
void test_few() {
  test_random<T>({2, 65, 1, 16, 16, 16, 4, true}, 1, 0.03);
  test_random<T>({1, 130, 1, 80, 72, 16, 20, false}, 2, 0.03);
  test_random<T>({1, 7, 1, 256, 16, 256, 64, true}, 3, 0.0);
}

}  // namespace

int main(int argc, char **argv) {
  if (argc > 1 && std::string(argv[1]) == "quick") {
    test_few<float>();
    test_few<bf16>();
    return check::finish("mixer, a few cases");
  }
  test_golden();
  test_sizes<float>();
  test_sizes<bf16>();
  test_absent<float>();
  test_absent<bf16>();
  test_decays<float>();
  test_decays<bf16>();
  test_repeated_addresses<float>();
  test_repeated_addresses<bf16>();
  test_zero_sources<float>();
  test_zero_sources<bf16>();
  test_long();
  test_same_bits<float>();
  test_same_bits<bf16>();
  return check::finish("mixer");
}
