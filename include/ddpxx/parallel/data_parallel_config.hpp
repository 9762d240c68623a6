// ddpxx/parallel/data_parallel_config.hpp — the settings of DataParallel.
#pragma once

#include <cstdint>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

struct DataParallelConfig {
  static constexpr std::int64_t kMaxReplicas = 256;

  std::int64_t replicas = 0;

  static constexpr auto describe() {
    return fields(field<&DataParallelConfig::replicas>(
        "Copies of the model, one for each GPU; 0 uses all GPUs. On a CPU all copies share the memory of the machine, "
        "and 0 means one",
        at_least(0), at_most(kMaxReplicas), Resume::free));
  }
};

}  // namespace ddpxx
