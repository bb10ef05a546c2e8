// What the kernel tests share: numbers to test with, buffers that notice what was not or wrongly written,
// comparison with a float64 reference, launches.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "../common/device.cuh"

namespace check {

// Comparisons that failed, over the whole program.
inline int failures = 0;
inline int comparisons = 0;

inline void fail(const std::string &what) {
  ++failures;
  std::fprintf(stderr, "FAILED %s\n", what.c_str());
}
inline void expect(bool holds, const std::string &what) {
  ++comparisons;
  if (!holds) fail(what);
}

// The exit code of a test program.
inline int finish(const char *name) {
  std::printf("%s: %d comparisons, %d failed\n", name, comparisons, failures);
  return failures == 0 && comparisons > 0 ? 0 : 1;
}

template <class T>
const char *type_name() {
  return sizeof(T) == 2 ? "bf16" : "f32";
}

template <class T>
double rounded(double value) {
  return to_float(from_float<T>(static_cast<float>(value)));
}

// Reproducible numbers.
class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  double normal() { return normal_(engine_); }
  double uniform() { return uniform_(engine_); }
  int below(int n) { return static_cast<int>(engine_() % n); }
  // `count` normal numbers times `scale`, rounded to T so that kernel and reference see the same.
  template <class T>
  std::vector<double> normals(size_t count, double scale = 1.0) {
    std::vector<double> out(count);
    for (double &value : out) value = rounded<T>(scale * normal());
    return out;
  }

 private:
  std::mt19937 engine_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
};

template <class T>
void set_nan(T &value) {
  value = from_float<T>(std::numeric_limits<float>::quiet_NaN());
}
inline void set_nan(double &value) { value = std::numeric_limits<double>::quiet_NaN(); }
inline void set_nan(uint8_t &value) { value = 0xff; }
inline void set_nan(uint32_t &value) { value = 0xffffffff; }

// Device memory: NaN until written, with NaN before and behind it that must stay. Under AddressSanitizer
// there is nothing around it, so that a step outside is reported where it happens.
template <class T>
class Buffer {
 public:
  explicit Buffer(size_t count) : count_(count), storage_(count + 2 * GUARD) {
    for (T &value : storage_) set_nan(value);
  }
  explicit Buffer(const std::vector<double> &values) : Buffer(values.size()) {
    for (size_t i = 0; i < values.size(); ++i) data()[i] = convert(values[i]);
  }
  ~Buffer() {
    T nan;
    set_nan(nan);
    for (size_t i = 0; i < GUARD; ++i) {
      if (std::memcmp(&storage_[i], &nan, sizeof(T)) != 0 ||
          std::memcmp(&storage_[GUARD + count_ + i], &nan, sizeof(T)) != 0) {
        fail("a kernel wrote outside its buffer");
        break;
      }
    }
  }
  Buffer(const Buffer &) = delete;

  T *data() { return storage_.data() + GUARD; }
  size_t size() const { return count_; }
  std::vector<double> values() {
    std::vector<double> out(count_);
    for (size_t i = 0; i < count_; ++i) out[i] = wide(data()[i]);
    return out;
  }

 private:
#ifdef __SANITIZE_ADDRESS__
  static constexpr size_t GUARD = 0;
#else
  static constexpr size_t GUARD = 64;
#endif
  static double wide(bf16 value) { return to_float(value); }
  template <class U>
  static double wide(U value) {
    return static_cast<double>(value);
  }
  static T convert(double value) {
    if constexpr (sizeof(T) == 2) {
      return from_float<T>(static_cast<float>(value));
    } else {
      return static_cast<T>(value);
    }
  }
  size_t count_;
  std::vector<T> storage_;
};

inline double rms(const std::vector<double> &values) {
  double sum = 0.0;
  for (double value : values) sum += value * value;
  return std::sqrt(sum / static_cast<double>(values.empty() ? 1 : values.size()));
}

// Of arrays smaller than this an error is counted relative to it: what tests put in is of the order of 1, and
// f32 sums of that order have no digits below.
constexpr double LEAST_SCALE = 1e-6;

inline double relative_rms_error(const std::vector<double> &got, const std::vector<double> &want) {
  std::vector<double> difference(want.size());
  for (size_t i = 0; i < want.size(); ++i) difference[i] = got[i] - want[i];
  return rms(difference) / std::max(rms(want), LEAST_SCALE);
}

// rms(got − want)/rms(want) at most `tolerance`. A NaN fails.
inline void close(const std::string &what, const std::vector<double> &got, const std::vector<double> &want,
                  double tolerance) {
  if (got.size() != want.size()) return expect(false, what + ": sizes differ");
  const double error = relative_rms_error(got, want);
  char text[96];
  std::snprintf(text, sizeof text, ": error %.3g, tolerance %.3g", error, tolerance);
  expect(error <= tolerance, what + text);
  static const bool print_all = std::getenv("ATPM_PRINT_ERRORS") != nullptr;
  if (print_all) std::printf("%s%s\n", what.c_str(), text);
}

inline void same_bits(const std::string &what, const std::vector<double> &got, const std::vector<double> &want) {
  expect(got.size() == want.size() && std::memcmp(got.data(), want.data(), got.size() * sizeof(double)) == 0, what);
}

// Columns `first`… of rows of `width`.
inline std::vector<double> columns(const std::vector<double> &rows, size_t width, size_t first, size_t count) {
  std::vector<double> out;
  for (size_t start = 0; start < rows.size(); start += width)
    out.insert(out.end(), rows.begin() + start + first, rows.begin() + start + first + count);
  return out;
}

// Launches on a grid of one dimension.
template <class Body>
void launch(int64_t blocks, int threads, size_t shared_bytes, Body &&body) {
  if (shared_bytes > MOST_SHARED_BYTES) return fail("a kernel needs more shared memory than sm_80 has");
  emulation::launch(dim3(static_cast<unsigned>(blocks)), dim3(threads), shared_bytes, body);
}

}  // namespace check
