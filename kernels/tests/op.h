// What the tests of the smaller ops share beyond check.h and tape.h.
#pragma once

#include "check.h"
#include "tape.h"

namespace op_test {

using check::Buffer;
using check::launch;
using check::Random;
using Numbers = std::vector<double>;
using Vars = std::vector<tape::Var>;

struct Tolerances {
  double value, gradient;
};
template <class T>
constexpr Tolerances tolerances() {
  return sizeof(T) == 2 ? Tolerances{5e-3, 8e-3} : Tolerances{1e-5, 1e-4};
}

template <class T>
std::string named(const std::string &what, const std::vector<int> &sizes) {
  std::string out = std::string(check::type_name<T>()) + " " + what;
  for (int size : sizes) out += " " + std::to_string(size);
  return out;
}

template <class T>
void compare_value(const std::string &name, Buffer<T> &got, const Numbers &want) {
  check::close(name, got.values(), want, tolerances<T>().value);
}
template <class T, class Stored>
void compare_gradient(const std::string &name, Buffer<Stored> &got, const Numbers &want) {
  check::close(name, got.values(), want, tolerances<T>().gradient);
}

// Runs a test for f32 and for bf16, each under several schedules.
template <class Test>
void for_both_types(Test &&test) {
  for (unsigned seed = 0; seed < 3; ++seed) {
    emulation::schedule.seed = seed;
    test(float{}, seed);
    test(bf16{}, seed);
  }
}

}  // namespace op_test

// After the op's own kernels: sums of partial gradients.
#define SUM_PARTIALS(partials, count, width, sum)                            \
  ::check::launch(((width) + ROW_THREADS - 1) / ROW_THREADS, ROW_THREADS, 0, \
                  [&] { add_partials((partials).data(), count, width, (sum).data()); })
