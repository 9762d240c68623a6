// ddpxx/flat/formats.hpp — number formats of a model's parameters and of its gradients' reduction.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <c10/core/ScalarType.h>

namespace ddpxx {

/// The number formats that a precision asks a strategy for. By default everything keeps the model's own type.
struct NumberFormats {
  /// Type of the floating-point parameters with which the model computes; the optimizer steps a copy in the model's own
  /// type, which must have more than 16 bits.
  std::optional<at::ScalarType> parameters = {};
  /// Type in which a strategy that shards gradients sums them over the ranks; sums over micro-steps keep the model's
  /// type.
  std::optional<at::ScalarType> reduction = {};
  /// True for the names of parameters that keep the model's own type.
  std::function<bool(const std::string&)> kept = {};

  /// Type of the parameter `name`; none: the model's own.
  std::optional<at::ScalarType> of(const std::string& name) const {
    return kept && kept(name) ? std::nullopt : parameters;
  }
};

}  // namespace ddpxx
