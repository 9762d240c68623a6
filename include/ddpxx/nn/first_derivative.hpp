// ddpxx/nn/first_derivative.hpp — refuses a second derivative of an operation that has none.
#pragma once

#include <string>

#include <c10/core/GradMode.h>

#include <ddpxx/core/error.hpp>

namespace ddpxx::detail {

/// Called in a backward pass. `otherwise` is what to do for a second derivative, as part of the sentence.
///
/// Errors  `config` if the backward pass is to create a graph.
inline void check_first_derivative(const char* name, const char* otherwise = "set model.fused=false") {
  if (c10::GradMode::is_enabled())
    throw Error{Errc::config,
                std::string{name} + " has no second derivative: call backward without create_graph, or " + otherwise};
}

}  // namespace ddpxx::detail
