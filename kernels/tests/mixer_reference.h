// The mixer token by token in float64, and its gradient: what the kernels are compared with.
//
// The forward follows the table of crates/atpm-core/src/ops/mixer/mod.rs line by line; the backward is the
// adjoint of each line in reverse order. Neither uses chunks. Both are compared with the golden files, whose
// gradients come from autograd.
#pragma once

#include <cmath>
#include <vector>

namespace reference {

using Numbers = std::vector<double>;

struct Sizes {
  int batch, tokens, heads, address, key, value, rank;
  bool query_norm;
  int entity() const { return key + value; }
  int channels() const { return 2 * address + entity(); }
};

// Layouts as the kernels': x [B,T,H,2S+K+V], controls [B,T,5,H], weights [H,…], states [B,H,S,D].
struct Inputs {
  Numbers x, controls, a_key, a_value, c, state;
  std::vector<uint8_t> starts;  // [B,T]
};
struct Outputs {
  Numbers y, state, address_norm;
};
struct Gradients {
  Numbers x, controls, a_key, a_value, c, state;
};

inline double dot(const double *x, const double *y, int n) {
  double sum = 0.0;
  for (int i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

// x/√(Σx²/n + ε) and its gradient.
inline double normalize(const double *x, double *out, int width, double n) {
  const double factor = 1.0 / std::sqrt(dot(x, x, width) / n + 1e-6);
  for (int i = 0; i < width; ++i) out[i] = x[i] * factor;
  return factor;
}
inline void normalize_backward(const double *out, const double *dout, double factor, int width, double n, double *dx) {
  const double along = dot(out, dout, width) / n;
  for (int i = 0; i < width; ++i) dx[i] += factor * (dout[i] - out[i] * along);
}

// Everything about one token of one head that does not depend on the state.
struct Token {
  Numbers q0, s, unit_key, unit_value, z_key, z_value, c, b, d, a, q;
  double query_scale = 1.0, source_scale, key_scale, value_scale, soft, along, norm, overlap;
};

class Head {
 public:
  Head(const Sizes &sizes, const Inputs &inputs, int row, int head)
      : sizes_(sizes), inputs_(inputs), row_(row), head_(head) {}

  void forward(Outputs &outputs) {
    const int S = sizes_.address, D = sizes_.entity(), T = sizes_.tokens;
    states_.assign(1, Numbers(inputs_.state.begin() + state_at(), inputs_.state.begin() + state_at() + S * D));
    double norms = 0.0;
    for (int t = 0; t < T; ++t) {
      tokens_.push_back(geometry(t));
      const Token &token = tokens_.back();
      norms += token.norm;
      const double *e = read(t) + 2 * S;
      Numbers state = states_.back(), residual(D), write(D);
      for (double &element : state) element *= alpha(t);
      for (int j = 0; j < D; ++j) {
        double predicted = 0.0;
        for (int i = 0; i < S; ++i) predicted += state[i * D + j] * token.s[i];
        residual[j] = e[j] - predicted;
        write[j] = beta(t, j) * residual[j];
      }
      for (int i = 0; i < S; ++i)
        for (int j = 0; j < D; ++j) state[i * D + j] += token.d[i] * write[j];
      double *y = outputs.y.data() + output_at(t);
      for (int j = 0; j < D; ++j) y[j] = 0.0;
      for (int i = 0; i < S; ++i)
        for (int j = 0; j < D; ++j) y[j] += state[i * D + j] * token.q[i];
      residuals_.push_back(residual);
      states_.push_back(state);
    }
    std::copy(states_.back().begin(), states_.back().end(), outputs.state.begin() + state_at());
    outputs.address_norm[row_ * sizes_.heads + head_] = norms / T;
  }

  // After forward. `dy` and `dfinal` are shaped like y and state.
  void backward(const Numbers &dy_all, const Numbers &dfinal, Gradients &gradients) {
    const int S = sizes_.address, D = sizes_.entity();
    Numbers dstate(dfinal.begin() + state_at(), dfinal.begin() + state_at() + S * D);
    for (int t = sizes_.tokens - 1; t >= 0; --t) {
      const Token &token = tokens_[t];
      const Numbers &after = states_[t + 1], &before = states_[t], &residual = residuals_[t];
      const double *dy = dy_all.data() + output_at(t);
      Numbers dq(S, 0.0), dd(S, 0.0), ds(S, 0.0), dr(D, 0.0);
      double dbeta[2] = {0.0, 0.0}, dlog_alpha = 0.0;
      for (int i = 0; i < S; ++i)
        for (int j = 0; j < D; ++j) {
          dq[i] += after[i * D + j] * dy[j];
          dstate[i * D + j] += token.q[i] * dy[j];
        }
      for (int j = 0; j < D; ++j) {
        double dwrite = 0.0;
        for (int i = 0; i < S; ++i) {
          dwrite += dstate[i * D + j] * token.d[i];
          dd[i] += dstate[i * D + j] * beta(t, j) * residual[j];
        }
        dbeta[j >= sizes_.key] += dwrite * residual[j];
        dr[j] = beta(t, j) * dwrite;
      }
      for (int i = 0; i < S; ++i)
        for (int j = 0; j < D; ++j) {
          const double decayed = alpha(t) * before[i * D + j];
          ds[i] -= decayed * dr[j];
          dstate[i * D + j] -= token.s[i] * dr[j];
          dlog_alpha += dstate[i * D + j] * decayed;
          dstate[i * D + j] *= alpha(t);
        }
      set_control(gradients, t, 0, dlog_alpha);
      set_control(gradients, t, 1, dbeta[0]);
      set_control(gradients, t, 2, dbeta[1]);
      geometry_backward(t, ds, dd, dq, dr, gradients);
    }
    std::copy(dstate.begin(), dstate.end(), gradients.state.begin() + state_at());
  }

 private:
  Token geometry(int t) const {
    const int S = sizes_.address, K = sizes_.key, V = sizes_.value, R = sizes_.rank;
    const double *query = read(t), *source = query + S, *key = source + S, *value = key + K;
    Token token;
    token.q0.assign(query, query + S);
    if (sizes_.query_norm) token.query_scale = normalize(query, token.q0.data(), S, 1.0);
    token.s.resize(S);
    token.source_scale = normalize(source, token.s.data(), S, 1.0);
    token.unit_key.resize(K);
    token.key_scale = normalize(key, token.unit_key.data(), K, K);
    token.unit_value.resize(V);
    token.value_scale = normalize(value, token.unit_value.data(), V, V);
    token.c.assign(S, 0.0);
    for (int r = 0; r < R; ++r) {
      token.z_key.push_back(dot(a_key() + r * K, token.unit_key.data(), K));
      token.z_value.push_back(dot(a_value() + r * V, token.unit_value.data(), V));
      for (int i = 0; i < S; ++i) token.c[i] += c()[i * R + r] * token.z_key[r] * token.z_value[r] / std::sqrt(R);
    }
    token.soft = 1.0 / std::sqrt(1.0 + dot(token.c.data(), token.c.data(), S));
    for (int i = 0; i < S; ++i) token.b.push_back(token.c[i] * token.soft);
    token.along = dot(token.s.data(), token.b.data(), S);
    for (int i = 0; i < S; ++i) token.d.push_back(token.s[i] + control(t, 3) * (token.b[i] - token.along * token.s[i]));
    token.norm = std::sqrt(dot(token.d.data(), token.d.data(), S));
    // What has no length has no direction: a = 0 with gradient 0.
    for (int i = 0; i < S; ++i) token.a.push_back(token.norm == 0.0 ? 0.0 : token.d[i] / token.norm);
    token.overlap = dot(token.q0.data(), token.a.data(), S);
    for (int i = 0; i < S; ++i) token.q.push_back(token.q0[i] + control(t, 4) * (1.0 - token.overlap) * token.a[i]);
    return token;
  }

  void geometry_backward(int t, Numbers &ds, Numbers &dd, const Numbers &dq, const Numbers &de, Gradients &gradients) {
    const int S = sizes_.address, K = sizes_.key, V = sizes_.value, R = sizes_.rank;
    const Token &token = tokens_[t];
    const double rho = control(t, 3), lambda = control(t, 4), gap = 1.0 - token.overlap;
    // q = q0 + λ·gap·a
    const double dq_a = dot(dq.data(), token.a.data(), S);
    set_control(gradients, t, 4, gap * dq_a);
    const double doverlap = -lambda * dq_a;
    Numbers dq0(S), da(S), db(S), dc(S);
    for (int i = 0; i < S; ++i) {
      dq0[i] = dq[i] + doverlap * token.a[i];
      da[i] = lambda * gap * dq[i] + doverlap * token.q0[i];
    }
    // a = d/‖d‖
    const double a_da = dot(token.a.data(), da.data(), S);
    for (int i = 0; i < S; ++i) dd[i] += token.norm == 0.0 ? 0.0 : (da[i] - token.a[i] * a_da) / token.norm;
    // d = s + ρ(b − along·s)
    double drho = 0.0, dalong = 0.0;
    for (int i = 0; i < S; ++i) {
      drho += dd[i] * (token.b[i] - token.along * token.s[i]);
      dalong -= rho * dd[i] * token.s[i];
      ds[i] += dd[i] * (1.0 - rho * token.along);
      db[i] = rho * dd[i];
    }
    set_control(gradients, t, 3, drho);
    // along = sᵀb
    for (int i = 0; i < S; ++i) {
      ds[i] += dalong * token.b[i];
      db[i] += dalong * token.s[i];
    }
    // b = c/√(1+‖c‖²)
    const double b_db = dot(token.b.data(), db.data(), S);
    for (int i = 0; i < S; ++i) dc[i] = token.soft * (db[i] - token.b[i] * b_db);
    // c = C z/√R, z = z_K ⊙ z_V, z_K = A_K k̂, z_V = A_V v̂
    Numbers dunit_key(K, 0.0), dunit_value(V, 0.0);
    for (int r = 0; r < R; ++r) {
      double dz = 0.0;
      for (int i = 0; i < S; ++i) {
        dz += dc[i] * c()[i * R + r] / std::sqrt(R);
        gradients.c[(head_ * S + i) * R + r] += dc[i] * token.z_key[r] * token.z_value[r] / std::sqrt(R);
      }
      for (int i = 0; i < K; ++i) {
        dunit_key[i] += dz * token.z_value[r] * a_key()[r * K + i];
        gradients.a_key[(head_ * R + r) * K + i] += dz * token.z_value[r] * token.unit_key[i];
      }
      for (int i = 0; i < V; ++i) {
        dunit_value[i] += dz * token.z_key[r] * a_value()[r * V + i];
        gradients.a_value[(head_ * R + r) * V + i] += dz * token.z_key[r] * token.unit_value[i];
      }
    }
    double *dquery = gradients.x.data() + read_at(t), *dsource = dquery + S, *dkey = dsource + S, *dvalue = dkey + K;
    for (int i = 0; i < K + V; ++i) dkey[i] += de[i];
    normalize_backward(token.unit_key.data(), dunit_key.data(), token.key_scale, K, K, dkey);
    normalize_backward(token.unit_value.data(), dunit_value.data(), token.value_scale, V, V, dvalue);
    normalize_backward(token.s.data(), ds.data(), token.source_scale, S, 1.0, dsource);
    if (sizes_.query_norm) {
      normalize_backward(token.q0.data(), dq0.data(), token.query_scale, S, 1.0, dquery);
    } else {
      for (int i = 0; i < S; ++i) dquery[i] += dq0[i];
    }
  }

  size_t token_at(int t) const { return static_cast<size_t>(row_) * sizes_.tokens + t; }
  size_t read_at(int t) const { return (token_at(t) * sizes_.heads + head_) * sizes_.channels(); }
  size_t output_at(int t) const { return (token_at(t) * sizes_.heads + head_) * sizes_.entity(); }
  size_t state_at() const {
    return (static_cast<size_t>(row_) * sizes_.heads + head_) * sizes_.address * sizes_.entity();
  }
  size_t control_at(int t, int index) const { return (token_at(t) * 5 + index) * sizes_.heads + head_; }
  const double *read(int t) const { return inputs_.x.data() + read_at(t); }
  const double *a_key() const { return inputs_.a_key.data() + static_cast<size_t>(head_) * sizes_.rank * sizes_.key; }
  const double *a_value() const {
    return inputs_.a_value.data() + static_cast<size_t>(head_) * sizes_.rank * sizes_.value;
  }
  const double *c() const { return inputs_.c.data() + static_cast<size_t>(head_) * sizes_.address * sizes_.rank; }
  double control(int t, int index) const { return inputs_.controls[control_at(t, index)]; }
  double beta(int t, int column) const { return control(t, column < sizes_.key ? 1 : 2); }
  double alpha(int t) const { return inputs_.starts[token_at(t)] != 0 ? 0.0 : std::exp(control(t, 0)); }
  void set_control(Gradients &gradients, int t, int index, double value) {
    gradients.controls[control_at(t, index)] = value;
  }

  Sizes sizes_;
  const Inputs &inputs_;
  int row_, head_;
  std::vector<Token> tokens_;
  std::vector<Numbers> states_, residuals_;
};

// Both passes over all rows and heads. `dy` and `dfinal` are shaped like y and the state.
inline void mixer(const Sizes &sizes, const Inputs &inputs, const Numbers &dy, const Numbers &dfinal, Outputs &outputs,
                  Gradients &gradients) {
  outputs.y.assign(dy.size(), 0.0);
  outputs.state.assign(dfinal.size(), 0.0);
  outputs.address_norm.assign(static_cast<size_t>(sizes.batch) * sizes.heads, 0.0);
  gradients.x.assign(inputs.x.size(), 0.0);
  gradients.controls.assign(inputs.controls.size(), 0.0);
  gradients.a_key.assign(inputs.a_key.size(), 0.0);
  gradients.a_value.assign(inputs.a_value.size(), 0.0);
  gradients.c.assign(inputs.c.size(), 0.0);
  gradients.state.assign(dfinal.size(), 0.0);
  for (int row = 0; row < sizes.batch; ++row)
    for (int head = 0; head < sizes.heads; ++head) {
      Head one(sizes, inputs, row, head);
      one.forward(outputs);
      one.backward(dy, dfinal, gradients);
    }
}

}  // namespace reference
