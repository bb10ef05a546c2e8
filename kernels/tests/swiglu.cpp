// swiglu, emulated, against float64 with recorded derivatives.
#include "../swiglu.cu"
#include "op.h"

using namespace op_test;

namespace {

template <class T>
void test(unsigned seed, int rows, int width) {
  Random random(seed);
  const size_t count = static_cast<size_t>(rows) * width;
  const Numbers x_in = random.normals<T>(2 * count, 3.0), dout_in = random.normals<T>(count);
  tape::nodes.clear();
  const Vars x = tape::inputs(x_in);
  Vars out;
  for (int row = 0; row < rows; ++row)
    for (int i = 0; i < width; ++i) out.push_back(tape::silu(x[row * 2 * width + i]) * x[row * 2 * width + width + i]);

  constexpr auto forward = [] {
    if constexpr (sizeof(T) == 2)
      return swiglu_forward_bf16;
    else
      return swiglu_forward_f32;
  }();
  constexpr auto backward = [] {
    if constexpr (sizeof(T) == 2)
      return swiglu_backward_bf16;
    else
      return swiglu_backward_f32;
  }();
  Buffer<T> x_buffer(x_in), dout(dout_in), out_buffer(count), dx(2 * count);
  launch(swiglu::blocks(rows, width), ROW_THREADS, 0, [&] { forward(x_buffer.data(), out_buffer.data(), width); });
  launch(swiglu::blocks(rows, width), ROW_THREADS, 0,
         [&] { backward(x_buffer.data(), dout.data(), dx.data(), width); });
  const std::string name = named<T>("swiglu", {rows, width});
  compare_value<T>(name + " out", out_buffer, tape::values(out));
  compare_gradient<T>(name + " dx", dx, tape::gradient_of(tape::gradients(out, dout_in), x));
}

}  // namespace

int main() {
  for_both_types([](auto type, unsigned seed) {
    using T = decltype(type);
    for (int rows : {1, 63, 64, 65, 130}) test<T>(seed, rows, 64);
    test<T>(seed, 1000, 16);
    test<T>(seed, 5, 1034);
    test<T>(seed, 2, 512);
  });
  return check::finish("swiglu");
}
