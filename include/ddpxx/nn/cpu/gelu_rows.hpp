// ddpxx/nn/cpu/gelu_rows.hpp — GELU of rows to which a bias is added, and its gradient, each in one pass over memory.
// Shape suffixes: N rows, F width.
#pragma once

#if defined(__x86_64__)

#include <cstdint>
#include <immintrin.h>

#include <ddpxx/nn/cpu/floats8.hpp>

namespace ddpxx::detail {

/// s = sigmoid(2u) for u = sqrt(2 / pi) (x + 0.044715 x^3): GELU in its tanh approximation is x s.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline __m256 gelu_gate(__m256 x) {
  const __m256 square = _mm256_mul_ps(x, x);
  const __m256 minus_2u =
      _mm256_mul_ps(x, _mm256_fmadd_ps(square, _mm256_set1_ps(-0.0713548163F), _mm256_set1_ps(-1.5957691216F)));
  const __m256 one = _mm256_set1_ps(1.0F);
  return _mm256_div_ps(one, _mm256_add_ps(one, exp_of(minus_2u)));
}

/// gelu_NF = GELU(x_NF + bias_F).
template <class Number>
[[gnu::target("avx2,fma")]] inline void gelu_rows(const Number* x_NF, const float* bias_F, Number* gelu_NF,
                                                  std::int64_t F, std::int64_t first, std::int64_t last) {
  for (auto n = first; n < last; ++n)
    for (std::int64_t f = 0; f < F; f += 8) {
      const __m256 x = _mm256_add_ps(load8(x_NF + n * F + f), _mm256_loadu_ps(bias_F + f));
      store8(gelu_NF + n * F + f, _mm256_mul_ps(x, gelu_gate(x)));
    }
}

/// Replaces the gradient of GELU(x_NF + bias_F) by that of x_NF, computes gelu_NF again, and adds the gradient of the
/// bias to d_bias_F.
template <class Number>
[[gnu::target("avx2,fma")]] inline void gelu_backward_rows(const Number* x_NF, const float* bias_F, Number* gradient_NF,
                                                           Number* gelu_NF, float* d_bias_F, std::int64_t F,
                                                           std::int64_t first, std::int64_t last) {
  const __m256 one = _mm256_set1_ps(1.0F);
  for (auto n = first; n < last; ++n)
    for (std::int64_t f = 0; f < F; f += 8) {
      const __m256 x = _mm256_add_ps(load8(x_NF + n * F + f), _mm256_loadu_ps(bias_F + f));
      const __m256 s = gelu_gate(x);
      const __m256 gelu = _mm256_mul_ps(x, s);
      // The derivative is s + x s (1 - s) 2u', where 2u' = 2 sqrt(2 / pi) (1 + 3 * 0.044715 x^2).
      const __m256 slope =
          _mm256_fmadd_ps(_mm256_mul_ps(x, x), _mm256_set1_ps(0.2140644488F), _mm256_set1_ps(1.5957691216F));
      const __m256 derivative = _mm256_fmadd_ps(_mm256_mul_ps(gelu, _mm256_sub_ps(one, s)), slope, s);
      const __m256 d_x = _mm256_mul_ps(load8(gradient_NF + n * F + f), derivative);
      store8(gelu_NF + n * F + f, gelu);
      store8(gradient_NF + n * F + f, d_x);
      add_to(d_bias_F + f, d_x);
    }
}

}  // namespace ddpxx::detail

#endif
