// ddpxx/parallel/recompute_config.hpp — the settings of Recompute: which layers are run again in backward.
#pragma once

#include <array>
#include <cstdint>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// Whose activations are dropped. none: those of no layer. all: those of all layers. every: those of every k-th layer.
/// segments: the layers are cut into n segments, each of which is run again as a whole. selective: those of all layers,
/// except results that the layers keep by `run.keep`.
struct RecomputeConfig {
  enum class Policy { none, all, every, segments, selective };
  Policy policy = Policy::all;
  std::int64_t count = 1;

  static constexpr auto describe() {
    return fields(
        field<&RecomputeConfig::policy>("Layers whose activations backward computes again: none, all, every k-th one, "
                                        "n segments of layers, or all but what they keep (selective)",
                                        Resume::free),
        field<&RecomputeConfig::count>("k of policy=every, n of policy=segments", at_least(1), Resume::free));
  }
};

constexpr auto enum_names(RecomputeConfig::Policy) {
  using enum RecomputeConfig::Policy;
  return std::array{Named{none, "none"}, Named{all, "all"}, Named{every, "every"}, Named{segments, "segments"},
                    Named{selective, "selective"}};
}

}  // namespace ddpxx
