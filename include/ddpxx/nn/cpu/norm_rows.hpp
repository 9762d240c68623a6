// ddpxx/nn/cpu/norm_rows.hpp — layer norm of rows, with the additions beside it, and its gradient.
// Shape suffixes: N rows, C width.
#pragma once

#if defined(__x86_64__)

#include <cmath>
#include <cstdint>

#include <ddpxx/nn/cpu/lanes.hpp>

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
template <int kLanes, class Number>
[[gnu::always_inline]] inline void norm_row(const NormRows& norm, std::int64_t n, const float* x_C, Number* normed_C,
                                            double epsilon) {
  const auto C = norm.width;
  Floats<kLanes> sums = {};
  for (std::int64_t c = 0; c < C; c += kLanes) sums += load<kLanes>(x_C + c);
  const float mean = sum_of(sums) / static_cast<float>(C);
  Floats<kLanes> squares = {};
  for (std::int64_t c = 0; c < C; c += kLanes) {
    const Floats<kLanes> distance = load<kLanes>(x_C + c) - mean;
    squares = multiply_add(distance, distance, squares);
  }
  const float rstd = 1.0F / std::sqrt(sum_of(squares) / static_cast<float>(C) + static_cast<float>(epsilon));
  norm.mean[n] = mean;
  norm.rstd[n] = rstd;
  for (std::int64_t c = 0; c < C; c += kLanes) {
    const Floats<kLanes> hat = (load<kLanes>(x_C + c) - mean) * rstd;
    store(normed_C + c, multiply_add(hat, load<kLanes>(norm.weight + c), load<kLanes>(norm.bias + c)));
  }
}

/// normed_NC = norm(x_NC), for rows [first, last).
template <int kLanes, class Number>
[[gnu::always_inline]] inline void norm_rows(Lanes<kLanes>, const NormRows& norm, const float* x_NC, Number* normed_NC,
                                             double epsilon, std::int64_t first, std::int64_t last) {
  for (auto n = first; n < last; ++n)
    norm_row<kLanes>(norm, n, x_NC + n * norm.width, normed_NC + n * norm.width, epsilon);
}

/// sum_NC = x_NC + y_NC + y_bias_C, and normed_NC = norm(sum_NC), for rows [first, last).
template <int kLanes, class Number>
[[gnu::always_inline]] inline void add_norm_rows(Lanes<kLanes>, const NormRows& norm, const float* x_NC,
                                                 const Number* y_NC, const float* y_bias_C, float* sum_NC,
                                                 Number* normed_NC, double epsilon, std::int64_t first,
                                                 std::int64_t last) {
  const auto C = norm.width;
  for (auto n = first; n < last; ++n) {
    for (std::int64_t c = 0; c < C; c += kLanes) {
      const Floats<kLanes> y = load<kLanes>(y_NC + n * C + c) + load<kLanes>(y_bias_C + c);
      store(sum_NC + n * C + c, load<kLanes>(x_NC + n * C + c) + y);
    }
    norm_row<kLanes>(norm, n, sum_NC + n * C, normed_NC + n * C, epsilon);
  }
}

/// out_NC = x_NC + y_NC + y_bias_C, for rows [first, last). `out_NC` may be `y_NC`.
template <int kLanes, class Number>
[[gnu::always_inline]] inline void add_rows(Lanes<kLanes>, const float* x_NC, const Number* y_NC, const float* y_bias_C,
                                            float* out_NC, std::int64_t C, std::int64_t first, std::int64_t last) {
  for (auto n = first; n < last; ++n)
    for (std::int64_t c = 0; c < C; c += kLanes) {
      const Floats<kLanes> y = load<kLanes>(y_NC + n * C + c) + load<kLanes>(y_bias_C + c);
      store(out_NC + n * C + c, y + load<kLanes>(x_NC + n * C + c));
    }
}

/// Adds the columns of x_NC to sums_C, for rows [first, last).
template <int kLanes, class Number>
[[gnu::always_inline]] inline void add_columns(Lanes<kLanes>, const Number* x_NC, float* sums_C, std::int64_t C,
                                               std::int64_t first, std::int64_t last) {
  for (auto n = first; n < last; ++n)
    for (std::int64_t c = 0; c < C; c += kLanes) add_to(sums_C + c, load<kLanes>(x_NC + n * C + c));
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
template <int kLanes, class Number>
[[gnu::always_inline]] inline void norm_backward_rows(Lanes<kLanes>, const NormRows& norm, const float* x_NC,
                                                      const float* d_residual_NC, const Number* d_normed_NC,
                                                      float* d_x_NC, Number* normed_NC, const NormSums& sums,
                                                      std::int64_t first, std::int64_t last) {
  const auto C = norm.width;
  const float inverse = 1.0F / static_cast<float>(C);
  for (auto n = first; n < last; ++n) {
    const float* x_C = x_NC + n * C;
    const float* d_residual_C = d_residual_NC + n * C;
    const Number* d_normed_C = d_normed_NC + n * C;
    float* d_x_C = d_x_NC + n * C;
    Number* normed_C = normed_NC + n * C;
    const float mean = norm.mean[n], rstd = norm.rstd[n];
    Floats<kLanes> sum_d = {}, sum_dx = {};
    for (std::int64_t c = 0; c < C; c += kLanes) {
      const Floats<kLanes> weight = load<kLanes>(norm.weight + c), d_normed = load<kLanes>(d_normed_C + c);
      const Floats<kLanes> hat = (load<kLanes>(x_C + c) - mean) * rstd;
      store(normed_C + c, multiply_add(hat, weight, load<kLanes>(norm.bias + c)));
      add_to(sums.bias + c, d_normed);
      add_to(sums.weight + c, d_normed * hat);
      const Floats<kLanes> d_hat = d_normed * weight;
      sum_d += d_hat;
      sum_dx = multiply_add(d_hat, hat, sum_dx);
    }
    const float mean_d = sum_of(sum_d) * inverse, mean_dx = sum_of(sum_dx) * inverse;
    for (std::int64_t c = 0; c < C; c += kLanes) {
      const Floats<kLanes> hat = (load<kLanes>(x_C + c) - mean) * rstd;
      const Floats<kLanes> d_hat = load<kLanes>(d_normed_C + c) * load<kLanes>(norm.weight + c);
      const Floats<kLanes> d_residual = load<kLanes>(d_residual_C + c);
      const Floats<kLanes> centred = multiply_add(hat, -mean_dx, d_hat - mean_d);
      const Floats<kLanes> d_x = multiply_add(centred, rstd, d_residual);
      store(d_x_C + c, d_x);
      if (sums.residual != nullptr) add_to(sums.residual + c, d_residual);
      if (sums.x != nullptr) add_to(sums.x + c, d_x);
    }
  }
}

}  // namespace ddpxx::detail

#endif
