// gates, emulated, against float64 with recorded derivatives.
#include "../gates.cu"
#include "../partials.cu"
#include "op.h"

using namespace op_test;

namespace {

struct Pins {
  float rho = NAN, lambda = NAN;
  bool tie_beta = false;
};

void run(const std::string &name, const Numbers &logits_in, const Numbers &a_log_in, const Numbers &dt_bias_in,
         const Numbers &bias_in, const Numbers &dcontrols_in, Pins pins) {
  const int heads = static_cast<int>(a_log_in.size());
  const int64_t tokens = static_cast<int64_t>(logits_in.size()) / (5 * heads);
  tape::nodes.clear();
  const Vars logits = tape::inputs(logits_in), a_log = tape::inputs(a_log_in), dt_bias = tape::inputs(dt_bias_in);
  const Vars bias = tape::inputs(bias_in);
  Vars controls;
  for (int64_t t = 0; t < tokens; ++t)
    for (int controller = 0; controller < 5; ++controller)
      for (int head = 0; head < heads; ++head) {
        const int source = controller == 2 && pins.tie_beta ? 1 : controller;
        const tape::Var logit = logits[(t * 5 + source) * heads + head];
        if (controller == 0) {
          const tape::Var m = tape::exp(a_log[head]) * tape::softplus(logit + dt_bias[head]);
          // exp(A_log) may be infinite: softplus is then so small that the product of exponents is meant.
          const double exact =
              m.value == m.value ? m.value : std::exp(a_log[head].value + logit.value + dt_bias[head].value);
          controls.push_back(exact <= 1e5 ? -m : tape::Var(-1e5));
        } else if (controller == 3 && pins.rho == pins.rho) {
          controls.push_back(tape::Var(pins.rho));
        } else if (controller == 4 && pins.lambda == pins.lambda) {
          controls.push_back(tape::Var(pins.lambda));
        } else {
          controls.push_back(tape::sigmoid(logit + bias[(source - 1) * heads + head]));
        }
      }
  const Numbers sums = tape::gradients(controls, dcontrols_in);
  Numbers parameters_want = tape::gradient_of(sums, a_log);
  for (const Vars *vars : {&dt_bias, &bias})
    for (double value : tape::gradient_of(sums, *vars)) parameters_want.push_back(value);

  Buffer<float> logits_buffer(logits_in), a_log_buffer(a_log_in), dt_bias_buffer(dt_bias_in), bias_buffer(bias_in);
  Buffer<float> dcontrols(dcontrols_in), controls_buffer(logits_in.size()), dlogits(logits_in.size());
  Buffer<float> partials(gates::blocks(tokens) * 6 * heads), dparameters(Numbers(6 * heads, 0.0));
  launch(gates::blocks(tokens), gates::THREADS, 0, [&] {
    gates_forward(logits_buffer.data(), a_log_buffer.data(), dt_bias_buffer.data(), bias_buffer.data(), pins.rho,
                  pins.lambda, pins.tie_beta, controls_buffer.data(), tokens, heads);
  });
  launch(gates::blocks(tokens), gates::THREADS, 0, [&] {
    gates_backward(logits_buffer.data(), a_log_buffer.data(), dt_bias_buffer.data(), bias_buffer.data(), pins.rho,
                   pins.lambda, pins.tie_beta, dcontrols.data(), dlogits.data(), partials.data(), tokens, heads);
  });
  SUM_PARTIALS(partials, gates::blocks(tokens), 6 * heads, dparameters);
  compare_value<float>(name + " controls", controls_buffer, tape::values(controls));
  compare_gradient<float>(name + " dlogits", dlogits, tape::gradient_of(sums, logits));
  compare_gradient<float>(name + " dparameters", dparameters, parameters_want);
}

void test_random(unsigned seed, int tokens, int heads, Pins pins) {
  Random random(seed);
  run(named<float>("gates", {tokens, heads}), random.normals<float>(tokens * 5 * heads, 3.0),
      random.normals<float>(heads), random.normals<float>(heads), random.normals<float>(4 * heads),
      random.normals<float>(tokens * 5 * heads), pins);
}

// Corners in which ∞·0 would give NaN.
void test_corners() {
  for (double a_log : {-100.0, -20.0, 0.0, 20.0, 89.0, 100.0})
    for (double x : {-200.0, -50.0, -20.0, 0.0, 20.0, 200.0})
      run("gates A_log " + std::to_string(a_log) + " x " + std::to_string(x), {x, x, x, x, x}, {a_log}, {0.0},
          {0.0, 0.0, 0.0, 0.0}, {1.0, 1.0, 1.0, 1.0, 1.0}, {});
}

}  // namespace

int main() {
  for (unsigned seed = 0; seed < 3; ++seed) {
    emulation::schedule.seed = seed;
    for (int tokens : {1, 63, 64, 65, 130, 1000}) test_random(seed, tokens, 3, {});
    test_random(seed, 70, 40, {});
    test_random(seed, 70, 2, {0.25f, NAN, false});
    test_random(seed, 70, 2, {NAN, 1.0f, true});
  }
  test_corners();
  return check::finish("gates");
}
