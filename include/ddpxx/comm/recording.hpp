// ddpxx/comm/recording.hpp — a group of any size in one process: it sends nothing, and writes down what was called.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>

#include <ddpxx/comm/group.hpp>

namespace ddpxx {

struct RecordedCall {
  std::string_view op;
  std::int64_t bytes = 0;  ///< Of the larger side: what a gather yields, what a reduce-scatter takes.
  int ranks = 1;           ///< Of the group that it was called on.
};

/// What a recording group, and the parts of it, were asked to do.
struct Recording {
  std::vector<RecordedCall> calls;

  std::int64_t count(std::string_view op) const {
    std::int64_t count = 0;
    for (const auto& call : calls) count += call.op == op ? 1 : 0;
    return count;
  }
  std::int64_t bytes(std::string_view op) const {
    std::int64_t bytes = 0;
    for (const auto& call : calls) bytes += call.op == op ? call.bytes : 0;
    return bytes;
  }
};

/// This process as rank `rank` of `size`, alone: no byte leaves it, every collective is over at once and recorded, in
/// the group and in its parts. All ranks are taken to do the same, so that a step runs, and its memory and its calls
/// are those of a real run of thousands of ranks. The numbers are those of a run whose ranks see the same batches, as
/// long as no parameters are sharded: of a shard, the others are taken to be copies.
Group recording_group(int rank, int size, const std::shared_ptr<Recording>& recording, at::Device device = at::kCPU);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/recording_inl.hpp>
#endif
