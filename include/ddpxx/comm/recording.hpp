// ddpxx/comm/recording.hpp — a group of any size in one process, which sends nothing and records the collectives.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include <c10/core/Device.h>

#include <ddpxx/comm/group.hpp>

namespace ddpxx {

struct RecordedCall {
  using Time = std::chrono::steady_clock::time_point;

  std::string_view op;
  std::int64_t bytes = 0;  ///< Bytes of the larger side: the output of a gather, the input of a reduce-scatter.
  int ranks = 1;           ///< Number of ranks of the group that it was called on.
  Time begin = {};         ///< When it was called.
  Time end = {};           ///< When the call returned.
};

/// A wait for a collective's end.
struct RecordedWait {
  std::size_t call = 0;     ///< Index of the collective in `Recording::calls`.
  std::size_t started = 0;  ///< Number of collectives that had been started before.
  RecordedCall::Time time = {};
};

/// The collectives that were called on a recording group and its parts.
struct Recording {
  using Clock = std::chrono::steady_clock;

  std::vector<RecordedCall> calls;
  std::vector<RecordedWait> waits;

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

/// Returns a group in which this process is rank `rank` of `size` without other processes. It sends nothing:
/// all-reduce, all-gather, reduce-scatter, broadcast and barrier, on the group and on its parts, end at once and are
/// recorded. All ranks are assumed to hold the values of this rank, so that a step runs, and its memory and its
/// collectives are those of a real run of thousands of ranks. Without sharded parameters the computed numbers are those
/// of a run whose ranks use equal batches; with them they are wrong, because all shards are assumed to be copies of
/// this rank's.
/// Errors  all_to_all() on the group throws `config`, because the group does not support it.
Group recording_group(int rank, int size, const std::shared_ptr<Recording>& recording, at::Device device = at::kCPU);

}  // namespace ddpxx

#ifndef DDPXX_CORE
#include <ddpxx/comm/recording_inl.hpp>
#endif
