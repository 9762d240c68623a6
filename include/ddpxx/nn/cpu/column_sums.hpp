// ddpxx/nn/cpu/column_sums.hpp — gradients of parameters that are sums over rows.
#pragma once

#if defined(__x86_64__)

#include <algorithm>
#include <cstdint>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <ddpxx/flat/gradient_hooks.hpp>
#include <ddpxx/nn/cpu/products.hpp>
#include <ddpxx/nn/cpu/ranges.hpp>

namespace ddpxx::detail {

/// The gradients of parameters that are sums over rows, such as biases. Each range of rows adds up its own sums. All
/// sums share one tensor, because to make a tensor takes as long as to add up the sums of a small block.
class ColumnSums {
 public:
  /// `width` is the number of elements of all parameters together.
  ColumnSums(const Ranges& rows, std::int64_t width, const at::TensorOptions& options)
      : sums_{at::zeros({rows.count, width}, options)} {}

  /// The sums for one parameter.
  class Part {
   public:
    float* of_range(std::int64_t range) const { return first_ + range * stride_; }
    /// The sums of all ranges, in the place of the parameter's gradient if it has one.
    at::Tensor total() const {
      auto total = GradientHooks::place_of(parameter_);
      if (!total.defined()) total = at::empty(parameter_.sizes(), parameter_.options());
      auto* const values = writable_floats(total);
      std::copy_n(first_, total.numel(), values);
      for (std::int64_t range = 1; range < ranges_; ++range)
        for (std::int64_t i = 0; i < total.numel(); ++i) values[i] += of_range(range)[i];
      return total;
    }

   private:
    friend ColumnSums;
    Part(at::Tensor parameter, float* first, const at::Tensor& sums)
        : parameter_{std::move(parameter)}, first_{first}, stride_{sums.size(1)}, ranges_{sums.size(0)} {}

    at::Tensor parameter_;
    float* first_;
    std::int64_t stride_, ranges_;
  };
  /// The sums for `parameter`. They lie behind those of the previous call.
  Part part(const at::Tensor& parameter) {
    const auto column = std::exchange(column_, column_ + parameter.numel());
    return {parameter, writable_floats(sums_) + column, sums_};
  }

 private:
  at::Tensor sums_;
  std::int64_t column_ = 0;
};

}  // namespace ddpxx::detail

#endif
