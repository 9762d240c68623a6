// plan.cpp — `mingpt plan`, for every strategy and precision.
#include "plan.hpp"

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include <ATen/ops/zeros.h>

#include <ddpxx/comm/device.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/core/units.hpp>
#include <ddpxx/data/batch.hpp>
#include <ddpxx/data/char_dataset.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/parallel/data_parallel.hpp>
#include <ddpxx/parallel/ddp.hpp>
#include <ddpxx/parallel/fsdp.hpp>
#include <ddpxx/parallel/hsdp.hpp>
#include <ddpxx/parallel/recompute.hpp>
#include <ddpxx/parallel/single_device.hpp>
#include <ddpxx/parallel/zero.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/precision/low_precision.hpp>
#include <ddpxx/train/memory_plan.hpp>

#include "command_line.hpp"
#include "run_config.hpp"

namespace {

struct PlanConfig {
  std::int64_t world_size = 1;

  static constexpr auto describe() {
    using namespace ddpxx;
    return fields(field<&PlanConfig::world_size>("Ranks of the run", at_least(1), at_most(65536), Unit::ranks));
  }
};

/// The precisions by name. Their memory is computed at run time, so that each strategy is compiled once.
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

/// The sizes of a text that determine memory.
struct TextSizes {
  static constexpr std::int64_t kAssumedAlphabet = 65;  ///< The alphabet of tiny Shakespeare.

  std::int64_t vocab_size = kAssumedAlphabet;
  std::int64_t block_size = 1;

  ddpxx::Batch batch(std::int64_t samples) const {
    const auto ids = at::zeros({samples, block_size}, at::kLong);
    return {ids, ids, ids.numel()};
  }
};

template <class Strategy>
ddpxx::MemoryPlan plan_with(const RunConfig& config, const typename Strategy::Config& strategy, std::int64_t world_size,
                            const TextSizes& text) {
  using Policy = ddpxx::RecomputeConfig::Policy;
  constexpr std::int64_t kProbeTokens = 2048;
  const auto recompute = config.recompute_config();
  const bool repeats = recompute.policy == Policy::every || recompute.policy == Policy::segments;
  const auto device = ddpxx::pick_device(config.training.device, {});
  const ddpxx::PlannedRun<ddpxx::Recompute<Strategy>, NamedPrecision, ddpxx::AdamW> run{
      .world_size = world_size,
      .layers = config.model.sizes().n_layer,
      .batch_size = config.data.batch_size,
      .accumulation_steps = config.training.accumulation_steps,
      .ema_decay = config.training.ema_decay,
      .optimizer = config.optimizer,
      .precision = {config.precision},
      .strategy = {strategy, recompute},
      .period = repeats ? static_cast<std::int64_t>(recompute.count) : 1,
      .probe_samples = kProbeTokens / text.block_size};
  auto plan = ddpxx::plan_memory(
      run,
      [&](std::int64_t layers) {
        auto sizes = config.model;
        sizes.n_layer = layers;
        auto model = std::make_shared<ddpxx::GPT>(sizes, text.vocab_size, text.block_size);
        model->to(device);
        return model;
      },
      [&](std::int64_t samples) { return text.batch(samples); });
  // Batches that are loaded ahead.
  plan.inputs += plan.inputs / config.training.accumulation_steps * 2 * config.data.num_workers;
  return plan;
}

ddpxx::MemoryPlan plan_named(const RunConfig& config, std::int64_t world_size, const TextSizes& text) {
  const auto& strategy = config.strategy;
  switch (strategy.index()) {
    case kSingle:
      return plan_with<ddpxx::SingleDevice>(config, std::get<kSingle>(strategy), world_size, text);
    case kDP:
      return plan_with<ddpxx::DataParallel>(config, std::get<kDP>(strategy), world_size, text);
    case kDDP:
      return plan_with<ddpxx::DDP>(config, std::get<kDDP>(strategy), world_size, text);
    case kZeRO1:
      return plan_with<ddpxx::ZeRO1>(config, std::get<kZeRO1>(strategy), world_size, text);
    case kZeRO2:
      return plan_with<ddpxx::ZeRO2>(config, std::get<kZeRO2>(strategy), world_size, text);
    case kFSDP:
      return plan_with<ddpxx::FSDP>(config, std::get<kFSDP>(strategy), world_size, text);
  }
  const auto& hsdp = std::get<kHSDP>(strategy);
  if (hsdp.shard_size == 0)
    throw ddpxx::Error{ddpxx::Errc::config,
                       "strategy.shard_size: a plan does not know how many ranks a node has; set it to that number"};
  return plan_with<ddpxx::HSDP>(config, hsdp, world_size, text);
}

}  // namespace

void plan(const CommandLine& line) {
  std::vector<const char*> of_plan{line.argv()[0]}, of_run{line.argv()[0]};
  for (int i = 1; i < line.argc(); ++i)
    (std::string_view{line.argv()[i]}.starts_with("world_size=") ? of_plan : of_run).push_back(line.argv()[i]);
  const auto parse = [&]<class Config>(Config*, const std::vector<const char*>& arguments) {
    ddpxx::ParseOptions options{.config_path = MINGPT_CONFIG_PATH};
    if constexpr (std::is_same_v<Config, RunConfig>) options = parse_options(line);
    options.only_looks = true;
    options.program = "mingpt plan world_size=N";
    return ddpxx::parse_config<Config>(static_cast<int>(arguments.size()), arguments.data(), options);
  };
  const auto world_size = parse(static_cast<PlanConfig*>(nullptr), of_plan).world_size;
  const auto config = parse(static_cast<RunConfig*>(nullptr), of_run);
  TextSizes text{.block_size = config.data.text.block_size};
  const bool has_tokens = config.data.format == DataFormat::tokens;
  if (has_tokens)
    text.vocab_size = config.data.tokens("").vocab_size;
  else if (config.data.text.path.empty())
    std::printf("no text is given: assumed is one of %lld different characters\n",
                static_cast<long long>(text.vocab_size));
  else
    text.vocab_size = ddpxx::CharDataset{config.data.text}.vocab_size();
  const auto plan = plan_named(config, world_size, text);

  const auto sizes = config.model.sizes();
  std::printf(
      "%s in %s on %lld ranks: %lld layers of width %lld with %.2fM parameters, %lld %s by %lld samples a rank\n",
      name_of(config.strategy), text_of(config.precision).c_str(), static_cast<long long>(world_size),
      static_cast<long long>(sizes.n_layer), static_cast<long long>(sizes.n_embd),
      ddpxx::GPT::count_parameters(config.model, text.vocab_size, text.block_size) / 1e6,
      static_cast<long long>(text.block_size), has_tokens ? "tokens" : "characters",
      static_cast<long long>(config.data.batch_size));
  const auto row = [](const char* what, std::int64_t bytes) {
    std::printf("%-12s %15lld bytes  %s\n", what, static_cast<long long>(bytes),
                ddpxx::bytes_text(static_cast<std::uint64_t>(bytes)).c_str());
  };
  row("parameters", plan.parameters);
  row("gradients", plan.gradients);
  row("optimizer", plan.optimizer);
  row("buckets", plan.buckets);
  row("activations", plan.activations);
  row("inputs", plan.inputs);
  row("a rank", plan.total());
}
