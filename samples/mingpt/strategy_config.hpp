// strategy_config.hpp — how a run holds its parameters, as text and numbers: what the types are chosen by.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/core/describe.hpp>
#include <ddpxx/parallel/data_parallel_config.hpp>
#include <ddpxx/parallel/ddp_config.hpp>
#include <ddpxx/parallel/fsdp_config.hpp>
#include <ddpxx/parallel/recompute_config.hpp>
#include <ddpxx/parallel/zero_config.hpp>

struct StrategyConfig {
  std::string name = "ddp";
  std::int64_t first_bucket_bytes = std::int64_t{1} << 20;
  std::int64_t bucket_bytes = std::int64_t{25} << 20;
  bool find_unused_parameters = false;
  std::int64_t unit_bytes = std::int64_t{1} << 20;
  std::string reshard_after_forward = "true";
  bool reduce_each_backward = true;
  ddpxx::Offload offload = ddpxx::Offload::none;
  bool check_calls = false;
  std::int64_t shard_size = 0;
  std::int64_t replicas = 0;

  ddpxx::DataParallelConfig dp() const { return {.replicas = replicas}; }
  ddpxx::DDPConfig ddp() const {
    ddpxx::DDPConfig config;
    config.first_bucket_bytes = first_bucket_bytes;
    config.bucket_bytes = bucket_bytes;
    config.find_unused_parameters = find_unused_parameters;
    return config;
  }
  ddpxx::ZeROConfig zero() const {
    return {.first_bucket_bytes = first_bucket_bytes,
            .bucket_bytes = bucket_bytes,
            .find_unused_parameters = find_unused_parameters};
  }
  ddpxx::FSDPConfig fsdp() const {
    return {.unit_bytes = unit_bytes,
            .reshard_after_forward = reshard_after_forward,
            .reduce_each_backward = reduce_each_backward,
            .offload = offload,
            .whole_at_end = false,  // text is generated from gathered parameters, then the program ends
            .check_calls = check_calls};
  }
  ddpxx::HSDPConfig hsdp() const { return {.shard_size = shard_size, .fsdp = fsdp()}; }

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(
        field<&StrategyConfig::name>("How parameters are held over the ranks; strategy=NAME says the same",
                                     choices("single", "dp", "ddp", "zero1", "zero2", "fsdp", "hsdp"), Resume::free),
        field<&StrategyConfig::first_bucket_bytes>("ddp, zero: size of the first gradient bucket", at_least(1),
                                                   Unit::bytes, Resume::free),
        field<&StrategyConfig::bucket_bytes>("ddp, zero: size of the other gradient buckets", at_least(1), Unit::bytes,
                                             Resume::free),
        field<&StrategyConfig::find_unused_parameters>(
            "ddp, zero: average parameters that got no gradient as zeros instead of refusing them", Resume::free),
        field<&StrategyConfig::unit_bytes>("fsdp, hsdp: gather small layers together until they have so many bytes",
                                           at_least(0), Unit::bytes),
        field<&StrategyConfig::reshard_after_forward>(
            "fsdp, hsdp: free parameters between forward and backward: true, false, or a number of ranks to shard over",
            Resume::free),
        field<&StrategyConfig::reduce_each_backward>(
            "fsdp, hsdp: reduce the gradients of every batch of an accumulated step", Resume::free),
        field<&StrategyConfig::offload>("fsdp, hsdp: keep shards in the memory of the CPU, and step there",
                                        Resume::free),
        field<&StrategyConfig::check_calls>("fsdp, hsdp: compare layers with the other ranks before each gather",
                                            Resume::free),
        field<&StrategyConfig::shard_size>("hsdp: ranks that share a copy of the model; 0 takes those of a node",
                                           at_least(0), at_most(ddpxx::HSDPConfig::kMaxShardSize), Unit::ranks,
                                           Resume::free),
        field<&StrategyConfig::replicas>("dp: copies of the model; 0 takes all GPUs", at_least(0),
                                         at_most(ddpxx::DataParallelConfig::kMaxReplicas), Resume::free));
  }
  std::vector<ddpxx::FieldError> check() const {
    auto errors = fsdp().check();
    if (offload == ddpxx::Offload::cpu && name != "fsdp" && name != "hsdp")
      errors.push_back({"offload", "strategy=" + name +
                                       " holds whole parameters, which cannot be offloaded: choose "
                                       "strategy=fsdp or hsdp, or set offload=none"});
    return errors;
  }
};

/// Reads none, all, every:K, segments:K or selective; none of these is no config.
inline std::optional<ddpxx::RecomputeConfig> read_recompute(std::string_view text) {
  using Policy = ddpxx::RecomputeConfig::Policy;
  const auto colon = text.find(':');
  const auto word = text.substr(0, colon);
  std::size_t count = 1;
  if (colon != std::string_view::npos) {
    const auto* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, count);
    if (error != std::errc{} || stop != end || count < 1) return std::nullopt;
    if (word == "every") return ddpxx::RecomputeConfig{.policy = Policy::every, .count = count};
    if (word == "segments") return ddpxx::RecomputeConfig{.policy = Policy::segments, .count = count};
    return std::nullopt;
  }
  if (word == "none") return ddpxx::RecomputeConfig{.policy = Policy::none};
  if (word == "all") return ddpxx::RecomputeConfig{.policy = Policy::all};
  if (word == "selective") return ddpxx::RecomputeConfig{.policy = Policy::selective};
  return std::nullopt;
}
