// planned_run.hpp — what `mingpt plan` knows about a run that is planned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <variant>

#include <ATen/ops/zeros.h>

#include <ddpxx/data/batch.hpp>
#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/precision/low_precision.hpp>

#include "run_config.hpp"

/// The precisions by name. Their number formats are chosen at run time, so that each strategy is compiled once. The
/// loss scale of fp16 is left out: it takes a few numbers of memory, and one more pass over the gradients.
class NamedPrecision {
 public:
  struct Config {
    PrecisionName name;
  };
  explicit NamedPrecision(const Config& config) : name_{config.name} {}

  ddpxx::AutocastScope forward_scope(at::DeviceType device) const {
    auto state = ddpxx::AutocastState::of(device);
    state.enabled = name_ == PrecisionName::bf16 || name_ == PrecisionName::fp16;
    state.type = name_ == PrecisionName::fp16 ? at::kHalf : at::kBFloat16;
    return ddpxx::AutocastScope{state};
  }
  ddpxx::NumberFormats formats() const {
    return name_ == PrecisionName::bf16_params ? ddpxx::LowPrecision<>{{}}.formats() : ddpxx::NumberFormats{};
  }
  static void check(at::Device) noexcept {}

 private:
  PrecisionName name_;
};

/// The sizes of a text that determine memory and time.
struct TextSizes {
  static constexpr std::int64_t kAssumedAlphabet = 65;  ///< The alphabet of tiny Shakespeare.

  std::int64_t vocab_size = kAssumedAlphabet;
  std::int64_t block_size = 1;

  ddpxx::Batch batch(std::int64_t samples) const {
    const auto ids = at::zeros({samples, block_size}, at::kLong);
    return {ids, ids, ids.numel()};
  }
};

/// The strategy of each alternative of StrategyConfig.
using Strategies = std::tuple<ddpxx::SingleDevice, ddpxx::DataParallel, ddpxx::DDP, ddpxx::ZeRO1, ddpxx::ZeRO2,
                              ddpxx::FSDP, ddpxx::HSDP>;
static_assert(std::tuple_size_v<Strategies> == std::variant_size_v<StrategyConfig>);

/// Calls `use.template operator()<Strategy>(settings)` with the run's strategy, which also computes activations again
/// as the run does, and its settings.
template <std::size_t kIndex = 0>
auto with_strategy(const RunConfig& config, const auto& use) {
  if constexpr (kIndex + 1 < std::tuple_size_v<Strategies>)
    if (config.strategy.index() != kIndex) return with_strategy<kIndex + 1>(config, use);
  using Strategy = ddpxx::Recompute<std::tuple_element_t<kIndex, Strategies>>;
  return use.template operator()<Strategy>(
      typename Strategy::Config{std::get<kIndex>(config.strategy), config.recompute_config()});
}
