// Kernels by name, for callers that have arguments as a driver gets them: an array of addresses.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace emulation {

struct Kernel {
  // `const f32*`, `i64`, …: the types of the parameters in the words of crates/atpm-core/src/cuda/launch.rs.
  std::vector<std::string> parameters;
  // Runs as one thread of one block. `arguments[i]` points to the i-th argument.
  std::function<void(const void *const *arguments)> call;
};

// Every kernel of this project.
const std::map<std::string, Kernel> &kernels();

}  // namespace emulation
