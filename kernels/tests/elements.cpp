// Whole tensors element by element, emulated: sums, copies to the bit, zeros.
#include "../elements.cu"
#include "op.h"

using namespace op_test;

namespace {

template <class T>
void test_add(unsigned seed, int count, void (*kernel)(const T *, const T *, T *, int64_t)) {
  Random random(seed);
  const Numbers a_in = random.normals<T>(count), b_in = random.normals<T>(count);
  Numbers sum(count);
  for (int i = 0; i < count; ++i) sum[i] = check::rounded<T>(check::rounded<float>(a_in[i] + b_in[i]));
  Buffer<T> a(a_in), b(b_in), out(count);
  launch((count + ROW_THREADS - 1) / ROW_THREADS, ROW_THREADS, 0, [&] { kernel(a.data(), b.data(), out.data(), count); });
  check::same_bits(named<T>("elements", {count}) + " add", out.values(), sum);
}

void test(unsigned seed, int count) {
  test_add<float>(seed, count, elements_add_f32);
  test_add<bf16>(seed, count, elements_add_bf16);
  Random random(seed);
  // The sign of a zero is a bit that a copy keeps.
  Numbers signed_in = random.normals<float>(count);
  signed_in[0] = -0.0;

  Buffer<float> from(signed_in), copy(count), zeros(signed_in);
  const int blocks = (count + ROW_THREADS - 1) / ROW_THREADS;
  launch(blocks, ROW_THREADS, 0, [&] { elements_copy(from.data(), copy.data(), count); });
  launch(blocks, ROW_THREADS, 0, [&] { elements_clear(zeros.data(), count); });
  const std::string name = named<float>("elements", {count});
  check::same_bits(name + " copy", copy.values(), signed_in);
  check::same_bits(name + " clear", zeros.values(), Numbers(count));
}

}  // namespace

int main() {
  for (unsigned seed = 0; seed < 3; ++seed) {
    emulation::schedule.seed = seed;
    for (int count : {1, 63, 255, 256, 257, 1000}) test(seed, count);
  }
  return check::finish("elements");
}
