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

#include <ddpxx/config/codec.hpp>
#include <ddpxx/config/command.hpp>
#include <ddpxx/config/parse_options.hpp>
#include <ddpxx/config/text.hpp>
#include <ddpxx/config/walk.hpp>
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
  std::string from = {};  ///< The snapshot whose settings are used: of --from, or of `snapshot=` for some verbs.
  bool time = false;      ///< A plan tells the time of a step instead of its memory.
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

/// The place of the last `snapshot=PLACE` among the arguments; empty if there is none, or if it has quotes or a
/// reference, which only the settings know how to read.
inline std::string named_by_setting(const std::vector<const char*>& arguments) {
  std::string place;
  for (std::string_view word : arguments) {
    if (word.starts_with("--")) word.remove_prefix(2);
    for (const std::string_view key : {"snapshot=", "snapshot.name="})
      if (word.starts_with(key)) place = word.substr(key.size());
  }
  return place.find_first_of("\"'$\\{") == std::string::npos ? place : "";
}

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
  // These verbs need the settings of the snapshot, whichever way it is named.
  if (only_reads(command.verb) && command.from.empty()) command.from = named_by_setting(command.arguments);
  return command;
}

/// Makes kUsualTokens the number of `generate`, unless the run has recorded a number of its own. As files and arguments
/// override what is recorded, the rules between settings then see the number that is used.
inline void record_usual_tokens(ddpxx::ParseOptions& options) {
  constexpr std::string_view kPath = "generate.tokens";
  const auto is_number_of_run = [&](const auto& setting) { return setting.path == kPath && setting.value != "0"; };
  if (std::ranges::any_of(options.recorded, is_number_of_run)) return;
  std::erase_if(options.recorded, [&](const auto& setting) { return setting.path == kPath; });
  options.recorded.push_back({.path = std::string{kPath}, .value = std::to_string(kUsualTokens)});
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

/// Whether an argument sets training.save_dir to another place than `place`. The last one counts.
inline bool saves_elsewhere(const std::vector<const char*>& arguments, std::string_view place) {
  bool is_elsewhere = false;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view word{arguments[i]};
    std::string key{word.substr(word.starts_with("--") ? 2 : 0)};
    key.resize(std::min(key.find('='), key.size()));
    std::ranges::replace(key, '-', '_');
    const auto* row = ddpxx::table_of<RunConfig>().meaning_of(key).row;
    if (row == nullptr || row->path != "training.save_dir") continue;
    const auto equals = word.find('=');
    const std::string_view next{i + 1 < arguments.size() ? arguments[i + 1] : ""};
    is_elsewhere = !is_one_place(equals == word.npos ? next : word.substr(equals + 1), place);
  }
  return is_elsewhere;
}

/// The settings that a verb does not use.
inline std::vector<std::string> unused_settings(const std::string& verb) {
  std::vector<std::string> unused;
  if (only_reads(verb)) unused = {"training", "early_stopping", "snapshot", "run_folder"};
  if (verb == "generate") unused.insert(unused.end(), {"data.path", "data.val_path", "optimizer"});
  return unused;
}

/// How the rest of the command line is read: its settings override those of the snapshot that --from names. A training
/// continues in the place of that snapshot. If --from names a step or `best`, if an argument names another
/// training.save_dir, or in a job of a sweep, the training is a new run that starts from the snapshot, and saves
/// nothing unless training.save_dir is given. The other verbs read the snapshot and write nothing.
///
/// Errors  `storage` if there is no such snapshot.
inline ddpxx::ParseOptions parse_options(const CommandLine& command) {
  ddpxx::ParseOptions options{.config_path = MINGPT_CONFIG_PATH,
                              .environment_prefix = "MINGPT_",
                              .commands = verbs(),
                              .argument_numbers = command.numbers,
                              .unused = unused_settings(command.verb)};
  if (command.verb != "train") options.program = "mingpt " + command.verb;
  if (command.from.empty()) {
    // This error comes before the settings are read, because reading them would ask for a text first. If a config file
    // or an option may name a snapshot or ask for help, the check follows after reading (open_snapshot_place).
    const auto may_name_one = [](std::string_view word) {
      return word.starts_with("snapshot") || word.starts_with('-') || word.ends_with(".yaml") ||
             word.ends_with(".yml") || word.ends_with(".json") || word.ends_with(".py");
    };
    const bool needs_one =
        only_reads(command.verb) && !ddpxx::environment((options.environment_prefix + "SNAPSHOT__NAME").c_str());
    if (needs_one && std::ranges::none_of(command.arguments.begin() + 1, command.arguments.end(), may_name_one))
      throw no_snapshot(command.verb);
    if (command.verb == "generate") {
      record_usual_tokens(options);
      options.recorded_name = "the defaults of mingpt generate";
    }
    return options;
  }
  const auto choice = ddpxx::parse_snapshot_choice(command.from);
  const auto storage = ddpxx::open_storage(choice.place);
  const auto manifest = ddpxx::choose_snapshot(*storage, choice);
  options.recorded = manifest.run.settings;
  options.recorded_name =
      storage->full_name(ddpxx::Snapshots::folder_of(manifest.run.step)) + ddpxx::Snapshots::kManifest;
  const auto drop = [&](std::string_view path) {
    std::erase_if(options.recorded, [&](const auto& setting) { return setting.path == path; });
  };
  const auto put = [&](const char* path, const std::string& value) {
    drop(path);
    options.recorded.push_back({.path = path, .value = ddpxx::ConfigCodec<std::string>::print(value)});
  };
  drop("init_from");
  const bool is_job = !ddpxx::environment(ddpxx::kRunFolderVariable).value_or("").empty();
  if (command.verb == "train" && choice.is_newest() && !is_job && !saves_elsewhere(command.arguments, choice.place)) {
    put("training.save_dir", choice.place);
  } else {
    for (const char* written :
         {"save_dir", "save_every", "save_every_epochs", "save_every_time", "metrics", "csv", "tensorboard"})
      drop(std::string{"training."} + written);
  }
  put("snapshot.name", command.from);  // a config file, too, may name another training.save_dir
  if (command.verb != "train") {
    drop("run_folder");
    // Without save_dir these would cause a warning that nothing is saved.
    for (const char* kept : {"keep_best", "keep_every", "keep_every_epochs", "keep_every_time"})
      drop(std::string{"snapshot."} + kept);
  }
  if (command.verb == "generate") record_usual_tokens(options);
  return options;
}
