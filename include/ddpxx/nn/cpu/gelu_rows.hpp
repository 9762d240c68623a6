// ddpxx/nn/cpu/gelu_rows.hpp — GELU of rows to which a bias is added, and its gradient, each in one pass over memory.
// Shape suffixes: N rows, F width.
#pragma once

#if defined(__x86_64__)

#include <cstdint>

#include <ddpxx/nn/cpu/lanes.hpp>

namespace ddpxx::detail {

/// s = sigmoid(2u) for u = sqrt(2 / pi) (x + 0.044715 x^3): GELU in its tanh approximation is x s.
template <int kLanes>
[[gnu::always_inline]] inline Floats<kLanes> gelu_gate(const Floats<kLanes>& x) {
  const Floats<kLanes> minus_2u = x * multiply_add(x * x, -0.0713548163F, -1.5957691216F);
  return 1.0F / (1.0F + exp_of(minus_2u));
}

/// gelu_NF = GELU(x_NF + bias_F).
template <int kLanes, class Number>
[[gnu::always_inline]] inline void gelu_rows(Lanes<kLanes>, const Number* x_NF, const float* bias_F, Number* gelu_NF,
                                             std::int64_t F, std::int64_t first, std::int64_t last) {
  for (auto n = first; n < last; ++n)
    for (std::int64_t f = 0; f < F; f += kLanes) {
      const Floats<kLanes> x = load<kLanes>(x_NF + n * F + f) + load<kLanes>(bias_F + f);
      store(gelu_NF + n * F + f, x * gelu_gate(x));
    }
}

/// Replaces the gradient of GELU(x_NF + bias_F) by that of x_NF, computes gelu_NF again, and adds the gradient of the
/// bias to d_bias_F.
template <int kLanes, class Number>
[[gnu::always_inline]] inline void gelu_backward_rows(Lanes<kLanes>, const Number* x_NF, const float* bias_F,
                                                      Number* gradient_NF, Number* gelu_NF, float* d_bias_F,
                                                      std::int64_t F, std::int64_t first, std::int64_t last) {
  for (auto n = first; n < last; ++n)
    for (std::int64_t f = 0; f < F; f += kLanes) {
      const Floats<kLanes> x = load<kLanes>(x_NF + n * F + f) + load<kLanes>(bias_F + f);
      const Floats<kLanes> s = gelu_gate(x);
      const Floats<kLanes> gelu = x * s;
      // The derivative is s + x s (1 - s) 2u', where 2u' = 2 sqrt(2 / pi) (1 + 3 * 0.044715 x^2).
      const Floats<kLanes> slope = multiply_add(x * x, 0.2140644488F, 1.5957691216F);
      const Floats<kLanes> derivative = multiply_add(gelu * (1.0F - s), slope, s);
      const Floats<kLanes> d_x = load<kLanes>(gradient_NF + n * F + f) * derivative;
      store(gelu_NF + n * F + f, gelu);
      store(gradient_NF + n * F + f, d_x);
      add_to(d_bias_F + f, d_x);
    }
}

}  // namespace ddpxx::detail

#endif
