// cross_entropy, emulated, against float64 with recorded derivatives.
#include "../cross_entropy.cu"
#include "op.h"

using namespace op_test;

namespace {

constexpr double SCALE = 0.125;

template <class T>
void test(unsigned seed, int tokens, int vocabulary, double z_loss, double spread) {
  Random random(seed);
  const Numbers logits_in = random.normals<float>(static_cast<size_t>(tokens) * vocabulary, spread);
  Numbers targets_in;
  for (int t = 0; t < tokens; ++t) targets_in.push_back(t % 5 == 3 ? cross_entropy::IGNORE : random.below(vocabulary));
  tape::nodes.clear();
  const Vars logits = tape::inputs(logits_in);
  Vars objectives;
  Numbers losses_want;
  for (int t = 0; t < tokens; ++t) {
    const auto *row = logits.data() + static_cast<size_t>(t) * vocabulary;
    if (targets_in[t] == cross_entropy::IGNORE) {
      losses_want.push_back(0.0);
      continue;
    }
    double max = row[0].value;
    for (int v = 0; v < vocabulary; ++v) max = std::max(max, row[v].value);
    tape::Var sum;
    for (int v = 0; v < vocabulary; ++v) sum = sum + tape::exp(row[v] - max);
    const tape::Var lse = tape::log(sum) + max, loss = lse - row[static_cast<int>(targets_in[t])];
    losses_want.push_back(loss.value);
    objectives.push_back(loss + lse * lse * z_loss);
  }
  const Numbers gradient_want =
      tape::gradient_of(tape::gradients(objectives, Numbers(objectives.size(), SCALE)), logits);

  Buffer<float> logits_buffer(logits_in), losses(tokens), losses_alone(tokens);
  Buffer<uint32_t> targets(targets_in);
  launch(tokens, cross_entropy::THREADS, 0,
         [&] { cross_entropy_loss(logits_buffer.data(), targets.data(), losses_alone.data(), vocabulary); });
  launch(tokens, cross_entropy::THREADS, 0, [&] {
    constexpr auto gradient = sizeof(T) == 2 ? cross_entropy_gradient_bf16 : cross_entropy_gradient_f32;
    gradient(logits_buffer.data(), targets.data(), SCALE, static_cast<float>(z_loss), losses.data(), vocabulary);
  });
  Numbers gradient;
  for (int t = 0; t < tokens; ++t) {
    const T *row = reinterpret_cast<const T *>(logits_buffer.data() + static_cast<size_t>(t) * vocabulary);
    for (int v = 0; v < vocabulary; ++v) gradient.push_back(to_float(row[v]));
  }
  const std::string name = named<T>("cross_entropy", {tokens, vocabulary});
  check::close(name + " losses", losses.values(), losses_want, 1e-5);
  check::close(name + " losses alone", losses_alone.values(), losses_want, 1e-5);
  check::close(name + " gradient", gradient, gradient_want, tolerances<T>().gradient);
}

// A logit that is no number must be seen in its token's loss, wherever it stands, and in no other.
void test_nan() {
  const int vocabulary = 600;
  for (int place : {0, 1, 255, 256, 599}) {
    Buffer<float> logits(Numbers(2 * vocabulary, 1.0)), losses(2);
    Buffer<uint32_t> targets(Numbers{5.0, 5.0});
    check::set_nan(logits.data()[place]);
    launch(2, cross_entropy::THREADS, 0,
           [&] { cross_entropy_loss(logits.data(), targets.data(), losses.data(), vocabulary); });
    check::expect(std::isnan(losses.data()[0]) && std::isfinite(losses.data()[1]),
                  "a NaN logit reaches its loss alone");
  }
}

}  // namespace

int main() {
  for_both_types([](auto type, unsigned seed) {
    using T = decltype(type);
    for (int tokens : {1, 63, 64, 65, 130}) test<T>(seed, tokens, 300, 0.0, 3.0);
    test<T>(seed, 1000, 17, 1e-3, 3.0);
    test<T>(seed, 6, 5003, 1e-3, 20.0);
    test<T>(seed, 4, 1024, 0.0, 0.0);
  });
  test_nan();
  return check::finish("cross_entropy");
}
