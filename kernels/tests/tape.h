// Derivatives for tests: float64 numbers that remember how they were made.
//
// A reference writes the forward equations in Var; `gradients` walks the record backwards. Nothing of the kernels'
// written backward is in it.
#pragma once

#include <cmath>
#include <vector>

namespace tape {

struct Node {
  int parents[2];
  double slopes[2];
};
inline std::vector<Node> nodes;

struct Var {
  double value;
  int id;
  Var(double value = 0.0) : value(value), id(-1) {}  // a constant
  Var(double value, int id) : value(value), id(id) {}
};

inline Var record(double value, const Var &x, double dx, const Var &y = Var(), double dy = 0.0) {
  if (x.id < 0 && y.id < 0) return Var(value);
  nodes.push_back({{x.id, y.id}, {dx, dy}});
  return Var(value, static_cast<int>(nodes.size()) - 1);
}
inline Var operator+(const Var &x, const Var &y) { return record(x.value + y.value, x, 1.0, y, 1.0); }
inline Var operator-(const Var &x, const Var &y) { return record(x.value - y.value, x, 1.0, y, -1.0); }
inline Var operator-(const Var &x) { return record(-x.value, x, -1.0); }
inline Var operator*(const Var &x, const Var &y) { return record(x.value * y.value, x, y.value, y, x.value); }
inline Var operator/(const Var &x, const Var &y) {
  return record(x.value / y.value, x, 1.0 / y.value, y, -x.value / (y.value * y.value));
}
inline Var exp(const Var &x) { return record(std::exp(x.value), x, std::exp(x.value)); }
inline Var log(const Var &x) { return record(std::log(x.value), x, 1.0 / x.value); }
inline Var sqrt(const Var &x) { return record(std::sqrt(x.value), x, 0.5 / std::sqrt(x.value)); }
inline Var sigmoid(const Var &x) {
  const double open = 1.0 / (1.0 + std::exp(-x.value));
  return record(open, x, open * (1.0 - open));
}
inline Var silu(const Var &x) { return x * sigmoid(x); }
inline Var softplus(const Var &x) {
  const double value = x.value > 0.0 ? x.value + std::log1p(std::exp(-x.value)) : std::log1p(std::exp(x.value));
  return record(value, x, 1.0 / (1.0 + std::exp(-x.value)));
}

// Numbers to differentiate by.
inline std::vector<Var> inputs(const std::vector<double> &values) {
  std::vector<Var> out;
  for (double value : values) {
    nodes.push_back({{-1, -1}, {0.0, 0.0}});
    out.push_back(Var(value, static_cast<int>(nodes.size()) - 1));
  }
  return out;
}

inline std::vector<double> values(const std::vector<Var> &vars) {
  std::vector<double> out;
  for (const Var &var : vars) out.push_back(var.value);
  return out;
}

// ∂/∂nodes of Σ seeds·outputs; read with `gradient_of`.
inline std::vector<double> gradients(const std::vector<Var> &outputs, const std::vector<double> &seeds) {
  std::vector<double> sums(nodes.size(), 0.0);
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].id >= 0) sums[outputs[i].id] += seeds[i];
  for (size_t id = nodes.size(); id-- > 0;)
    for (int side = 0; side < 2; ++side)
      if (nodes[id].parents[side] >= 0) sums[nodes[id].parents[side]] += nodes[id].slopes[side] * sums[id];
  return sums;
}
inline std::vector<double> gradient_of(const std::vector<double> &sums, const std::vector<Var> &inputs) {
  std::vector<double> out;
  for (const Var &input : inputs) out.push_back(sums[input.id]);
  return out;
}

}  // namespace tape
