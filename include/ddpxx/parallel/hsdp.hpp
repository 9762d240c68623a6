// ddpxx/parallel/hsdp.hpp — hybrid sharding: FSDP inside small groups of ranks, each of which holds a copy of the
// model.
#pragma once

#include <cstdint>
#include <string>

#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/replicas.hpp>
#include <ddpxx/parallel/wraps_strategy.hpp>

namespace ddpxx {

namespace detail {

/// The two groups that a rank belongs to: the ranks of its row share one copy of the model, the ranks of its column
/// hold the same shard.
class ShardGrid {
 public:
  ShardGrid(std::int64_t shard_size, Group& group)
      : size_{checked_size(shard_size, group)},
        row_{make(group, size_, Axis::row)},
        column_{make(group, size_, Axis::column)} {}

 protected:
  enum class Axis { row, column };

  static int checked_size(std::int64_t shard_size, const Group& group) {
    if (shard_size == 0) return group.size();
    if (shard_size < 0 || shard_size > group.size() || group.size() % shard_size != 0)
      throw Error{Errc::config, "shard_size=" + std::to_string(shard_size) + " does not divide the world of " +
                                    std::to_string(group.size()) + " ranks: choose a divisor"};
    return static_cast<int>(shard_size);
  }
  static Group make(Group& group, int size, Axis axis) {
    const int row = group.rank() / size, column = group.rank() % size;
    return axis == Axis::row ? group.split({.color = row, .rank = column, .size = size})
                             : group.split({.color = column, .rank = row, .size = group.size() / size});
  }

  int size_;
  Group row_;
  Group column_;
};

}  // namespace detail

/// FSDP inside groups of `shard_size` neighbouring ranks; gradients are averaged across the groups as well. Where the
/// groups are the nodes, gathers stay inside a node.
/// Errors  `config` for a size that does not divide the world; those of FSDP.
class HSDP : private detail::ShardGrid, public WrapsStrategy<FSDP, HSDPConfig, &HSDPConfig::fsdp> {
 public:
  HSDP(const Config& config, Group& group)
      : detail::ShardGrid{config.shard_size, group}, WrapsStrategy{config, row_, &column_} {}

  /// See HoldsReplicas. The ranks of a column hold copies of one shard.
  Replicas replicas() {
    Replicas replicas{.piece = row_.rank()};
    add_slices(replicas, trainable());
    add_slices(replicas, frozen());
    return replicas;
  }
};

static_assert(ParallelStrategy<HSDP> && explain_strategy<HSDP>());

}  // namespace ddpxx
