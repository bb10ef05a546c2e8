// Emulated launches by name, for callers in another language: arguments come as a driver gets them, as an array of
// addresses. Each also brings the name of its type, which must be that of the kernel's parameter: what a driver
// cannot check, this does.
#include "../adamw.cu"
#include "../casts.cu"
#include "../cross_entropy.cu"
#include "../elements.cu"
#include "../embedding.cu"
#include "../gated_norm.cu"
#include "../gates.cu"
#include "../mixer.cu"
#include "../partials.cu"
#include "../rms_norm.cu"
#include "../short_conv.cu"
#include "../swiglu.cu"

#include "launch.h"

#include <utility>

namespace {

using emulation::Kernel;

template <class T>
std::string type_name();
#define TYPE_NAME(T, NAME)     \
  template <>                  \
  std::string type_name<T>() { \
    return NAME;               \
  }
TYPE_NAME(float, "f32")
TYPE_NAME(double, "f64")
TYPE_NAME(bf16, "bf16")
TYPE_NAME(int, "i32")
TYPE_NAME(int64_t, "i64")
TYPE_NAME(uint8_t, "u8")
TYPE_NAME(uint32_t, "u32")
// Structs are written by the other side as numbers.
TYPE_NAME(AdamwTensor, "u64")
TYPE_NAME(AdamwPart, "u64")
TYPE_NAME(AdamwConstants, "f32[7]")
static_assert(sizeof(AdamwTensor) == 7 * sizeof(uint64_t) && offsetof(AdamwTensor, decay) == 6 * sizeof(uint64_t));
static_assert(sizeof(AdamwPart) == 2 * sizeof(uint64_t) && sizeof(AdamwConstants) == 7 * sizeof(float));

template <class T>
struct Name {
  static std::string get() { return type_name<T>(); }
};
template <class T>
struct Name<T *> {
  static std::string get() { return type_name<T>() + "*"; }
};
template <class T>
struct Name<const T *> {
  static std::string get() { return "const " + type_name<T>() + "*"; }
};

template <class... Parameters, size_t... Indices>
Kernel entry(void (*kernel)(Parameters...), std::index_sequence<Indices...>) {
  return {{Name<Parameters>::get()...}, [kernel](const void *const *arguments) {
            kernel(*static_cast<const Parameters *>(arguments[Indices])...);
          }};
}
template <class... Parameters>
Kernel entry(void (*kernel)(Parameters...)) {
  return entry(kernel, std::index_sequence_for<Parameters...>());
}

#define KERNEL(NAME) {#NAME, entry(NAME)}
#define BOTH(NAME) KERNEL(NAME##_f32), KERNEL(NAME##_bf16)

}  // namespace

const std::map<std::string, Kernel> &emulation::kernels() {
  static const std::map<std::string, Kernel> all = {
      KERNEL(adamw_update),
      KERNEL(squared_norm),
      KERNEL(cast_f32_to_bf16),
      KERNEL(cast_bf16_to_f32),
      KERNEL(cross_entropy_loss),
      BOTH(cross_entropy_gradient),
      BOTH(elements_add),
      KERNEL(elements_copy),
      KERNEL(elements_clear),
      BOTH(embedding_forward),
      BOTH(embedding_backward),
      BOTH(gated_norm_forward),
      BOTH(gated_norm_backward),
      KERNEL(gates_forward),
      KERNEL(gates_backward),
      BOTH(mixer_addresses),
      BOTH(mixer_prepare),
      BOTH(mixer_scan),
      BOTH(mixer_scan_backward),
      BOTH(mixer_entity_backward),
      BOTH(mixer_address_backward),
      BOTH(mixer_addresses_backward),
      KERNEL(mixer_transport_gradients),
      KERNEL(add_partials),
      BOTH(rms_norm_forward),
      BOTH(rms_norm_backward),
      BOTH(short_conv_forward),
      BOTH(short_conv_backward),
      BOTH(swiglu_forward),
      BOTH(swiglu_backward),
  };
  return all;
}

// Runs a kernel on a grid of one dimension. Returns null, or what is wrong with the call, which stays until the next.
extern "C" const char *emulated_launch(const char *kernel, unsigned blocks, unsigned threads, size_t shared_bytes,
                                       const void *const *arguments, const char *const *types, size_t count) {
  static std::string problem;
  const auto found = emulation::kernels().find(kernel);
  if (found == emulation::kernels().end()) {
    problem = "there is no such kernel";
    return problem.c_str();
  }
  const std::vector<std::string> &parameters = found->second.parameters;
  if (count != parameters.size()) {
    problem = std::to_string(count) + " arguments for " + std::to_string(parameters.size()) + " parameters";
    return problem.c_str();
  }
  for (size_t i = 0; i < count; ++i) {
    // A kernel may leave alone what it could write.
    if (types[i] != parameters[i] && "const " + std::string(types[i]) != parameters[i]) {
      problem = "argument " + std::to_string(i) + " is " + types[i] + ", the kernel takes " + parameters[i];
      return problem.c_str();
    }
  }
  if (shared_bytes > MOST_SHARED_BYTES) {
    problem = std::to_string(shared_bytes) + " bytes of shared memory are more than sm_80 has";
    return problem.c_str();
  }
  // Threads in another order every time, so that a result that depends on it differs between runs of one test.
  ++emulation::schedule.seed;
  emulation::launch(dim3(blocks), dim3(threads), shared_bytes, [&] { found->second.call(arguments); });
  return nullptr;
}
