// Whole tensors element by element, emulated: sums, copies to the bit, zeros.
#include "../elements.cu"
#include "op.h"

using namespace op_test;

namespace {

void test(unsigned seed, int count) {
  Random random(seed);
  const Numbers a_in = random.normals<float>(count), b_in = random.normals<float>(count);
  Numbers sum(count);
  for (int i = 0; i < count; ++i) sum[i] = check::rounded<float>(a_in[i] + b_in[i]);
  // The sign of a zero is a bit that a copy keeps.
  Numbers signed_in = a_in;
  signed_in[0] = -0.0;

  Buffer<float> a(a_in), b(b_in), from(signed_in), out(count), copy(count), zeros(b_in);
  const int blocks = (count + ROW_THREADS - 1) / ROW_THREADS;
  launch(blocks, ROW_THREADS, 0, [&] { elements_add(a.data(), b.data(), out.data(), count); });
  launch(blocks, ROW_THREADS, 0, [&] { elements_copy(from.data(), copy.data(), count); });
  launch(blocks, ROW_THREADS, 0, [&] { elements_clear(zeros.data(), count); });
  const std::string name = named<float>("elements", {count});
  check::same_bits(name + " add", out.values(), sum);
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
