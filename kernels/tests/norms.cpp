// rms_norm and gated_norm, emulated, against float64 with recorded derivatives.
#include "../gated_norm.cu"
#include "../partials.cu"
#include "../rms_norm.cu"
#include "op.h"

using namespace op_test;

namespace {

constexpr float EPS = 1e-5f;

tape::Var inverse_rms_of(const Vars &x, size_t first, int width) {
  tape::Var sum;
  for (int i = 0; i < width; ++i) sum = sum + x[first + i] * x[first + i];
  return tape::Var(1.0) / tape::sqrt(sum / width + static_cast<double>(EPS));
}

template <class T>
void test_rms_norm(unsigned seed, int rows, int width, bool has_residual) {
  Random random(seed);
  const size_t count = static_cast<size_t>(rows) * width;
  const Numbers x_in = random.normals<T>(count), dy_in = random.normals<T>(count),
                residual_in = random.normals<T>(count);
  const Numbers w_in = random.normals<float>(width);
  tape::nodes.clear();
  const Vars x = tape::inputs(x_in), w = tape::inputs(w_in);
  Vars y;
  for (int row = 0; row < rows; ++row) {
    const tape::Var scale = inverse_rms_of(x, static_cast<size_t>(row) * width, width);
    for (int i = 0; i < width; ++i) y.push_back(scale * x[row * width + i] * w[i]);
  }
  const Numbers sums = tape::gradients(y, dy_in);
  Numbers dx_want = tape::gradient_of(sums, x), dw_want = tape::gradient_of(sums, w);
  if (has_residual)
    for (size_t i = 0; i < count; ++i) dx_want[i] += residual_in[i];
  for (double &value : dw_want) value += 0.5;

  constexpr auto forward = [] {
    if constexpr (sizeof(T) == 2)
      return rms_norm_forward_bf16;
    else
      return rms_norm_forward_f32;
  }();
  constexpr auto backward = [] {
    if constexpr (sizeof(T) == 2)
      return rms_norm_backward_bf16;
    else
      return rms_norm_backward_f32;
  }();
  Buffer<T> x_buffer(x_in), dy(dy_in), residual(residual_in), y_buffer(count), dx(count);
  Buffer<float> weight(w_in), dweight(Numbers(width, 0.5));
  const int64_t blocks = row_backward_blocks(rows);
  Buffer<float> partials(blocks * width);
  launch(row_blocks(rows), ROW_THREADS, 0,
         [&] { forward(x_buffer.data(), weight.data(), EPS, y_buffer.data(), rows, width); });
  launch(blocks, ROW_THREADS, row_backward_shared_bytes(width), [&] {
    backward(x_buffer.data(), weight.data(), EPS, dy.data(), has_residual ? residual.data() : nullptr, dx.data(),
             partials.data(), rows, width);
  });
  SUM_PARTIALS(partials, blocks, width, dweight);
  const std::string name = named<T>("rms_norm", {rows, width});
  compare_value<T>(name + " y", y_buffer, tape::values(y));
  compare_gradient<T>(name + " dx", dx, dx_want);
  compare_gradient<T>(name + " dw", dweight, dw_want);
}

template <class T>
void test_gated_norm(unsigned seed, int rows, int width) {
  Random random(seed);
  const size_t count = static_cast<size_t>(rows) * width;
  const Numbers y_in = random.normals<T>(count), gate_in = random.normals<T>(count, 2.0),
                dout_in = random.normals<T>(count);
  const Numbers w_in = random.normals<float>(width);
  tape::nodes.clear();
  const Vars y = tape::inputs(y_in), gate = tape::inputs(gate_in), w = tape::inputs(w_in);
  Vars out;
  for (int row = 0; row < rows; ++row) {
    const tape::Var scale = inverse_rms_of(y, static_cast<size_t>(row) * width, width);
    for (int i = 0; i < width; ++i) {
      const int at = row * width + i;
      out.push_back(scale * y[at] * w[i] * tape::silu(gate[at]));
    }
  }
  const Numbers sums = tape::gradients(out, dout_in);
  Numbers dw_want = tape::gradient_of(sums, w);
  for (double &value : dw_want) value += 0.5;

  constexpr auto forward = [] {
    if constexpr (sizeof(T) == 2)
      return gated_norm_forward_bf16;
    else
      return gated_norm_forward_f32;
  }();
  constexpr auto backward = [] {
    if constexpr (sizeof(T) == 2)
      return gated_norm_backward_bf16;
    else
      return gated_norm_backward_f32;
  }();
  Buffer<T> y_buffer(y_in), gate_buffer(gate_in), dout(dout_in), out_buffer(count), dy(count), dgate(count);
  Buffer<float> weight(w_in), dweight(Numbers(width, 0.5));
  const int64_t blocks = row_backward_blocks(rows);
  Buffer<float> partials(blocks * width);
  launch(row_blocks(rows), ROW_THREADS, 0,
         [&] { forward(y_buffer.data(), gate_buffer.data(), weight.data(), EPS, out_buffer.data(), rows, width); });
  launch(blocks, ROW_THREADS, row_backward_shared_bytes(width), [&] {
    backward(y_buffer.data(), gate_buffer.data(), weight.data(), EPS, dout.data(), dy.data(), dgate.data(),
             partials.data(), rows, width);
  });
  SUM_PARTIALS(partials, blocks, width, dweight);
  const std::string name = named<T>("gated_norm", {rows, width});
  compare_value<T>(name + " out", out_buffer, tape::values(out));
  compare_gradient<T>(name + " dy", dy, tape::gradient_of(sums, y));
  compare_gradient<T>(name + " dgate", dgate, tape::gradient_of(sums, gate));
  compare_gradient<T>(name + " dw", dweight, dw_want);
}

}  // namespace

int main() {
  for_both_types([](auto type, unsigned seed) {
    using T = decltype(type);
    for (int rows : {1, 63, 64, 65, 130}) {
      test_rms_norm<T>(seed, rows, 128, rows % 2 == 0);
      test_gated_norm<T>(seed, rows, 32);
    }
    test_rms_norm<T>(seed, 1000, 16, true);
    test_rms_norm<T>(seed, 7, 1026, true);
    test_rms_norm<T>(seed, 3, 4096, false);
    test_gated_norm<T>(seed, 1000, 16);
    test_gated_norm<T>(seed, 9, 302);
  });
  return check::finish("norms");
}
