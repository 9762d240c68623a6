// plan.cpp — `mingpt plan`: its command line, and the memory of a rank, for every strategy and precision.
#include "plan.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <variant>

#include <ddpxx/comm/device.hpp>
#include <ddpxx/config/choose_recorded.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/units.hpp>
#include <ddpxx/data/char_dataset.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/snapshot/snapshot_config.hpp>
#include <ddpxx/train/memory_plan.hpp>
#include <ddpxx/train/micro_batches.hpp>

#include "command_line.hpp"
#include "plan_config.hpp"
#include "plan_time.hpp"
#include "planned_run.hpp"
#include "run_config.hpp"

namespace {

template <class Strategy>
ddpxx::MemoryPlan memory_of(const RunConfig& config, const typename Strategy::Config& strategy, std::int64_t world_size,
                            const TextSizes& text) {
  using Policy = ddpxx::RecomputeConfig::Policy;
  constexpr std::int64_t kProbeTokens = 2048;
  const auto recompute = config.recompute_config();
  const bool repeats = recompute.policy == Policy::every || recompute.policy == Policy::segments;
  const auto device = ddpxx::pick_device(config.training.device, {});
  const auto batches = ddpxx::micro_batches(config.data.batch_size, config.training, world_size);
  const ddpxx::PlannedRun<Strategy, NamedPrecision, ddpxx::AdamW> run{
      .world_size = world_size,
      .layers = config.model.sizes().n_layer,
      .batch_size = batches.size,
      .accumulation_steps = batches.count,
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
  plan.inputs += plan.inputs / batches.count * 2 * config.data.num_workers;
  return plan;
}

/// Bytes of the copy that a rank keeps of its part of a snapshot, from which a thread writes it during training. The
/// ranks share equally what a snapshot holds: the parameters in float32, AdamW's two moments and the average.
std::int64_t snapshot_copy(const RunConfig& config, std::int64_t world_size, const TextSizes& text) {
  const bool copies =
      !config.training.save_dir.empty() && config.snapshot.writing == ddpxx::SnapshotWriting::background;
  if (!copies) return 0;
  const auto tensors = config.training.ema_decay > 0 ? 4 : 3;
  const auto parameters = ddpxx::GPT::count_parameters(config.model, text.vocab_size, text.block_size);
  return static_cast<std::int64_t>(parameters * tensors * sizeof(float) / static_cast<double>(world_size));
}

/// Says with which batches the tensors of a rank need at most `memory` bytes, of which `copy` are for a snapshot.
void print_largest_batch(const RunConfig& config, const PlanConfig& planned, const ddpxx::MemoryPlan& plan,
                         std::int64_t copy) {
  const auto batches = ddpxx::micro_batches(config.data.batch_size, config.training, planned.world_size);
  auto largest = plan.largest_batch(planned.memory - copy, batches.size);
  if (config.training.global_batch_size > 0) largest = std::min(largest, batches.size * batches.count);
  const auto memory = ddpxx::bytes_text(static_cast<std::uint64_t>(planned.memory));
  if (largest > 0)
    std::printf("the largest data.batch_size whose tensors fit in %s is %lld\n", memory.c_str(),
                static_cast<long long>(largest));
  else
    std::printf("not one sample fits in %s: choose recompute=all, strategy=fsdp on more ranks, or smaller sizes\n",
                memory.c_str());
}

/// Says what a process on a CPU needs beside the tensors that are planned.
void print_memory_beside(const RunConfig& config) {
  std::puts(
      "these are bytes of tensors. A process on a CPU has some 150 MiB of libraries beside them, and up to a tenth "
      "more for buffers of kernels and gaps in its heap");
  if (config.model.fused && config.model.bias && config.model.dropout == 0.0 &&
      config.model.gelu_form() == ddpxx::GELUForm::tanh)
    std::puts("planned are the plain operations of a block: model.fused=true keeps less for backward");
}

void print_run(const RunConfig& config, std::int64_t world_size, const TextSizes& text) {
  const auto batches = ddpxx::micro_batches(config.data.batch_size, config.training, world_size);
  const auto sizes = config.model.sizes();
  std::printf("%s in %s on %lld %s: %lld layers of width %lld with %.2fM parameters, %lld %s by %lld samples a rank\n",
              name_of(config.strategy), text_of(config.precision).c_str(), static_cast<long long>(world_size),
              world_size == 1 ? "rank" : "ranks", static_cast<long long>(sizes.n_layer),
              static_cast<long long>(sizes.n_embd),
              ddpxx::GPT::count_parameters(config.model, text.vocab_size, text.block_size) / 1e6,
              static_cast<long long>(text.block_size),
              config.data.format == DataFormat::tokens ? "tokens" : "characters", static_cast<long long>(batches.size));
}

}  // namespace

void plan(const CommandLine& line) {
  auto options = parse_options(line);
  options.only_looks = true;
  options.program = "mingpt plan world_size=N";
  const auto planned = ddpxx::parse_config<PlanConfig>(
      line.argc(), line.argv(), options, [&](const ddpxx::GivenConfig<PlanConfig>& given) {
        // The settings of the run are those that it has on so many ranks: see accumulation_of_a_rank().
        ::setenv("WORLD_SIZE", std::to_string(given.config.world_size).c_str(), /*overwrite=*/1);
        return settings_of_snapshot(line, {given.config.run, given.paths, given.unread, given.is_run});
      });
  const auto& config = planned.run;
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
  if (line.time && planned.memory > 0)
    throw ddpxx::Error{ddpxx::Errc::config, "memory: plan --time plans no memory: leave out one of the two"};
  if (line.time) return plan_time(planned, text);
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
  const bool on_cpu = ddpxx::pick_device(config.training.device, {}).is_cpu();
  const auto copy = snapshot_copy(config, planned.world_size, text);
  if (copy > 0 && on_cpu) row("snapshots", copy);
  row("a rank", plan.total() + (on_cpu ? copy : 0));
  if (copy > 0 && !on_cpu) row("on the host", copy);
  if (planned.memory > 0) print_largest_batch(config, planned, plan, on_cpu ? copy : 0);
  if (on_cpu) print_memory_beside(config);
}
