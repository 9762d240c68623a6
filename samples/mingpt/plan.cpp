// plan.cpp — `mingpt plan`: its command line, and the memory of a rank, for every strategy and precision.
#include "plan.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include <ddpxx/comm/device.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/program_end.hpp>
#include <ddpxx/core/units.hpp>
#include <ddpxx/data/char_dataset.hpp>
#include <ddpxx/nn/gpt.hpp>
#include <ddpxx/optim/adamw.hpp>
#include <ddpxx/snapshot/snapshot_config.hpp>
#include <ddpxx/train/memory_plan.hpp>

#include "command_line.hpp"
#include "plan_config.hpp"
#include "plan_time.hpp"
#include "planned_run.hpp"
#include "run_config.hpp"

namespace {

/// Arguments behind the program's name, and their numbers on the command line.
struct Arguments {
  std::vector<const char*> words;
  std::vector<std::size_t> numbers{};
};

/// The arguments that set values of PlanConfig or ask for help on them, and all others. Both have --errors.
struct PlanArguments {
  Arguments of_plan, of_run;
  bool asks_for_help = false;  ///< `--help` without a key: help on everything.
};

/// Divides the arguments by their keys: `key=value`, `--key=value`, `--key value`, `--switch` and `--no-switch`.
PlanArguments divide(const CommandLine& line) {
  using Kind = ddpxx::KeyMeaning::Kind;
  const auto& table = ddpxx::table_of<PlanConfig>();
  PlanArguments divided{.of_plan = {{line.argv()[0]}}, .of_run = {{line.argv()[0]}}};
  const auto put = [&](Arguments& arguments, int i) {
    arguments.words.push_back(line.argv()[i]);
    arguments.numbers.push_back(line.numbers[static_cast<std::size_t>(i) - 1]);
  };
  for (int i = 1; i < line.argc(); ++i) {
    const std::string_view word{line.argv()[i]};
    const std::string_view next{i + 1 < line.argc() ? line.argv()[i + 1] : "-"};
    const bool has_value = word.find('=') != std::string_view::npos;
    std::string key{word.substr(word.starts_with("--") ? 2 : 0)};
    key.resize(std::min(key.find('='), key.size()));
    std::ranges::replace(key, '-', '_');
    const bool is_help = word == "--help" || word == "-h";
    if (is_help) key = next;
    auto meaning = table.meaning_of(key);
    if (word.starts_with("--no-")) meaning = table.meaning_of(key.substr(3));
    const bool is_of_plan = meaning.kind != Kind::unknown && (has_value || word.starts_with('-'));
    const bool is_switch = meaning.row != nullptr && meaning.row->type->is_switch;
    const bool takes_next = !has_value && !next.starts_with('-') && (is_help || !is_switch || ddpxx::read_bool(next));
    divided.asks_for_help |= is_help && !is_of_plan && (next.starts_with('-') || next.find('=') != next.npos);
    const bool is_style = word == "--errors";
    if (is_style || word.starts_with("--errors=")) put(divided.of_plan, i);
    if (is_style && takes_next) put(divided.of_plan, i + 1);
    auto& arguments = is_of_plan ? divided.of_plan : divided.of_run;
    put(arguments, i);
    if (is_of_plan && takes_next) put(arguments, ++i);
  }
  return divided;
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

/// Says what a process on a CPU needs beside the tensors that are planned.
void print_memory_beside(const RunConfig& config) {
  std::puts(
      "these are bytes of tensors. A process on a CPU has some 150 MiB of libraries beside them, and up to a tenth "
      "more for buffers of kernels and gaps in its heap");
  if (config.model.fused && config.model.dropout == 0.0)
    std::puts("planned are the plain operations of a block: model.fused=true keeps less for backward");
}

void print_run(const RunConfig& config, std::int64_t world_size, const TextSizes& text) {
  const auto sizes = config.model.sizes();
  std::printf(
      "%s in %s on %lld %s: %lld layers of width %lld with %.2fM parameters, %lld %s by %lld samples a rank\n",
      name_of(config.strategy), text_of(config.precision).c_str(), static_cast<long long>(world_size),
      world_size == 1 ? "rank" : "ranks", static_cast<long long>(sizes.n_layer), static_cast<long long>(sizes.n_embd),
      ddpxx::GPT::count_parameters(config.model, text.vocab_size, text.block_size) / 1e6,
      static_cast<long long>(text.block_size), config.data.format == DataFormat::tokens ? "tokens" : "characters",
      static_cast<long long>(config.data.batch_size));
}

}  // namespace

void plan(const CommandLine& line) {
  const auto divided = divide(line);
  const auto parse = [&]<class Config>(Config*, const Arguments& arguments) {
    ddpxx::ParseOptions options{.config_path = MINGPT_CONFIG_PATH};
    if constexpr (std::is_same_v<Config, RunConfig>) options = parse_options(line);
    options.argument_numbers = arguments.numbers;
    options.only_looks = true;
    options.program = "mingpt plan world_size=N";
    return ddpxx::parse_config<Config>(static_cast<int>(arguments.words.size()), arguments.words.data(), options);
  };
  if (divided.asks_for_help) {
    std::puts("settings of the plan, beside those of the run that is planned:\n");
    std::fflush(stdout);
    for (const char* key : {"world_size", "link", "ranks_per_core", "overlaps"}) {
      try {
        parse(static_cast<PlanConfig*>(nullptr), {{line.argv()[0], "--help", key}});
      } catch (const ddpxx::ProgramEnd&) {  // the help on the run follows
      }
    }
    std::puts("");
    std::fflush(stdout);
  }
  const auto planned = parse(static_cast<PlanConfig*>(nullptr), divided.of_plan);
  // The settings of the run are those that it has on so many ranks: see accumulation_of_a_rank().
  ::setenv("WORLD_SIZE", std::to_string(planned.world_size).c_str(), /*overwrite=*/1);
  const auto config = parse(static_cast<RunConfig*>(nullptr), divided.of_run);
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
  const bool on_cpu = ddpxx::pick_device(config.training.device, {}).is_cpu();
  const auto copy = snapshot_copy(config, planned.world_size, text);
  if (copy > 0 && on_cpu) row("snapshots", copy);
  row("a rank", plan.total() + (on_cpu ? copy : 0));
  if (copy > 0 && !on_cpu) row("on the host", copy);
  if (on_cpu) print_memory_beside(config);
}
