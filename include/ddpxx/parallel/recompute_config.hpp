// ddpxx/parallel/recompute_config.hpp — which layers are run again in backward.
#pragma once

#include <array>
#include <cstddef>
#include <functional>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// Which activations are dropped. One of: none; those of all layers; every k-th; n segments of layers, each one run
/// again as a whole; those that a predicate names; all layers, but for what they keep by `run.keep`.
struct RecomputeConfig {
  enum class Policy { none, all, every, segments, selective };
  Policy policy = Policy::all;
  std::size_t count = 1;                               ///< The k of every, the n of segments; at least 1.
  std::function<bool(std::size_t layer)> chosen = {};  ///< If given: which layers, counted from 0.
};

constexpr auto enum_names(RecomputeConfig::Policy) {
  using enum RecomputeConfig::Policy;
  return std::array{Named{none, "none"}, Named{all, "all"}, Named{every, "every"}, Named{segments, "segments"},
                    Named{selective, "selective"}};
}

}  // namespace ddpxx
