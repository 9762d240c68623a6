// plan.cpp — `mingpt plan`: its command line, and the memory of a rank, for every strategy and precision.
#include "plan.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include <ddpxx/comm/device.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/core/units.hpp>
#include <ddpxx/data/char_dataset.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/train/memory_plan.hpp>

#include "command_line.hpp"
#include "plan_config.hpp"
#include "plan_time.hpp"
#include "planned_run.hpp"
#include "run_config.hpp"

namespace {

/// True for a word of the command line that sets a value of PlanConfig.
bool belongs_to_plan(std::string_view word) {
  constexpr std::array<std::string_view, 4> kBeginnings{"world_size=", "link.", "ranks_per_core=", "overlaps="};
  return std::ranges::any_of(kBeginnings, [&](auto beginning) { return word.starts_with(beginning); });
}

template <class Strategy>
ddpxx::MemoryPlan memory_of(const RunConfig& config, const typename Strategy::Config& strategy, std::int64_t world_size,
                            const TextSizes& text) {
  using Policy = ddpxx::RecomputeConfig::Policy;
  constexpr std::int64_t kProbeTokens = 2048;
  const auto recompute = config.recompute_config();
  const bool repeats = recompute.policy == Policy::every || recompute.policy == Policy::segments;
  const auto device = ddpxx::pick_device(config.training.device, {});
  const ddpxx::PlannedRun<Strategy, NamedPrecision, ddpxx::AdamW> run{
      .world_size = world_size,
      .layers = config.model.sizes().n_layer,
      .batch_size = config.data.batch_size,
      .accumulation_steps = config.training.accumulation_steps,
      .ema_decay = config.training.ema_decay,
      .optimizer = config.optimizer,
      .precision = {config.precision},
      .strategy = strategy,
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

void print_run(const RunConfig& config, std::int64_t world_size, const TextSizes& text) {
  const auto sizes = config.model.sizes();
  std::printf(
      "%s in %s on %lld ranks: %lld layers of width %lld with %.2fM parameters, %lld %s by %lld samples a rank\n",
      name_of(config.strategy), text_of(config.precision).c_str(), static_cast<long long>(world_size),
      static_cast<long long>(sizes.n_layer), static_cast<long long>(sizes.n_embd),
      ddpxx::GPT::count_parameters(config.model, text.vocab_size, text.block_size) / 1e6,
      static_cast<long long>(text.block_size), config.data.format == DataFormat::tokens ? "tokens" : "characters",
      static_cast<long long>(config.data.batch_size));
}

}  // namespace

void plan(const CommandLine& line) {
  std::vector<const char*> of_plan{line.argv()[0]}, of_run{line.argv()[0]};
  for (int i = 1; i < line.argc(); ++i) (belongs_to_plan(line.argv()[i]) ? of_plan : of_run).push_back(line.argv()[i]);
  const auto parse = [&]<class Config>(Config*, const std::vector<const char*>& arguments) {
    ddpxx::ParseOptions options{.config_path = MINGPT_CONFIG_PATH};
    if constexpr (std::is_same_v<Config, RunConfig>) options = parse_options(line);
    options.only_looks = true;
    options.program = "mingpt plan world_size=N";
    return ddpxx::parse_config<Config>(static_cast<int>(arguments.size()), arguments.data(), options);
  };
  const auto planned = parse(static_cast<PlanConfig*>(nullptr), of_plan);
  const auto config = parse(static_cast<RunConfig*>(nullptr), of_run);
  if (const auto* hsdp = std::get_if<kHSDP>(&config.strategy); hsdp != nullptr && hsdp->shard_size == 0)
    throw ddpxx::Error{ddpxx::Errc::config,
                       "strategy.shard_size: a plan does not know how many ranks a node has; set it to that number"};
  TextSizes text{.block_size = config.data.text.block_size};
  if (config.data.format == DataFormat::tokens)
    text.vocab_size = config.data.tokens("").vocab_size;
  else if (config.data.text.path.empty())
    std::printf("no text is given: assumed is one of %lld different characters\n",
                static_cast<long long>(text.vocab_size));
  else
    text.vocab_size = ddpxx::CharDataset{config.data.text}.vocab_size();

  print_run(config, planned.world_size, text);
  if (line.time) return plan_time(config, planned, text);
  const auto plan = with_strategy(config, [&]<class Strategy>(const typename Strategy::Config& strategy) {
    return memory_of<Strategy>(config, strategy, planned.world_size, text);
  });
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
