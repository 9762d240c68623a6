// ddpxx/parallel/zero_config.hpp — the settings of ZeRO-1 and ZeRO-2.
#pragma once

#include <cstdint>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

struct ZeROConfig {
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
  bool find_unused_parameters = false;
  bool broadcast_buffers = true;

  static constexpr auto describe() {
    return fields(
        field<&ZeROConfig::first_bucket_bytes>(
            "Size of the first gradient bucket; small, so that communication starts early", at_least(1), Unit::bytes,
            Resume::free),
        field<&ZeROConfig::bucket_bytes>("Size of the other gradient buckets", at_least(1), Unit::bytes, Resume::free),
        field<&ZeROConfig::find_unused_parameters>(
            "Average parameters that got no gradient as zeros instead of refusing them. Where no rank uses a "
            "parameter, the optimizer still applies momentum and weight decay to it; to keep its value, freeze it "
            "before the trainer takes the model",
            Resume::free),
        field<&ZeROConfig::broadcast_buffers>("Broadcast rank 0's buffers before each step", Resume::free));
  }
};

}  // namespace ddpxx
