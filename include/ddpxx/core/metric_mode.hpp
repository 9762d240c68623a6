// ddpxx/core/metric_mode.hpp — which direction of a metric is better.
#pragma once

#include <array>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// Which direction of a metric is better.
enum class MetricMode { min, max };

constexpr auto enum_names(MetricMode) {
  return std::array{Named{MetricMode::min, "min"}, Named{MetricMode::max, "max"}};
}

}  // namespace ddpxx
