// Runs the mixer's kernels in order, as a launcher would, on buffers that hold NaN until written.
#pragma once

#include "../mixer.cu"
#include "check.h"
#include "mixer_reference.h"

namespace mixer_test {

using reference::Numbers;

struct Results {
  reference::Outputs outputs;
  reference::Gradients gradients;
};

// What is absent is passed as null: the first state, the gradient of the last one, document starts.
struct Absent {
  bool state = false, dfinal = false, starts = false;
};

// How a launcher may run the same call: slices of the scans (0: the widest), and whether backward will follow.
struct Options {
  int scan_width = 0;
  bool save = true;
};

template <class T>
struct Kernels;
#define KERNELS_OF(T, SUFFIX)                                                      \
  template <>                                                                      \
  struct Kernels<T> {                                                              \
    static constexpr auto *addresses = mixer_addresses_##SUFFIX;                   \
    static constexpr auto *prepare = mixer_prepare_##SUFFIX;                       \
    static constexpr auto *scan = mixer_scan_##SUFFIX;                             \
    static constexpr auto *scan_backward = mixer_scan_backward_##SUFFIX;           \
    static constexpr auto *entity_backward = mixer_entity_backward_##SUFFIX;       \
    static constexpr auto *address_backward = mixer_address_backward_##SUFFIX;     \
    static constexpr auto *addresses_backward = mixer_addresses_backward_##SUFFIX; \
  };
KERNELS_OF(float, f32)
KERNELS_OF(bf16, bf16)

// The arguments of a call in device memory.
template <class T>
struct Call {
  mixer::Sizes sizes;
  int query_norm;
  check::Buffer<T> x;
  check::Buffer<float> controls, a_key, a_value, c, state;
  check::Buffer<uint8_t> starts;
  Absent absent;
  Options options;

  Call(const reference::Sizes &shape, const reference::Inputs &inputs, Absent absent, Options options = {})
      : sizes{shape.batch, shape.tokens, shape.heads, shape.address, shape.key, shape.value, shape.rank},
        query_norm(shape.query_norm),
        x(inputs.x),
        controls(inputs.controls),
        a_key(inputs.a_key),
        a_value(inputs.a_value),
        c(inputs.c),
        state(inputs.state),
        starts(inputs.starts.size()),
        absent(absent),
        options(options) {
    if (!sizes.supported()) throw std::runtime_error("sizes that the kernels do not take");
    std::copy(inputs.starts.begin(), inputs.starts.end(), starts.data());
  }

  const uint8_t *starts_or_null() { return absent.starts ? nullptr : starts.data(); }
  int64_t chunks() const { return sizes.all_chunks(); }
  int64_t heads() const { return sizes.states(); }
  // Rows of scratch: whole chunks of tokens.
  int64_t rows() const { return chunks() * mixer::CHUNK; }
  int scan_width() const { return options.scan_width == 0 ? sizes.most_scan_width() : options.scan_width; }
  int64_t scan_blocks() const { return heads() * sizes.slices(scan_width()); }
  size_t scan_bytes() const { return mixer::scan_shared_bytes<T>(sizes, scan_width()); }
};
#define SIZE_ARGUMENTS(call)                                                                           \
  (call).sizes.batch, (call).sizes.tokens, (call).sizes.heads, (call).sizes.address, (call).sizes.key, \
      (call).sizes.value, (call).sizes.rank

constexpr int64_t SQUARE = TILE * TILE;

// What both passes begin with.
template <class T>
struct Scratch {
  check::Buffer<T> s, q, d, w, b;
  check::Buffer<float> norms, gamma_tail;

  explicit Scratch(const Call<T> &call)
      : s(call.rows() * call.sizes.address),
        q(s.size()),
        d(s.size()),
        w(2 * s.size()),
        b(call.chunks() * PARTS<T> * SQUARE),
        norms(call.chunks()),
        gamma_tail(2 * call.rows()) {}

  // `u0`, or `m` and `n`, are null.
  void fill(Call<T> &call, T *u0, T *m, T *n) {
    check::launch(call.chunks(), TILE_THREADS, mixer::addresses_shared_bytes<T>(call.sizes), [&] {
      Kernels<T>::addresses(call.x.data(), call.controls.data(), call.a_key.data(), call.a_value.data(), call.c.data(),
                            s.data(), q.data(), d.data(), norms.data(), call.query_norm, SIZE_ARGUMENTS(call));
    });
    check::launch(call.chunks(), TILE_THREADS, mixer::prepare_shared_bytes<T>(), [&] {
      Kernels<T>::prepare(call.x.data(), call.controls.data(), call.starts_or_null(), s.data(), q.data(), d.data(),
                          w.data(), u0, b.data(), m, n, gamma_tail.data(), SIZE_ARGUMENTS(call));
    });
  }
};

template <class T>
struct Forward {
  check::Buffer<T> y, chunk_states;
  check::Buffer<float> final_state, address_norm;

  explicit Forward(Call<T> &call)
      : y(static_cast<int64_t>(call.sizes.batch) * call.sizes.tokens * call.sizes.heads * call.sizes.entity()),
        chunk_states(call.chunks() * call.sizes.state_elements()),
        final_state(call.heads() * call.sizes.state_elements()),
        address_norm(call.heads()) {
    Scratch<T> scratch(call);
    check::Buffer<T> u0(call.rows() * PARTS<T> * call.sizes.entity());
    scratch.fill(call, u0.data(), nullptr, nullptr);
    check::launch(call.scan_blocks(), TILE_THREADS, call.scan_bytes(), [&] {
      Kernels<T>::scan(scratch.q.data(), scratch.d.data(), scratch.w.data(), u0.data(), scratch.b.data(),
                       scratch.gamma_tail.data(), scratch.norms.data(), call.absent.state ? nullptr : call.state.data(),
                       y.data(), final_state.data(), call.options.save ? chunk_states.data() : nullptr,
                       address_norm.data(), call.scan_width(), SIZE_ARGUMENTS(call));
    });
  }
  reference::Outputs values() { return {y.values(), final_state.values(), address_norm.values()}; }
};

// Backward has nothing of forward's but the chunk states. `sums` is what dA_K, dA_V and dC contained before.
template <class T>
reference::Gradients backward(Call<T> &call, check::Buffer<T> &chunk_states, const Numbers &dy_values,
                              const Numbers &dfinal_values, double sums) {
  using check::Buffer;
  using check::launch;
  const mixer::Sizes &sizes = call.sizes;
  const int64_t rows = call.rows(), squares = call.chunks() * PARTS<T> * SQUARE, slices = sizes.slices();
  Buffer<T> dy(dy_values);
  Buffer<float> dfinal(dfinal_values);

  Scratch<T> scratch(call);
  Buffer<T> m(squares), n(2 * squares);
  scratch.fill(call, nullptr, m.data(), n.data());
  Buffer<T> chunk_gradients(chunk_states.size());
  Buffer<float> dinitial(call.state.size());
  launch(call.scan_blocks(), TILE_THREADS, call.scan_bytes(), [&] {
    Kernels<T>::scan_backward(scratch.q.data(), scratch.d.data(), scratch.w.data(), scratch.b.data(),
                              scratch.gamma_tail.data(), dy.data(), call.absent.dfinal ? nullptr : dfinal.data(),
                              chunk_gradients.data(), dinitial.data(), call.scan_width(), SIZE_ARGUMENTS(call));
  });
  Buffer<T> dr(rows * sizes.entity()), u(rows * sizes.entity());
  Buffer<float> per_token(rows * slices * 2);
  launch(call.chunks() * slices, TILE_THREADS, mixer::entity_backward_shared_bytes<T>(), [&] {
    Kernels<T>::entity_backward(call.x.data(), call.controls.data(), call.starts_or_null(), scratch.s.data(),
                                scratch.q.data(), scratch.d.data(), scratch.b.data(), m.data(), n.data(),
                                scratch.gamma_tail.data(), chunk_states.data(), chunk_gradients.data(), dy.data(),
                                dr.data(), u.data(), per_token.data(), SIZE_ARGUMENTS(call));
  });
  Buffer<float> ds(rows * sizes.address), dq(ds.size()), dd(ds.size()), dcontrols(call.controls.size());
  launch(call.chunks(), TILE_THREADS, mixer::address_backward_shared_bytes<T>(), [&] {
    Kernels<T>::address_backward(
        call.controls.data(), call.starts_or_null(), scratch.s.data(), scratch.q.data(), scratch.d.data(),
        scratch.b.data(), m.data(), scratch.gamma_tail.data(), chunk_states.data(), chunk_gradients.data(), dy.data(),
        dr.data(), u.data(), per_token.data(), ds.data(), dq.data(), dd.data(), dcontrols.data(), SIZE_ARGUMENTS(call));
  });
  Buffer<T> dx(call.x.size());
  const int64_t groups = call.heads() * mixer::groups_of(sizes);
  Buffer<float> partials(groups * sizes.transport_elements());
  launch(groups, TILE_THREADS, mixer::addresses_backward_shared_bytes<T>(sizes), [&] {
    Kernels<T>::addresses_backward(call.x.data(), call.controls.data(), call.a_key.data(), call.a_value.data(),
                                   call.c.data(), ds.data(), dq.data(), dd.data(), dr.data(), dx.data(),
                                   dcontrols.data(), partials.data(), call.query_norm, SIZE_ARGUMENTS(call));
  });
  Buffer<float> da_key(Numbers(call.a_key.size(), sums)), da_value(Numbers(call.a_value.size(), sums));
  Buffer<float> dc(Numbers(call.c.size(), sums));
  const int64_t elements = sizes.transport_elements() * sizes.heads;
  launch((elements + TILE_THREADS - 1) / TILE_THREADS, TILE_THREADS, 0, [&] {
    mixer_transport_gradients(partials.data(), da_key.data(), da_value.data(), dc.data(), SIZE_ARGUMENTS(call));
  });
  return {dx.values(), dcontrols.values(), da_key.values(), da_value.values(), dc.values(), dinitial.values()};
}

template <class T>
Results run(const reference::Sizes &shape, const reference::Inputs &inputs, const Numbers &dy, const Numbers &dfinal,
            double sums = 0.0, Absent absent = {}, Options options = {}) {
  Call<T> call(shape, inputs, absent, options);
  Forward<T> forward(call);
  return {forward.values(), backward(call, forward.chunk_states, dy, dfinal, sums)};
}

// Relative RMS errors that are let pass.
struct Tolerances {
  double value, gradient, gate_gradient;
};
template <class T>
constexpr Tolerances tolerances() {
  return sizeof(T) == 2 ? Tolerances{5e-3, 8e-3, 2e-2} : Tolerances{1e-5, 1e-4, 1e-4};
}

// Every output and gradient; x and controls part by part, so that a small one cannot hide behind a large one.
inline void compare(const std::string &name, const reference::Sizes &sizes, const Results &got, const Results &want,
                    Tolerances allowed) {
  const int S = sizes.address, K = sizes.key, V = sizes.value;
  check::close(name + " y", got.outputs.y, want.outputs.y, allowed.value);
  check::close(name + " state", got.outputs.state, want.outputs.state, allowed.value);
  if (!want.outputs.address_norm.empty())
    check::close(name + " address_norm", got.outputs.address_norm, want.outputs.address_norm, allowed.value);
  const struct {
    const char *name;
    int first, count;
  } parts[] = {{"dq0", 0, S}, {"ds_raw", S, S}, {"dk", 2 * S, K}, {"dv", 2 * S + K, V}};
  for (const auto &part : parts) {
    auto cut = [&](const Numbers &x) { return check::columns(x, sizes.channels(), part.first, part.count); };
    check::close(name + " " + part.name, cut(got.gradients.x), cut(want.gradients.x), allowed.gradient);
  }
  check::close(name + " dA_K", got.gradients.a_key, want.gradients.a_key, allowed.gradient);
  check::close(name + " dA_V", got.gradients.a_value, want.gradients.a_value, allowed.gradient);
  check::close(name + " dC", got.gradients.c, want.gradients.c, allowed.gradient);
  check::close(name + " dE0", got.gradients.state, want.gradients.state, allowed.gradient);
  // The gradients of one token's gates are five numbers, and one number that is a small difference has no
  // relative error to speak of: they are compared as one array.
  if (sizes.batch * sizes.tokens * sizes.heads == 1)
    return check::close(name + " dcontrols", got.gradients.controls, want.gradients.controls, allowed.gate_gradient);
  const char *gates[] = {"dlog_alpha", "dbeta_k", "dbeta_v", "drho", "dlambda"};
  for (int gate = 0; gate < 5; ++gate) {
    auto cut = [&](const Numbers &x) { return check::columns(x, 5 * sizes.heads, gate * sizes.heads, sizes.heads); };
    check::close(name + " " + gates[gate], cut(got.gradients.controls), cut(want.gradients.controls),
                 allowed.gate_gradient);
  }
}

}  // namespace mixer_test
