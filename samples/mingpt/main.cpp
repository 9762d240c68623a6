// mingpt — trains a GPT on the characters or tokens of any text, with one process or many.
#include <array>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

#include <ATen/ops/full.h>

#include <ddpxx/comm/collectives.hpp>
#include <ddpxx/comm/device.hpp>
#include <ddpxx/comm/on_every_rank.hpp>
#include <ddpxx/config/check_sweep.hpp>
#include <ddpxx/config/output_place.hpp>
#include <ddpxx/config/sweep.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/standard_output.hpp>
#include <ddpxx/core/sweep.hpp>
#include <ddpxx/data/alphabet.hpp>
#include <ddpxx/data/token_dataset.hpp>
#include <ddpxx/launch/join.hpp>
#include <ddpxx/launch/program.hpp>
#include <ddpxx/launch/sweep_command.hpp>
#include <ddpxx/launch/sweep_runner.hpp>
#include <ddpxx/launch/torchrun_environment.hpp>
#include <ddpxx/precision/autocast.hpp>
#include <ddpxx/precision/low_precision.hpp>
#include <ddpxx/precision/tf32.hpp>
#include <ddpxx/snapshot/manifest.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>
#include <ddpxx/storage/open_storage.hpp>
#include <ddpxx/train/chosen_snapshot.hpp>
#include <ddpxx/train/run_folder.hpp>
#include <ddpxx/train/same_run.hpp>
#include <ddpxx/version.hpp>

#include "command_line.hpp"
#include "generate.hpp"
#include "initial_weights.hpp"
#include "plan.hpp"
#include "run_config.hpp"
#include "snapshot_place.hpp"
#include "strategies/strategies.hpp"
#include "training_text.hpp"
#include "vocabulary.hpp"

namespace {

/// The training function of each alternative of StrategyConfig.
constexpr std::array kTrain{train_single, train_dp, train_ddp, train_zero1, train_zero2, train_fsdp, train_hsdp};
static_assert(kTrain.size() == std::variant_size_v<StrategyConfig>);

/// Checks a precision that depends on the device, before this rank meets other ranks.
void check_precision(PrecisionName precision, at::Device device) {
  if (precision == PrecisionName::tf32) ddpxx::TF32::check(device);
  if (precision == PrecisionName::bf16) ddpxx::AutocastBF16::check(device);
  if (precision == PrecisionName::fp16) ddpxx::AutocastFP16::check(device);
  if (precision == PrecisionName::bf16_params) ddpxx::LowPrecision<>::check(device);
}

/// Sets HSDP's shard_size to the number of ranks of rank 0's node, unless the user has set it. Every rank takes part,
/// whatever its strategy, since the trainer tells the user only later if the ranks have different ones.
/// Ranks   Collective.
void choose_shard_size(StrategyConfig& strategy, const ddpxx::RankInfo& rank_info, ddpxx::Group& group) {
  auto size = at::full({1}, ddpxx::shard_size_for(rank_info.local_world_size.value, group.size()), at::kLong);
  size = size.to(group.device());
  ddpxx::broadcast(size, group);
  auto* hsdp = std::get_if<kHSDP>(&strategy);
  if (hsdp != nullptr && hsdp->shard_size == 0) hsdp->shard_size = size.item<std::int64_t>();
}

/// An evaluation must not change the snapshots and metrics of the run.
void write_nothing(RunConfig& config) {
  config.training.save_dir.clear();
  config.training.save_every = config.training.save_every_epochs = 0;
  config.training.save_every_time = 0;
  config.training.ema_decay = 0;  // the average, if there is one, has become the parameters
  config.training.cuda_graph = false;
  auto& training = config.training;
  for (auto* place : {&training.metrics, &training.csv, &training.tensorboard, &training.profile}) place->clear();
  config.early_stopping = {};
  config.plateau = {};
  config.run_folder.clear();
}

/// Chooses the snapshot that `name` names, for all ranks, and returns the alphabet that it records; an older snapshot
/// records none. If its tensors turn out to be damaged, only an earlier snapshot may replace it, and not one that was
/// saved meanwhile.
std::optional<ddpxx::Alphabet> choose_snapshot(Run& run, const std::string& name, const ddpxx::Group& group) {
  run.chosen = ddpxx::parse_snapshot_choice(name);
  const auto storage = ddpxx::open_storage(run.chosen.place);
  const auto found =
      ddpxx::read_chosen(*storage, run.chosen, group, [](const ddpxx::Manifest&) { return std::string{}; });
  if (run.chosen.is_newest()) run.chosen.before = found.run.step + 1;
  return ddpxx::Alphabet::find(found.run.settings);
}

/// The alphabet that a snapshot records.
std::optional<ddpxx::Alphabet> alphabet_of(const ddpxx::SnapshotChoice& choice, const ddpxx::Group& group) {
  const auto storage = ddpxx::open_storage(choice.place);
  const auto found = ddpxx::read_chosen(*storage, choice, group, [](const ddpxx::Manifest&) { return std::string{}; });
  return ddpxx::Alphabet::find(found.run.settings);
}

/// Chooses what the model begins with, and returns the alphabet of the snapshot, if it is one. Its text may have fewer
/// characters: a run that has begun with the weights of another one has the alphabet of that run.
std::optional<ddpxx::Alphabet> choose_weights(Run& run, ddpxx::Group& group) {
  if (run.only_evaluates) {
    if (run.config.snapshot.name.empty()) throw no_snapshot("evaluate");
    return choose_snapshot(run, run.config.snapshot.name, group);
  }
  const auto source = find_initial_weights(run.config, group);
  run.loads_file = source == WeightSource::file;
  if (source == WeightSource::snapshot) return choose_snapshot(run, run.config.init_from, group);
  run.resumes = source == WeightSource::own_snapshot || source == WeightSource::chosen_snapshot;
  if (source == WeightSource::own_snapshot) return alphabet_of({.place = run.config.training.save_dir}, group);
  if (source == WeightSource::chosen_snapshot)
    return alphabet_of(ddpxx::parse_snapshot_choice(run.config.snapshot.name), group);
  return std::nullopt;
}

/// The path without links, where the file exists.
std::filesystem::path whole_path(const std::filesystem::path& file) {
  std::error_code ignored;
  auto whole = std::filesystem::canonical(file, ignored);
  return whole.empty() ? file : whole;
}

/// Whether a file has the name of nanoGPT's or llm.c's file for validation: val.bin, fineweb_val_000000.bin.
bool is_for_validation(const std::filesystem::path& file) {
  const auto name = file.stem().string();
  return name == "val" || name.starts_with("val_") || name.find("_val_") != std::string::npos || name.ends_with("_val");
}

/// Errors  `config` for tokens in a bucket, for a file that path and val_path both name, unless it is the only one of
///         each, and where path names files for validation among others and val_path none. This is not a part of the
///         configuration's own check, because a snapshot is read after its data may have changed or gone.
void check_token_files(const DataConfig& config) {
  const auto& path = config.text.path;
  for (const auto& [key, place] : {std::pair{"data.path", path}, std::pair{"data.val_path", config.val_path}})
    if (place.find("://") != std::string::npos)
      throw ddpxx::Error{ddpxx::Errc::config, std::string{key} + '=' + place +
                                                  ": tokens are files of this machine: copy them first, and name "
                                                  "those files"};
  const auto files = ddpxx::find_token_files(path);
  if (config.val_path.empty()) {
    for (const auto& file : files)
      if (files.size() > 1 && is_for_validation(file))
        throw ddpxx::Error{ddpxx::Errc::config, "data.path=" + path + " names " + file +
                                                    ", which is for validation by its name: name the files to train "
                                                    "on, as by 'data/train*.bin', and set data.val_path to the others"};
    return;
  }
  std::set<std::filesystem::path> train;
  for (const auto& file : files) train.insert(whole_path(file));
  const auto validate = ddpxx::find_token_files(config.val_path);
  if (train.size() == 1 && validate.size() == 1) return;
  for (const auto& file : validate)
    if (train.contains(whole_path(file)))
      throw ddpxx::Error{ddpxx::Errc::config, "data.path=" + path + " and data.val_path=" + config.val_path +
                                                  " both name " + file +
                                                  ": name the files of each alone, as by 'data/train*.bin'"};
}

/// The weights of a snapshot belong to its own alphabet, in which another text is read as well. A run that `resumes`
/// reads a text with other characters in the text's own alphabet: the trainer then says how the text differs from that
/// of the snapshot.
Text read_text(const DataConfig& config, const std::optional<ddpxx::Alphabet>& alphabet, bool resumes) {
  if (config.format == DataFormat::tokens) check_token_files(config);
  std::optional<Vocabulary> vocabulary;
  if (alphabet) vocabulary.emplace(*alphabet);
  try {
    return std::make_shared<const TrainingText>(config, config.text, vocabulary);
  } catch (const ddpxx::Error& error) {
    if (!resumes || !alphabet || error.code() != ddpxx::Errc::data) throw;
    return read_text(config, std::nullopt, resumes);
  }
}

void check_sweep(const CommandLine& line, const ddpxx::Sweep& sweep) {
  // A verb behind -m would be the first word of each job.
  if (const auto& words = sweep.jobs.front().arguments; !words.empty() && is_verb(words.front()))
    refuse_late_verb(ddpxx::shown(words.front()));
  if (line.verb != "train" || !line.from.empty())
    throw ddpxx::Error{ddpxx::Errc::config,
                       "a sweep (-m) trains, and takes no --from: snapshot=PLACE begins each job "
                       "with a snapshot, init_from=PLACE with its weights"};
}

/// Trains, or runs the verb of the command line. Returns the exit code.
int run_command(const CommandLine& line) {
  if (const auto sweep = ddpxx::read_sweep(line.argc(), line.argv(), ddpxx::table_of<RunConfig>())) {
    check_sweep(line, *sweep);
    ddpxx::check_sweep<RunConfig>(*sweep, parse_options(line));
    return ddpxx::run_sweep(*sweep, ddpxx::own_command(line.argv()[0]));
  }
  if (line.verb == "plan") {
    plan(line);
    return 0;
  }
  Run run{parse_run(line), line.verb == "evaluate"};
  RunConfig& config = run.config;
  if (line.verb == "generate") {
    generate(config);
    return 0;
  }
  if (run.only_evaluates) write_nothing(config);
  const auto launch = ddpxx::torchrun_environment();
  const auto rank_info = launch ? launch->rank_info : ddpxx::RankInfo{};
  const auto device = ddpxx::pick_device(config.training.device, rank_info, config.comm.backend);
  check_precision(config.precision, device);
  auto group = ddpxx::join(launch, ddpxx::ConnectOptions{config.comm, device});
  const auto alphabet = choose_weights(run, group);
  const auto text =
      ddpxx::on_every_rank(group, ddpxx::Errc::data, [&] { return read_text(config.data, alphabet, run.resumes); });
  choose_shard_size(config.strategy, rank_info, group);
  const auto folder = ddpxx::make_run_folder(config.run_folder, run.record, group);
  ddpxx::name_run_folder(config, folder);
  config.training.metrics = ddpxx::metrics_file(folder, config.training.metrics, group);
  // Either all ranks or none must gather sharded parameters to generate a text.
  ddpxx::check_same_run({{"generate.tokens", std::to_string(config.generate.tokens)}}, group);
  kTrain[config.strategy.index()](run, group, text);
  group.leave();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  ddpxx::run_program("mingpt", [&] {
    if (argc > 1 && std::string_view{argv[1]} == "--version") {
      std::cout << "mingpt of " << ddpxx::version_line() << '\n';
      ddpxx::check_standard_output();
      return 0;
    }
    const auto line = read_command_line(argc, argv);
    const int code = run_command(line);
    if (line.verb != "train") ddpxx::check_standard_output();  // the output of a verb is its result
    return code;
  });
}
