// AdamW, the gradient norm and the casts, emulated, against float64.
#include "../adamw.cu"
#include "../casts.cu"
#include "op.h"

#include <memory>

using namespace op_test;

namespace {

struct Tensor {
  Numbers p, m, v, g;
  double weight_decay;
};

void test_update(unsigned seed) {
  Random random(seed);
  const double lr = 1e-2, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, most = 1.0;
  const double step = 3;
  std::vector<Tensor> tensors;
  for (int elements : {1, 63, 1000, 8192, 8193, 20000}) {
    Tensor tensor = {random.normals<float>(elements),
                     random.normals<float>(elements, 0.1),
                     {},
                     random.normals<float>(elements),
                     elements % 2 == 0 ? 0.1 : 0.0};
    for (double m : tensor.m) tensor.v.push_back(check::rounded<float>(m * m + 1e-3));
    tensors.push_back(tensor);
  }
  double squares = 0.0;
  for (const Tensor &tensor : tensors)
    for (double g : tensor.g) squares += g * g;
  const double factor = check::rounded<float>(std::min(1.0, most / std::sqrt(squares)));

  std::vector<std::unique_ptr<Buffer<float>>> buffers;
  std::vector<std::unique_ptr<Buffer<bf16>>> copies;
  std::vector<AdamwTensor> table;
  std::vector<AdamwPart> parts;
  for (const Tensor &tensor : tensors) {
    float *data[4];
    const Numbers *sources[] = {&tensor.p, &tensor.m, &tensor.v, &tensor.g};
    for (int i = 0; i < 4; ++i) {
      buffers.push_back(std::make_unique<Buffer<float>>(*sources[i]));
      data[i] = buffers.back()->data();
    }
    copies.push_back(std::make_unique<Buffer<bf16>>(tensor.p.size()));
    const int64_t elements = tensor.p.size();
    for (int64_t first = 0; first < elements; first += adamw::PART_ELEMENTS)
      parts.push_back({static_cast<int64_t>(table.size()), first});
    // The first tensor keeps no copy.
    table.push_back({data[0], data[1], data[2], data[3], table.empty() ? nullptr : copies.back()->data(), elements,
                     static_cast<float>(lr * tensor.weight_decay)});
  }
  const AdamwConstants constants = {static_cast<float>(beta1),
                                    static_cast<float>(1.0 - beta1),
                                    static_cast<float>(beta2),
                                    static_cast<float>(1.0 - beta2),
                                    static_cast<float>(eps),
                                    static_cast<float>(lr / (1.0 - std::pow(beta1, step))),
                                    static_cast<float>(1.0 / (1.0 - std::pow(beta2, step)))};
  const int64_t count = parts.size();
  Buffer<double> sums(count);
  Buffer<float> grad_scale(Numbers{factor});
  launch(count, adamw::THREADS, 0, [&] { squared_norm(table.data(), parts.data(), sums.data()); });
  launch(count, adamw::THREADS, 0, [&] { adamw_update(table.data(), parts.data(), grad_scale.data(), constants); });

  double sum = 0.0;
  for (double part : sums.values()) sum += part;
  check::close("squared gradient norm", {sum}, {squares}, 1e-12);
  for (size_t i = 0; i < tensors.size(); ++i) {
    Tensor want = tensors[i];
    for (size_t j = 0; j < want.p.size(); ++j) {
      const double g = want.g[j] * factor;
      want.m[j] = beta1 * want.m[j] + (1.0 - beta1) * g;
      want.v[j] = beta2 * want.v[j] + (1.0 - beta2) * g * g;
      const double hat_m = want.m[j] / (1.0 - std::pow(beta1, step)), hat_v = want.v[j] / (1.0 - std::pow(beta2, step));
      want.p[j] -= lr * want.weight_decay * want.p[j] + lr * hat_m / (std::sqrt(hat_v) + eps);
    }
    const std::string name = "adamw tensor " + std::to_string(i);
    const Numbers p = buffers[4 * i]->values();
    check::close(name + " parameter", p, want.p, 1e-6);
    check::close(name + " m", buffers[4 * i + 1]->values(), want.m, 1e-6);
    check::close(name + " v", buffers[4 * i + 2]->values(), want.v, 1e-6);
    Numbers rounded;
    for (double value : p) rounded.push_back(check::rounded<bf16>(value));
    if (i > 0) check::same_bits(name + " copy", copies[i]->values(), rounded);
  }
}

void test_casts(unsigned seed, int count) {
  Random random(seed);
  const Numbers values = random.normals<float>(count);
  Numbers rounded;
  for (double value : values) rounded.push_back(check::rounded<bf16>(value));
  Buffer<float> from(values), back(count);
  Buffer<bf16> narrow(count);
  launch(casts::blocks(count), casts::THREADS, 0, [&] { cast_f32_to_bf16(from.data(), narrow.data(), count); });
  launch(casts::blocks(count), casts::THREADS, 0, [&] { cast_bf16_to_f32(narrow.data(), back.data(), count); });
  check::same_bits("cast to bf16 " + std::to_string(count), narrow.values(), rounded);
  check::same_bits("cast to f32 " + std::to_string(count), back.values(), rounded);
}

}  // namespace

int main() {
  for (unsigned seed = 0; seed < 3; ++seed) {
    emulation::schedule.seed = seed;
    test_update(seed);
    for (int count : {1, 2, 63, 2047, 2048, 2049, 10001}) test_casts(seed, count);
  }
  return check::finish("adamw");
}
