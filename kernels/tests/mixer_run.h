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

template <class T>
struct Kernels;
#define KERNELS_OF(T, SUFFIX)                                                   \
  template <>                                                                   \
  struct Kernels<T> {                                                           \
    static constexpr auto *addresses = mixer_addresses_##SUFFIX;                \
    static constexpr auto *prepare = mixer_prepare_##SUFFIX;                    \
    static constexpr auto *scan = mixer_scan_##SUFFIX;                          \
    static constexpr auto *scan_backward = mixer_scan_backward_##SUFFIX;        \
    static constexpr auto *entity_backward = mixer_entity_backward_##SUFFIX;    \
    static constexpr auto *address_backward = mixer_address_backward_##SUFFIX;  \
    static constexpr auto *addresses_backward = mixer_addresses_backward_##SUFFIX; \
  };
KERNELS_OF(float, f32)
KERNELS_OF(bf16, bf16)

// `sums` holds what dA_K, dA_V and dC contained before.
template <class T>
Results run(const reference::Sizes &shape, const reference::Inputs &inputs, const Numbers &dy_values,
            const Numbers &dfinal_values, double sums = 0.0, Absent absent = {}) {
  using check::Buffer;
  using check::launch;
  const mixer::Sizes sizes = {shape.batch, shape.tokens, shape.heads, shape.address, shape.key, shape.value, shape.rank};
  if (!sizes.supported()) throw std::runtime_error("sizes that the kernels do not take");
  const int query_norm = shape.query_norm;
  const int64_t chunks = sizes.all_chunks(), heads = sizes.states();
  const int64_t rows = chunks * mixer::CHUNK, square = PARTS<T> * TILE * TILE;
  const int S = sizes.address, D = sizes.entity(), slices = sizes.slices();
  const int scan_slices = sizes.slices(sizes.scan_width());
#define SIZE_ARGUMENTS sizes.batch, sizes.tokens, sizes.heads, sizes.address, sizes.key, sizes.value, sizes.rank

  Buffer<T> x(inputs.x), dy(dy_values);
  Buffer<float> controls(inputs.controls), a_key(inputs.a_key), a_value(inputs.a_value), c(inputs.c);
  Buffer<float> state(inputs.state), dfinal(dfinal_values);
  Buffer<uint8_t> starts(inputs.starts.size());
  std::copy(inputs.starts.begin(), inputs.starts.end(), starts.data());
  const uint8_t *starts_or_null = absent.starts ? nullptr : starts.data();

  Buffer<T> y(dy_values.size()), chunk_states(chunks * S * D);
  Buffer<float> final_state(heads * S * D), address_norm(heads);
  {
    Buffer<T> s(rows * S), q(rows * S), d(rows * S), w(rows * 2 * S), u0(rows * PARTS<T> * D), b(chunks * square);
    Buffer<float> norms(chunks), gamma_tail(rows * 2);
    Buffer<double> cumulative(rows);
    launch(chunks, TILE_THREADS, mixer::addresses_shared_bytes<T>(sizes), [&] {
      Kernels<T>::addresses(x.data(), controls.data(), a_key.data(), a_value.data(), c.data(), s.data(), q.data(),
                            d.data(), norms.data(), query_norm, SIZE_ARGUMENTS);
    });
    launch(chunks, TILE_THREADS, mixer::prepare_shared_bytes<T>(), [&] {
      Kernels<T>::prepare(x.data(), controls.data(), starts_or_null, s.data(), q.data(), d.data(), w.data(), u0.data(),
                          b.data(), nullptr, nullptr, gamma_tail.data(), cumulative.data(), SIZE_ARGUMENTS);
    });
    launch(heads * scan_slices, TILE_THREADS, mixer::scan_shared_bytes<T>(sizes), [&] {
      Kernels<T>::scan(q.data(), d.data(), w.data(), u0.data(), b.data(), gamma_tail.data(), norms.data(),
                       absent.state ? nullptr : state.data(), y.data(), final_state.data(), chunk_states.data(),
                       address_norm.data(), SIZE_ARGUMENTS);
    });
  }

  // Backward has nothing of forward's but the chunk states.
  Buffer<T> dx(inputs.x.size());
  Buffer<float> dcontrols(inputs.controls.size()), dinitial(heads * S * D);
  Buffer<float> da_key(Numbers(inputs.a_key.size(), sums)), da_value(Numbers(inputs.a_value.size(), sums));
  Buffer<float> dc(Numbers(inputs.c.size(), sums));
  {
    Buffer<T> s(rows * S), q(rows * S), d(rows * S), w(rows * 2 * S), b(chunks * square), m(chunks * square);
    Buffer<T> n(chunks * 2 * square), chunk_gradients(chunks * S * D), dr(rows * D), u(rows * D);
    Buffer<float> ds(rows * S), dq(rows * S), dd(rows * S), norms(chunks), gamma_tail(rows * 2), per_token(rows * slices * 2);
    Buffer<float> partials(heads * mixer::groups_of(sizes) * sizes.transport_elements());
    Buffer<double> cumulative(rows);
    launch(chunks, TILE_THREADS, mixer::addresses_shared_bytes<T>(sizes), [&] {
      Kernels<T>::addresses(x.data(), controls.data(), a_key.data(), a_value.data(), c.data(), s.data(), q.data(),
                            d.data(), norms.data(), query_norm, SIZE_ARGUMENTS);
    });
    launch(chunks, TILE_THREADS, mixer::prepare_shared_bytes<T>(), [&] {
      Kernels<T>::prepare(x.data(), controls.data(), starts_or_null, s.data(), q.data(), d.data(), w.data(), nullptr,
                          b.data(), m.data(), n.data(), gamma_tail.data(), cumulative.data(), SIZE_ARGUMENTS);
    });
    launch(heads * scan_slices, TILE_THREADS, mixer::scan_shared_bytes<T>(sizes), [&] {
      Kernels<T>::scan_backward(q.data(), d.data(), w.data(), b.data(), gamma_tail.data(), dy.data(),
                                absent.dfinal ? nullptr : dfinal.data(), chunk_gradients.data(), dinitial.data(),
                                SIZE_ARGUMENTS);
    });
    launch(chunks * slices, TILE_THREADS, mixer::entity_backward_shared_bytes<T>(), [&] {
      Kernels<T>::entity_backward(x.data(), controls.data(), starts_or_null, s.data(), q.data(), d.data(), b.data(),
                                  m.data(), n.data(), gamma_tail.data(), chunk_states.data(), chunk_gradients.data(),
                                  dy.data(), dr.data(), u.data(), per_token.data(), SIZE_ARGUMENTS);
    });
    launch(chunks, TILE_THREADS, mixer::address_backward_shared_bytes<T>(), [&] {
      Kernels<T>::address_backward(controls.data(), starts_or_null, s.data(), q.data(), d.data(), b.data(), m.data(),
                                   gamma_tail.data(), chunk_states.data(), chunk_gradients.data(), dy.data(),
                                   dr.data(), u.data(), per_token.data(), ds.data(), dq.data(), dd.data(),
                                   dcontrols.data(), SIZE_ARGUMENTS);
    });
    launch(heads * mixer::groups_of(sizes), TILE_THREADS, mixer::addresses_backward_shared_bytes<T>(sizes), [&] {
      Kernels<T>::addresses_backward(x.data(), controls.data(), a_key.data(), a_value.data(), c.data(), ds.data(),
                                     dq.data(), dd.data(), dr.data(), dx.data(), dcontrols.data(), partials.data(),
                                     query_norm, SIZE_ARGUMENTS);
    });
    const int64_t elements = sizes.transport_elements() * sizes.heads;
    launch((elements + TILE_THREADS - 1) / TILE_THREADS, TILE_THREADS, 0, [&] {
      mixer_transport_gradients(partials.data(), da_key.data(), da_value.data(), dc.data(), SIZE_ARGUMENTS);
    });
  }
#undef SIZE_ARGUMENTS
  return {{y.values(), final_state.values(), address_norm.values()},
          {dx.values(), dcontrols.values(), da_key.values(), da_value.values(), dc.values(), dinitial.values()}};
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
    auto cut = [&](const Numbers &x) {
      return check::columns(x, 5 * sizes.heads, gate * sizes.heads, sizes.heads);
    };
    check::close(name + " " + gates[gate], cut(got.gradients.controls), cut(want.gradients.controls),
                 allowed.gate_gradient);
  }
}

}  // namespace mixer_test
