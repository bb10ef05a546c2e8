// The functions of cuBLAS and cuRAND that candle and this project call, for the emulated driver. Products are plain
// loops with f32 sums in order of the inner dimension. Random numbers on the device are not there: creating a
// generator works, since candle makes one with every device, and drawing from it fails.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "driver.h"
#include "memory.h"

namespace {

// Codes of cublas_api.h, library_types.h and curand.h, which the toolkit of wheels does not have.
enum Status { SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum Operation { NORMAL = 0, TRANSPOSED = 1 };
enum Type { F32 = 0, BF16 = 14 };
enum Compute { COMPUTE_F32 = 68, COMPUTE_F32_FAST_BF16 = 75 };

struct Handle {
  const void *stream = nullptr;
  int math_mode = 0;
};

// The mode in which parts of a product are never added in the result's type (CUBLAS_MATH_DISALLOW_…_REDUCTION).
constexpr int SUMS_IN_F32 = 16;

Status fail(Status code, const std::string &problem) {
  emulation::complain(problem);
  return code;
}

float from_bf16(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}
uint16_t to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A matrix whose columns lie one after another.
struct Matrix {
  const char *name;
  char *first;
  int type, rows, columns, pitch;

  size_t element_bytes() const { return type == F32 ? 4 : 2; }
  size_t bytes() const {
    return rows == 0 || columns == 0 ? 0 : (size_t(pitch) * (columns - 1) + rows) * element_bytes();
  }
  char *at(int row, int column) const { return first + (size_t(pitch) * column + row) * element_bytes(); }
  float get(int row, int column) const {
    const char *from = at(row, column);
    if (type == F32) return *reinterpret_cast<const float *>(from);
    return from_bf16(*reinterpret_cast<const uint16_t *>(from));
  }
  void set(int row, int column, float value) const {
    char *to = at(row, column);
    if (type == F32)
      *reinterpret_cast<float *>(to) = value;
    else
      *reinterpret_cast<uint16_t *>(to) = to_bf16(value);
  }
  std::string problem() const {
    if (type != F32 && type != BF16) return std::string(name) + " is neither f32 nor bf16";
    if (pitch < std::max(1, rows)) return std::string(name) + " has columns that overlap";
    if (bytes() != 0 && !emulation::memory::holds(reinterpret_cast<uint64_t>(first), bytes()))
      return std::string(name) + ", of " + std::to_string(bytes()) + " bytes, lies at " +
             emulation::memory::describe(reinterpret_cast<uint64_t>(first));
    return "";
  }
};

// The factor as [rows, columns], a column after another, rounded if products are of bf16.
std::vector<float> unpacked(const Matrix &stored, bool transposed, bool round) {
  const int rows = transposed ? stored.columns : stored.rows, columns = transposed ? stored.rows : stored.columns;
  std::vector<float> factor(size_t(rows) * columns);
  for (int column = 0; column < columns; ++column)
    for (int row = 0; row < rows; ++row) {
      const float value = transposed ? stored.get(column, row) : stored.get(row, column);
      factor[size_t(column) * rows + row] = round ? from_bf16(to_bf16(value)) : value;
    }
  return factor;
}

// C ← alpha·A B + beta·C; what C held is not read where beta is zero.
void multiply(const Matrix &a, bool turn_a, const Matrix &b, bool turn_b, const Matrix &c, float alpha, float beta,
              bool round) {
  const int m = c.rows, n = c.columns, k = turn_a ? a.rows : a.columns;
  const std::vector<float> left = unpacked(a, turn_a, round), right = unpacked(b, turn_b, round);
  std::vector<float> sums(m);
  for (int column = 0; column < n; ++column) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int inner = 0; inner < k; ++inner) {
      const float factor = right[size_t(column) * k + inner];
      const float *from = &left[size_t(inner) * m];
      for (int row = 0; row < m; ++row) sums[row] += from[row] * factor;
    }
    for (int row = 0; row < m; ++row) {
      const float kept = beta == 0.0f ? 0.0f : beta * c.get(row, column);
      c.set(row, column, alpha * sums[row] + kept);
    }
  }
}

}  // namespace

extern "C" {

int cublasCreate_v2(Handle **handle) {
  if (!emulation::context_is_current()) return fail(NOT_INITIALIZED, "cublasCreate on a thread without a context");
  *handle = new Handle;
  return SUCCESS;
}

int cublasDestroy_v2(Handle *handle) {
  delete handle;
  return SUCCESS;
}

int cublasSetStream_v2(Handle *handle, const void *stream) {
  handle->stream = stream;
  return SUCCESS;
}

int cublasSetMathMode(Handle *handle, int mode) {
  handle->math_mode = mode;
  return SUCCESS;
}

// Version 13.0.0, in three parts.
int cublasGetProperty(int property, int *value) {
  *value = property == 0 ? 13 : 0;
  return SUCCESS;
}

int cublasGemmStridedBatchedEx(Handle *handle, int operation_a, int operation_b, int m, int n, int k,
                               const void *alpha, const void *a, int type_a, int pitch_a, long long stride_a,
                               const void *b, int type_b, int pitch_b, long long stride_b, const void *beta, void *c,
                               int type_c, int pitch_c, long long stride_c, int batch, int compute, int) {
  const std::lock_guard<std::recursive_mutex> alone(emulation::one_call);
  if (!emulation::context_is_current()) return fail(NOT_INITIALIZED, "a product on a thread without a context");
  if (!emulation::stream_is_valid(handle->stream)) return fail(EXECUTION_FAILED, "a product on the default stream");
  if (compute != COMPUTE_F32 && compute != COMPUTE_F32_FAST_BF16)
    return fail(NOT_SUPPORTED, "products are summed in f32 here, not by compute type " + std::to_string(compute));
  if (type_c == BF16 && handle->math_mode != SUMS_IN_F32)
    return fail(NOT_SUPPORTED, "a product into bf16 in a mode that may add its parts in bf16");
  if (m < 0 || n < 0 || k < 0 || operation_a > TRANSPOSED || operation_b > TRANSPOSED)
    return fail(INVALID_VALUE, "a product with sizes or operations that are not there");
  const bool turn_a = operation_a == TRANSPOSED, turn_b = operation_b == TRANSPOSED;
  for (int i = 0; i < batch; ++i) {
    const auto matrix = [i](const char *name, const void *first, int type, int rows, int columns, int pitch,
                            long long stride) {
      auto *at = static_cast<char *>(const_cast<void *>(first)) + i * stride * (type == F32 ? 4 : 2);
      return Matrix{name, at, type, rows, columns, pitch};
    };
    const Matrix left = matrix("A", a, type_a, turn_a ? k : m, turn_a ? m : k, pitch_a, stride_a);
    const Matrix right = matrix("B", b, type_b, turn_b ? n : k, turn_b ? k : n, pitch_b, stride_b);
    const Matrix result = matrix("C", c, type_c, m, n, pitch_c, stride_c);
    for (const Matrix &operand : {left, right, result})
      if (const std::string problem = operand.problem(); !problem.empty())
        return fail(INVALID_VALUE, "a product [" + std::to_string(m) + ", " + std::to_string(k) + "] by [" +
                                       std::to_string(k) + ", " + std::to_string(n) + "]: " + problem);
    multiply(left, turn_a, right, turn_b, result, *static_cast<const float *>(alpha),
             *static_cast<const float *>(beta), compute == COMPUTE_F32_FAST_BF16);
  }
  return SUCCESS;
}

int cublasGemmEx(Handle *handle, int operation_a, int operation_b, int m, int n, int k, const void *alpha,
                 const void *a, int type_a, int pitch_a, const void *b, int type_b, int pitch_b, const void *beta,
                 void *c, int type_c, int pitch_c, int compute, int algorithm) {
  return cublasGemmStridedBatchedEx(handle, operation_a, operation_b, m, n, k, alpha, a, type_a, pitch_a, 0, b,
                                    type_b, pitch_b, 0, beta, c, type_c, pitch_c, 0, 1, compute, algorithm);
}

int curandCreateGenerator(void **generator, int) {
  static char only;
  *generator = &only;
  return SUCCESS;
}

int curandDestroyGenerator(void *) { return SUCCESS; }

int curandSetStream(void *, const void *) { return SUCCESS; }

int curandSetPseudoRandomGeneratorSeed(void *, unsigned long long) { return SUCCESS; }

int curandSetGeneratorOffset(void *, unsigned long long) { return SUCCESS; }

}  // extern "C"
