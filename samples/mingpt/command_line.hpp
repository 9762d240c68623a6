// command_line.hpp — the part of a command line before the settings: a verb, its flags, and the snapshot whose settings
// are used.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/config/choose_recorded.hpp>
#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/command.hpp>
#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/config/parse_options.hpp>
#include <ddpxx/config/parsed_config.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/setting.hpp>
#include <ddpxx/core/sweep.hpp>
#include <ddpxx/core/utf8.hpp>
#include <ddpxx/snapshot/snapshot_choice.hpp>
#include <ddpxx/snapshot/snapshots.hpp>
#include <ddpxx/storage/open_storage.hpp>

#include "run_config.hpp"
#include "snapshot_place.hpp"

/// `mingpt [VERB] [--from PLACE[:STEP|best]] [--time] [KEY=VALUE ...]`; without a verb it trains.
struct CommandLine {
  std::string verb = "train";
  std::string from = {};               ///< The snapshot of --from, whose settings are used.
  bool time = false;                   ///< A plan tells the time of a step instead of its memory.
  std::vector<const char*> arguments;  ///< All other arguments, behind the program's name.

  std::vector<std::size_t> numbers = {};  ///< The numbers of these arguments on the command line.

  int argc() const { return static_cast<int>(arguments.size()); }
  const char* const* argv() const { return arguments.data(); }
};

/// The number of characters that `generate` makes if neither the run nor the command line sets it.
inline constexpr std::int64_t kUsualTokens = 200;

inline const std::vector<ddpxx::Command>& verbs() {
  static const std::vector<ddpxx::Command> all{
      {"train", "trains; so does no command: --from PLACE goes on with a run and its settings"},
      {"generate", "generates text with a snapshot: generate --from PLACE"},
      {"evaluate", "evaluates a snapshot: evaluate --from PLACE"},
      {"plan", "prints the bytes that a rank would need: plan world_size=8, or the time of a step: plan --time"}};
  return all;
}

inline bool is_verb(std::string_view word) {
  return std::ranges::find(verbs(), word, &ddpxx::Command::name) != verbs().end();
}

[[noreturn]] inline void refuse_late_verb(const std::string& argument) {
  throw ddpxx::Error{ddpxx::Errc::config, argument + ": is a command, which comes before all other arguments"};
}

/// Whether a verb reads a snapshot, and writes nothing.
inline bool only_reads(std::string_view verb) { return verb == "generate" || verb == "evaluate"; }

/// The first word may be a verb; --from may come before it.
/// Errors  `config` if --from names no place or is given twice, and for a second verb.
inline CommandLine read_command_line(int argc, const char* const* argv) {
  constexpr std::string_view kFrom = "--from";
  CommandLine command{.arguments = {argv[0]}};
  const auto read_place = [&](std::string_view place) {
    if (!command.from.empty())
      throw ddpxx::Error{ddpxx::Errc::config, "--from is given twice, for " + ddpxx::shown(command.from) + " and " +
                                                  ddpxx::shown(place) + ": name one snapshot"};
    if (place.empty())  // `--from=$PLACE` gives an empty place if the variable is not set
      throw ddpxx::Error{ddpxx::Errc::config, "--from needs a place: --from runs/a, runs/a:300 or runs/a:best"};
    if (ddpxx::find_malformed_utf8(place) != std::string_view::npos)  // settings are UTF-8: it would be another place
      throw ddpxx::Error{ddpxx::Errc::config, "--from " + ddpxx::shown(place) + ": is not UTF-8; rename that folder"};
    command.from = place;
  };
  bool has_verb = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word{argv[i]};
    if (command.arguments.size() == 1 && is_verb(word)) {
      if (has_verb) refuse_late_verb("argument " + std::to_string(i) + ": " + ddpxx::shown(word));
      command.verb = word;
      has_verb = true;
    } else if (word.starts_with(std::string{kFrom} + '=')) {
      read_place(word.substr(kFrom.size() + 1));
    } else if (word == kFrom) {
      read_place(++i < argc ? argv[i] : "");
    } else if (word == "--time" && command.verb == "plan") {
      command.time = true;
    } else {
      command.arguments.push_back(argv[i]);
      command.numbers.push_back(static_cast<std::size_t>(i));
    }
  }
  return command;
}

/// Makes kUsualTokens the number of `generate`, unless the run has recorded a number of its own. As files and arguments
/// override what is recorded, the rules between settings then see the number that is used.
inline void record_usual_tokens(ddpxx::Settings& recorded) {
  constexpr std::string_view kPath = "generate.tokens";
  const auto is_number_of_run = [&](const auto& setting) { return setting.path == kPath && setting.value != "0"; };
  if (std::ranges::any_of(recorded, is_number_of_run)) return;
  std::erase_if(recorded, [&](const auto& setting) { return setting.path == kPath; });
  recorded.push_back({.path = std::string{kPath}, .value = std::to_string(kUsualTokens)});
}

/// Whether two names are of one folder, or of one place in a bucket.
inline bool is_one_place(std::string_view a, std::string_view b) {
  const auto whole = [](std::string_view place) {
    while (place.size() > 1 && place.ends_with('/')) place.remove_suffix(1);
    const std::filesystem::path path{place};
    std::error_code unknown;
    const auto folder = place.find("://") == place.npos ? std::filesystem::weakly_canonical(path, unknown) : path;
    return unknown ? path : folder;
  };
  return whole(a) == whole(b);
}

/// The settings that a verb does not use.
inline std::vector<std::string> unused_settings(const std::string& verb) {
  std::vector<std::string> unused;
  if (only_reads(verb)) unused = {"training", "early_stopping", "plateau", "snapshot", "run_folder"};
  if (verb == "generate") unused.insert(unused.end(), {"data.path", "data.val_path", "optimizer"});
  return unused;
}

/// How the rest of the command line is read.
inline ddpxx::ParseOptions parse_options(const CommandLine& command) {
  ddpxx::ParseOptions options{.config_path = MINGPT_CONFIG_PATH,
                              .environment_prefix = "MINGPT_",
                              .commands = verbs(),
                              .argument_numbers = command.numbers,
                              .unused = unused_settings(command.verb)};
  if (command.verb != "train") options.program = "mingpt " + command.verb;
  return options;
}

/// The settings of the snapshot that --from names, or for a verb that only reads one, `snapshot.name`. A training
/// continues in the place of that snapshot. If --from names a step or `best`, if another training.save_dir is given, or
/// in a job of a sweep, the training is a new run that starts from the snapshot, and saves nothing unless
/// training.save_dir is given. The other verbs read the snapshot and write nothing.
///
/// Errors  `storage` if there is no such snapshot; `config` if a verb needs one and none is named.
inline ddpxx::RecordedSettings settings_of_snapshot(const CommandLine& command,
                                                    const ddpxx::GivenConfig<RunConfig>& given) {
  const bool by_setting = command.from.empty() && only_reads(command.verb);
  const auto from = by_setting ? given.config.snapshot.name : command.from;
  if (from.empty()) {
    // Before the problems of the settings are reported, among which a missing text would be.
    if (by_setting && given.is_run && !given.unread.contains("snapshot.name")) throw no_snapshot(command.verb);
    return {};
  }
  const auto choice = ddpxx::parse_snapshot_choice(from);
  const auto storage = ddpxx::open_storage(choice.place);
  const auto manifest = ddpxx::choose_snapshot(*storage, choice);
  ddpxx::RecordedSettings recorded{
      manifest.run.settings,
      storage->full_name(ddpxx::Snapshots::folder_of(manifest.run.step)) + ddpxx::Snapshots::kManifest};
  const auto drop = [&](std::string_view path) {
    std::erase_if(recorded.settings, [&](const auto& setting) { return setting.path == path; });
  };
  const auto put = [&](const char* path, const std::string& value) {
    drop(path);
    recorded.settings.push_back({.path = path, .value = ddpxx::ConfigCodec<std::string>::print(value)});
  };
  drop("init_from");
  const bool is_job = !ddpxx::environment(ddpxx::kRunFolderVariable).value_or("").empty();
  const bool saves_elsewhere =
      given.paths.contains("training.save_dir") && !is_one_place(given.config.training.save_dir, choice.place);
  if (command.verb == "train" && choice.is_newest() && !is_job && !saves_elsewhere) {
    put("training.save_dir", choice.place);
  } else {
    for (const char* written :
         {"save_dir", "save_every", "save_every_epochs", "save_every_time", "metrics", "csv", "tensorboard", "profile"})
      drop(std::string{"training."} + written);
  }
  put("snapshot.name", from);
  if (command.verb != "train") {
    drop("run_folder");
    // Without save_dir these would cause a warning that nothing is saved.
    for (const char* kept : {"keep_best", "keep_every", "keep_every_epochs", "keep_every_time"})
      drop(std::string{"snapshot."} + kept);
  }
  if (command.verb == "generate") record_usual_tokens(recorded.settings);
  return recorded;
}

/// Records `null` for a form of GELU that is set to that of the layout. Settings that mean one network are recorded
/// alike, because a run that resumes compares the texts.
inline void record_form_of_gelu(ddpxx::ParsedConfig<RunConfig>& run) {
  auto model = run.config.model;
  model.gelu.reset();
  if (model.gelu_form() != run.config.model.gelu_form()) return;
  for (auto& setting : run.record.settings)
    if (setting.path == "model.gelu") setting.value = "null";
}

/// Reads the rest of the command line; its settings override those of the snapshot.
/// Errors  those of parse_recorded() and settings_of_snapshot().
inline ddpxx::ParsedConfig<RunConfig> parse_run(const CommandLine& command) {
  auto run = ddpxx::parse_recorded<RunConfig>(
      command.argc(), command.argv(), parse_options(command),
      [&](const ddpxx::GivenConfig<RunConfig>& given) { return settings_of_snapshot(command, given); });
  record_form_of_gelu(run);
  return run;
}
