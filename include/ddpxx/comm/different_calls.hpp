// ddpxx/comm/different_calls.hpp — the error of ranks that call different collectives.
#pragma once

#include <stdexcept>

namespace ddpxx::detail {

/// The ranks call different collectives, or the same one with arguments that do not fit; its text names both calls.
class DifferentCalls : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ddpxx::detail
