// ddpxx/parallel/fsdp_config.hpp — the settings of FSDP and HSDP.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <ddpxx/core/describe.hpp>

namespace ddpxx {

/// Where a rank keeps its shard and the optimizer's state between steps.
enum class Offload { none, cpu };

constexpr auto enum_names(Offload) { return std::array{Named{Offload::none, "none"}, Named{Offload::cpu, "cpu"}}; }

struct FSDPConfig {
  std::int64_t unit_bytes = std::int64_t{1} << 20;
  std::string reshard_after_forward = "true";
  bool reduce_each_backward = true;
  Offload offload = Offload::none;
  bool broadcast_buffers = true;
  bool whole_at_end = true;
  bool check_calls = false;

  /// How many ranks a layer is sharded over between forward and backward: kAll for all of them, 1 if it stays whole.
  /// None if the text is neither true, false nor a number of at least 1.
  static constexpr int kAll = 0;
  std::optional<int> ranks_after_forward() const {
    if (reshard_after_forward == "true") return kAll;
    if (reshard_after_forward == "false") return 1;
    int ranks = 0;
    const auto* end = reshard_after_forward.data() + reshard_after_forward.size();
    const auto [stop, error] = std::from_chars(reshard_after_forward.data(), end, ranks);
    if (error != std::errc{} || stop != end || ranks < 1) return std::nullopt;
    return ranks;
  }

  static constexpr auto describe() {
    return fields(
        field<&FSDPConfig::unit_bytes>(
            "Gather small layers together until they have this many bytes; 0 gathers each layer alone", at_least(0),
            Unit::bytes, Resume::free),
        field<&FSDPConfig::reshard_after_forward>(
            "Free a layer's parameters between forward and backward: true, false, or a number of ranks to shard over",
            Resume::free),
        field<&FSDPConfig::reduce_each_backward>(
            "Reduce the gradients of every micro-batch of a step; false reduces once a step and holds whole gradients "
            "until then"),
        field<&FSDPConfig::offload>("cpu keeps shards and optimizer state in the memory of the CPU, and steps there",
                                    Resume::free),
        field<&FSDPConfig::broadcast_buffers>("Broadcast rank 0's buffers before each step", Resume::free),
        field<&FSDPConfig::whole_at_end>(
            "Gather the whole model on every rank when training ends; false leaves it sharded, for a model that does "
            "not fit on one device",
            Resume::free),
        field<&FSDPConfig::check_calls>("Before each gather, check that all ranks gather the same layer; slow",
                                        Resume::free));
  }
  std::vector<FieldError> check() const {
    if (ranks_after_forward()) return {};
    return {{"reshard_after_forward", "\"" + reshard_after_forward + "\" is none of true, false, a number of ranks"}};
  }
};

/// The default number of ranks that share one copy of a model: the number of ranks of one node, or the next smaller one
/// that divides the world.
inline std::int64_t shard_size_for(std::int64_t ranks_of_a_node, std::int64_t world_size) {
  auto size = std::min(ranks_of_a_node, world_size);
  while (world_size % size != 0) --size;
  return size;
}

struct HSDPConfig {
  static constexpr std::int64_t kMaxShardSize = std::int64_t{1} << 20;

  std::int64_t shard_size = 0;
  FSDPConfig fsdp;

  static constexpr auto describe() {
    return fields(field<&HSDPConfig::shard_size>("Number of ranks that share one copy of the model; 0: the ranks of "
                                                 "one node in mingpt, all ranks in other programs",
                                                 at_least(0), at_most(kMaxShardSize), Unit::ranks),
                  flatten<&HSDPConfig::fsdp>());
  }
};

}  // namespace ddpxx
