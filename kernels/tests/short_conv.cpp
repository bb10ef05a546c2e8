// short_conv, emulated, against float64 with recorded derivatives.
#include "../partials.cu"
#include "../short_conv.cu"
#include "op.h"

using namespace op_test;

namespace {

struct Given {
  bool state, dfinal;
  double start_share;
};

template <class T>
void test(unsigned seed, int batch, int tokens, int channels, int width, Given given) {
  Random random(seed);
  const size_t count = static_cast<size_t>(batch) * tokens * channels, states = batch * (width - 1) * channels;
  const Numbers x_in = random.normals<T>(count), dy_in = random.normals<T>(count);
  const Numbers w_in = random.normals<float>(channels * width);
  const Numbers state_in = given.state ? random.normals<T>(states) : Numbers(states, 0.0);
  const Numbers dfinal_in = given.dfinal ? random.normals<T>(states) : Numbers(states, 0.0);
  std::vector<uint8_t> starts_in(static_cast<size_t>(batch) * tokens);
  for (uint8_t &start : starts_in) start = random.uniform() < given.start_share;

  // Whether token t of a row sees the input `back` places before it; t may be the one after the row.
  auto sees = [&](int row, int t, int back) {
    for (int between = t - back + 1; between <= t; ++between)
      if (between >= 0 && between < tokens && starts_in[row * tokens + between] != 0) return false;
    return true;
  };
  tape::nodes.clear();
  const Vars x = tape::inputs(x_in), w = tape::inputs(w_in), state = tape::inputs(state_in);
  auto input = [&](int row, int t, int channel) {
    return t >= 0 ? x[(row * tokens + t) * channels + channel]
                  : state[(row * (width - 1) + t + width - 1) * channels + channel];
  };
  Vars outputs;
  for (int row = 0; row < batch; ++row)
    for (int t = 0; t < tokens; ++t)
      for (int channel = 0; channel < channels; ++channel) {
        tape::Var pre;
        for (int j = 0; j < width; ++j)
          if (sees(row, t, width - 1 - j)) pre = pre + w[channel * width + j] * input(row, t - width + 1 + j, channel);
        outputs.push_back(tape::silu(pre));
      }
  for (int row = 0; row < batch; ++row)
    for (int i = 0; i < width - 1; ++i)
      for (int channel = 0; channel < channels; ++channel)
        outputs.push_back(sees(row, tokens, width - 1 - i) ? input(row, tokens - width + 1 + i, channel) : tape::Var());
  Numbers seeds = dy_in;
  seeds.insert(seeds.end(), dfinal_in.begin(), dfinal_in.end());
  const Numbers sums = tape::gradients(outputs, seeds), all = tape::values(outputs);
  Numbers dw_want = tape::gradient_of(sums, w);
  for (double &value : dw_want) value += 0.5;

  constexpr auto forward = [] {
    if constexpr (sizeof(T) == 2)
      return short_conv_forward_bf16;
    else
      return short_conv_forward_f32;
  }();
  constexpr auto backward = [] {
    if constexpr (sizeof(T) == 2)
      return short_conv_backward_bf16;
    else
      return short_conv_backward_f32;
  }();
  Buffer<T> x_buffer(x_in), dy(dy_in), state_buffer(state_in), dfinal(dfinal_in);
  Buffer<T> y(count), final_state(states), dx(count), dstate(states);
  Buffer<float> weight(w_in), dweight(Numbers(w_in.size(), 0.5));
  Buffer<uint8_t> starts(starts_in.size());
  std::copy(starts_in.begin(), starts_in.end(), starts.data());
  const uint8_t *starts_or_null = given.start_share == 0.0 ? nullptr : starts.data();
  const T *state_or_null = given.state ? state_buffer.data() : nullptr;
  const T *dfinal_or_null = given.dfinal ? dfinal.data() : nullptr;
  const int64_t blocks = short_conv::blocks(batch, tokens, channels),
                partial_rows = short_conv::token_blocks(batch, tokens);
  Buffer<float> partials(partial_rows * channels * width);
  launch(blocks, short_conv::THREADS, 0, [&] {
    forward(x_buffer.data(), weight.data(), state_or_null, starts_or_null, y.data(), final_state.data(), tokens,
            channels, width);
  });
  launch(blocks, short_conv::THREADS, 0, [&] {
    backward(x_buffer.data(), weight.data(), state_or_null, starts_or_null, dy.data(), dfinal_or_null, dx.data(),
             dstate.data(), partials.data(), tokens, channels, width);
  });
  SUM_PARTIALS(partials, partial_rows, channels * width, dweight);
  const std::string name = named<T>("short_conv", {batch, tokens, channels, width});
  compare_value<T>(name + " y", y, Numbers(all.begin(), all.begin() + count));
  compare_value<T>(name + " final", final_state, Numbers(all.begin() + count, all.end()));
  compare_gradient<T>(name + " dx", dx, tape::gradient_of(sums, x));
  compare_gradient<T>(name + " dw", dweight, dw_want);
  compare_gradient<T>(name + " dstate", dstate, given.state ? tape::gradient_of(sums, state) : Numbers(states, 0.0));
}

}  // namespace

int main() {
  for_both_types([](auto type, unsigned seed) {
    using T = decltype(type);
    for (int tokens : {1, 2, 3, 4, 63, 64, 65, 130}) test<T>(seed, 2, tokens, 5, 4, {true, true, 0.05});
    for (int width = 2; width <= 8; ++width) test<T>(seed, 1, 70, 3, width, {true, true, 0.3});
    test<T>(seed, 1, 1000, 4, 4, {false, true, 0.01});
    test<T>(seed, 2, 66, 150, 4, {true, false, 0.0});
    test<T>(seed, 1, 2, 6, 8, {true, true, 0.0});
  });
  return check::finish("short_conv");
}
