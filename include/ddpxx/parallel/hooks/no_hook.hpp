// ddpxx/parallel/hooks/no_hook.hpp — a hook that sends nothing, to measure a step without communication.
#pragma once

#include <cstddef>

#include <ATen/core/Tensor.h>

#include <ddpxx/parallel/comm_hook.hpp>

namespace ddpxx {

/// Every rank keeps its own gradients, so that the parameters of the ranks differ after each step. It is for measuring
/// what communication costs, not for training.
class NoSync {
 public:
  struct Config {};
  static constexpr bool kRanksDrift = true;

  NoSync(const Config&, const Group&) {}

  double scale() const { return 1.0; }
  Pending start(std::size_t, const at::Tensor&, const Group&) const { return {}; }
};

static_assert(CommHook<NoSync> && explain_hook<NoSync>());

}  // namespace ddpxx
