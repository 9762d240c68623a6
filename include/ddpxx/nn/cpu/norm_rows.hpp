// ddpxx/nn/cpu/norm_rows.hpp — layer norm of rows, with the additions beside it, and its gradient.
// Shape suffixes: N rows, C width.
#pragma once

#if defined(__x86_64__)

#include <cmath>
#include <cstdint>
#include <immintrin.h>

#include <ddpxx/nn/cpu/floats8.hpp>

namespace ddpxx::detail {

/// What the rows of a layer norm have in common.
struct NormRows {
  const float* weight;
  const float* bias;
  float* mean;
  float* rstd;  ///< 1 / the standard deviation of each row.
  std::int64_t width;
};

/// Normalises one row, and keeps its mean and standard deviation.
template <class Number>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void norm_row(const NormRows& norm, std::int64_t n,
                                                                     const float* x_C, Number* normed_C,
                                                                     double epsilon) {
  const auto C = norm.width;
  __m256 sums = _mm256_setzero_ps();
  for (std::int64_t c = 0; c < C; c += 8) sums = _mm256_add_ps(sums, _mm256_loadu_ps(x_C + c));
  const float mean = sum_of(sums) / static_cast<float>(C);
  const __m256 means = _mm256_set1_ps(mean);
  __m256 squares = _mm256_setzero_ps();
  for (std::int64_t c = 0; c < C; c += 8) {
    const __m256 distance = _mm256_sub_ps(_mm256_loadu_ps(x_C + c), means);
    squares = _mm256_fmadd_ps(distance, distance, squares);
  }
  const float rstd = 1.0F / std::sqrt(sum_of(squares) / static_cast<float>(C) + static_cast<float>(epsilon));
  norm.mean[n] = mean;
  norm.rstd[n] = rstd;
  const __m256 rstds = _mm256_set1_ps(rstd);
  for (std::int64_t c = 0; c < C; c += 8) {
    const __m256 x = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(x_C + c), means), rstds);
    store8(normed_C + c, _mm256_fmadd_ps(x, _mm256_loadu_ps(norm.weight + c), _mm256_loadu_ps(norm.bias + c)));
  }
}

/// normed_NC = norm(x_NC), for rows [first, last).
template <class Number>
[[gnu::target("avx2,fma")]] inline void norm_rows(const NormRows& norm, const float* x_NC, Number* normed_NC,
                                                  double epsilon, std::int64_t first, std::int64_t last) {
  for (auto n = first; n < last; ++n) norm_row(norm, n, x_NC + n * norm.width, normed_NC + n * norm.width, epsilon);
}

/// sum_NC = x_NC + y_NC + y_bias_C, and normed_NC = norm(sum_NC), for rows [first, last).
template <class Number>
[[gnu::target("avx2,fma")]] inline void add_norm_rows(const NormRows& norm, const float* x_NC, const Number* y_NC,
                                                      const float* y_bias_C, float* sum_NC, Number* normed_NC,
                                                      double epsilon, std::int64_t first, std::int64_t last) {
  const auto C = norm.width;
  for (auto n = first; n < last; ++n) {
    for (std::int64_t c = 0; c < C; c += 8) {
      const __m256 y = _mm256_add_ps(load8(y_NC + n * C + c), _mm256_loadu_ps(y_bias_C + c));
      _mm256_storeu_ps(sum_NC + n * C + c, _mm256_add_ps(_mm256_loadu_ps(x_NC + n * C + c), y));
    }
    norm_row(norm, n, sum_NC + n * C, normed_NC + n * C, epsilon);
  }
}

/// out_NC = x_NC + y_NC + y_bias_C, for rows [first, last). `out_NC` may be `y_NC`.
template <class Number>
[[gnu::target("avx2,fma")]] inline void add_rows(const float* x_NC, const Number* y_NC, const float* y_bias_C,
                                                 float* out_NC, std::int64_t C, std::int64_t first, std::int64_t last) {
  for (auto n = first; n < last; ++n)
    for (std::int64_t c = 0; c < C; c += 8) {
      const __m256 y = _mm256_add_ps(load8(y_NC + n * C + c), _mm256_loadu_ps(y_bias_C + c));
      _mm256_storeu_ps(out_NC + n * C + c, _mm256_add_ps(y, _mm256_loadu_ps(x_NC + n * C + c)));
    }
}

/// Adds the columns of x_NC to sums_C, for rows [first, last).
template <class Number>
[[gnu::target("avx2,fma")]] inline void add_columns(const Number* x_NC, float* sums_C, std::int64_t C,
                                                    std::int64_t first, std::int64_t last) {
  for (auto n = first; n < last; ++n)
    for (std::int64_t c = 0; c < C; c += 8) add_to(sums_C + c, load8(x_NC + n * C + c));
}

/// Where the gradients of a layer norm's parameters are added up, and the columns of the two gradients of its input.
struct NormSums {
  float* weight;
  float* bias;
  float* residual;  ///< Column sums of the gradient that comes by the residual connection.
  float* x;         ///< Column sums of the whole gradient of x.
};

/// d_x_NC = the gradient of x_NC: that of norm(x_NC), of which d_normed_NC is the gradient, and, added to it,
/// d_residual_NC. Computes normed_NC again. For rows [first, last). `d_x_NC` may be `d_normed_NC`.
template <class Number>
[[gnu::target("avx2,fma")]] inline void norm_backward_rows(const NormRows& norm, const float* x_NC,
                                                           const float* d_residual_NC, const Number* d_normed_NC,
                                                           float* d_x_NC, Number* normed_NC, const NormSums& sums,
                                                           std::int64_t first, std::int64_t last) {
  const auto C = norm.width;
  for (auto n = first; n < last; ++n) {
    const float* x_C = x_NC + n * C;
    const float* d_residual_C = d_residual_NC + n * C;
    const Number* d_normed_C = d_normed_NC + n * C;
    float* d_x_C = d_x_NC + n * C;
    Number* normed_C = normed_NC + n * C;
    const __m256 mean = _mm256_set1_ps(norm.mean[n]), rstd = _mm256_set1_ps(norm.rstd[n]);
    __m256 sum_d = _mm256_setzero_ps(), sum_dx = _mm256_setzero_ps();
    for (std::int64_t c = 0; c < C; c += 8) {
      const __m256 weight = _mm256_loadu_ps(norm.weight + c);
      const __m256 hat = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(x_C + c), mean), rstd);
      const __m256 d_normed = load8(d_normed_C + c);
      store8(normed_C + c, _mm256_fmadd_ps(hat, weight, _mm256_loadu_ps(norm.bias + c)));
      add_to(sums.bias + c, d_normed);
      add_to(sums.weight + c, _mm256_mul_ps(d_normed, hat));
      const __m256 d_hat = _mm256_mul_ps(d_normed, weight);
      sum_d = _mm256_add_ps(sum_d, d_hat);
      sum_dx = _mm256_fmadd_ps(d_hat, hat, sum_dx);
    }
    const auto inverse = 1.0F / static_cast<float>(C);
    const __m256 mean_d = _mm256_set1_ps(sum_of(sum_d) * inverse), mean_dx = _mm256_set1_ps(sum_of(sum_dx) * inverse);
    for (std::int64_t c = 0; c < C; c += 8) {
      const __m256 hat = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(x_C + c), mean), rstd);
      const __m256 d_hat = _mm256_mul_ps(load8(d_normed_C + c), _mm256_loadu_ps(norm.weight + c));
      const __m256 d_residual = _mm256_loadu_ps(d_residual_C + c);
      const __m256 centred = _mm256_fnmadd_ps(hat, mean_dx, _mm256_sub_ps(d_hat, mean_d));
      const __m256 d_x = _mm256_fmadd_ps(centred, rstd, d_residual);
      _mm256_storeu_ps(d_x_C + c, d_x);
      if (sums.residual != nullptr) add_to(sums.residual + c, d_residual);
      if (sums.x != nullptr) add_to(sums.x + c, d_x);
    }
  }
}

}  // namespace ddpxx::detail

#endif
