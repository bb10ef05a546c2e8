// embedding, emulated, against sums in float64.
#include "../embedding.cu"
#include "op.h"

#include <numeric>

using namespace op_test;

namespace {

template <class T>
void test(unsigned seed, int positions, int vocabulary, int width) {
  Random random(seed);
  std::vector<uint32_t> ids_in(positions), order_in(positions), segments_in;
  for (uint32_t &id : ids_in) id = random.below(vocabulary);
  // Half of the uses are of one id, as a separator's would be.
  for (int i = 0; i < positions; i += 2) ids_in[i] = vocabulary / 2;
  std::iota(order_in.begin(), order_in.end(), 0u);
  std::stable_sort(order_in.begin(), order_in.end(), [&](uint32_t x, uint32_t y) { return ids_in[x] < ids_in[y]; });
  for (int i = 0; i < positions; ++i)
    if (i == 0 || ids_in[order_in[i]] != ids_in[order_in[i - 1]]) segments_in.push_back(i);
  const int64_t distinct = segments_in.size();
  segments_in.push_back(positions);

  const Numbers table_in = random.normals<float>(static_cast<size_t>(vocabulary) * width);
  const Numbers dy_in = random.normals<T>(static_cast<size_t>(positions) * width);
  const Numbers before = random.normals<float>(table_in.size());
  Numbers y_want, dtable_want = before;
  for (int t = 0; t < positions; ++t)
    for (int i = 0; i < width; ++i) {
      y_want.push_back(table_in[ids_in[t] * width + i]);
      dtable_want[ids_in[t] * width + i] += dy_in[t * width + i];
    }

  auto as_buffer = [](const std::vector<uint32_t> &values) { return Numbers(values.begin(), values.end()); };
  Buffer<uint32_t> ids(as_buffer(ids_in)), order(as_buffer(order_in)), segments(as_buffer(segments_in));
  Buffer<float> table(table_in), dtable(before);
  Buffer<T> y(y_want.size()), dy(dy_in);
  launch(embedding::blocks(positions, width), embedding::THREADS, 0, [&] {
    if constexpr (sizeof(T) == 2) {
      embedding_forward_bf16(ids.data(), table.data(), y.data(), width);
    } else {
      embedding_forward_f32(ids.data(), table.data(), y.data(), width);
    }
  });
  launch(embedding::blocks(distinct, width), embedding::THREADS, 0, [&] {
    if constexpr (sizeof(T) == 2) {
      embedding_backward_bf16(ids.data(), order.data(), segments.data(), dy.data(), dtable.data(), width);
    } else {
      embedding_backward_f32(ids.data(), order.data(), segments.data(), dy.data(), dtable.data(), width);
    }
  });
  const std::string name = named<T>("embedding", {positions, vocabulary, width});
  compare_value<T>(name + " y", y, y_want);
  // dtable is f32 whatever dy is.
  check::close(name + " dtable", dtable.values(), dtable_want, 1e-5);
}

}  // namespace

int main() {
  for_both_types([](auto type, unsigned seed) {
    using T = decltype(type);
    for (int positions : {1, 63, 64, 65, 130, 1000}) test<T>(seed, positions, 50, 32);
    test<T>(seed, 20, 7, 770);
  });
  return check::finish("embedding");
}
