// ddpxx/parallel/ddp_config.hpp — the settings of DDP.
#pragma once

#include <cstdint>
#include <vector>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

struct DDPConfig {
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
  std::vector<std::int64_t> bucket_bytes_list = {};
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool broadcast_buffers = true;

  static constexpr auto describe() {
    return fields(
        field<&DDPConfig::first_bucket_bytes>(
            "Size of the first gradient bucket; small, so that communication starts early", at_least(1), Unit::bytes,
            Resume::free),
        field<&DDPConfig::bucket_bytes>("Size of the other gradient buckets", at_least(1), Unit::bytes, Resume::free),
        field<&DDPConfig::bucket_bytes_list>(
            "Sizes of the gradient buckets in the order in which they are sent, instead of first_bucket_bytes and "
            "bucket_bytes; further buckets have the last of these sizes",
            at_least(1), Unit::bytes, Resume::free),
        field<&DDPConfig::find_unused_parameters>(
            "Average parameters that got no gradient as zeros instead of refusing them. Where no rank uses a "
            "parameter, the optimizer still applies momentum and weight decay to it; to keep its value, freeze it "
            "before the trainer takes the model",
            Resume::free),
        field<&DDPConfig::static_graph>(
            "Every step uses the parameters that the first step used: the others are averaged as zeros without waiting "
            "for the end of backward, and using them later is an error; find_unused_parameters is then not needed",
            Resume::free),
        field<&DDPConfig::broadcast_buffers>("Broadcast rank 0's buffers before each step", Resume::free));
  }
};

}  // namespace ddpxx
