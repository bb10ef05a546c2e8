// candle's own kernels, as far as a run of this project needs them, for the emulated driver: the same values by plain
// loops. Their parameters are those of candle-kernels 0.11.1.
#include <cstddef>
#include <cstdint>

#include "driver.h"

namespace {

template <class T>
T argument(const void *const *arguments, int index) {
  return *static_cast<const T *>(arguments[index]);
}

// Where element `index` of a tensor in row-major order lies. `info` holds sizes, then strides; null: one after another.
size_t offset(size_t index, size_t dimensions, const size_t *info) {
  if (!info) return index;
  size_t offset = 0;
  for (size_t i = dimensions; i-- > 0; index /= info[i]) offset += index % info[i] * info[dimensions + i];
  return offset;
}

// (count, dimensions, info, from, to): to[i] = from[i], a strided tensor becomes a dense one.
template <class From, class To>
void copy(const void *const *arguments) {
  const auto count = argument<size_t>(arguments, 0), dimensions = argument<size_t>(arguments, 1);
  const auto *info = argument<const size_t *>(arguments, 2);
  const auto *from = argument<const From *>(arguments, 3);
  auto *to = argument<To *>(arguments, 4);
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<To>(from[offset(i, dimensions, info)]);
}

// (count, dimensions, info, value, to): every element of a strided tensor becomes the value.
template <class T>
void const_set(const void *const *arguments) {
  const auto count = argument<size_t>(arguments, 0), dimensions = argument<size_t>(arguments, 1);
  const auto *info = argument<const size_t *>(arguments, 2);
  const auto value = argument<T>(arguments, 3);
  auto *to = argument<T *>(arguments, 4);
  for (size_t i = 0; i < count; ++i) to[offset(i, dimensions, info)] = value;
}

// (from, to, rows, columns, from's pitch, to's pitch): a block of a matrix.
template <class T>
void copy2d(const void *const *arguments) {
  const auto *from = argument<const T *>(arguments, 0);
  auto *to = argument<T *>(arguments, 1);
  const size_t rows = argument<uint32_t>(arguments, 2), columns = argument<uint32_t>(arguments, 3);
  const size_t from_pitch = argument<uint32_t>(arguments, 4), to_pitch = argument<uint32_t>(arguments, 5);
  for (size_t row = 0; row < rows; ++row)
    for (size_t column = 0; column < columns; ++column) to[row * to_pitch + column] = from[row * from_pitch + column];
}

}  // namespace

const std::map<std::string, emulation::GridKernel> &emulation::candle_kernels() {
  static const std::map<std::string, GridKernel> all = {
      {"ucopy_f32", copy<float, float>},
      {"ucopy_u32", copy<uint32_t, uint32_t>},
      {"const_set_f32", const_set<float>},
      {"copy2d_f32", copy2d<float>},
  };
  return all;
}
