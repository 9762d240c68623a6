// ddpxx/flat/formats.hpp — in which number formats parameters are held and gradients travel.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <c10/core/ScalarType.h>

namespace ddpxx {

/// What a precision asks of whoever holds the parameters. By default everything keeps the type that the model has.
struct NumberFormats {
  /// What the model computes with; the optimizer steps a copy in the model's own type.
  std::optional<at::ScalarType> parameters = {};
  /// What gradients are summed in, where a strategy scatters them; the sums of micro-steps keep the model's type.
  std::optional<at::ScalarType> reduction = {};
  /// Names of the parameters that keep the model's own type.
  std::function<bool(const std::string&)> kept = {};

  std::optional<at::ScalarType> of(const std::string& name) const {
    return kept && kept(name) ? std::nullopt : parameters;
  }
};

}  // namespace ddpxx
