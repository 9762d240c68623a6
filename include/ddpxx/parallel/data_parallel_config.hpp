// ddpxx/parallel/data_parallel_config.hpp — what a user may set about DataParallel.
#pragma once

#include <cstdint>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

struct DataParallelConfig {
  static constexpr std::int64_t kMaxReplicas = 256;

  std::int64_t replicas = 0;

  static constexpr auto describe() {
    return fields(field<&DataParallelConfig::replicas>(
        "Copies of the model, one a GPU; 0 takes all GPUs. On a CPU they lie beside each other, and 0 is one",
        at_least(0), at_most(kMaxReplicas), Resume::free));
  }
};

}  // namespace ddpxx
