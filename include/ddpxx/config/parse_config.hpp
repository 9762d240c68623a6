// ddpxx/config/parse_config.hpp — a config from its defaults, a file and the command line, in one call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <ddpxx/config/arguments.hpp>
#include <ddpxx/config/filling.hpp>
#include <ddpxx/config/help.hpp>
#include <ddpxx/config/source.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/config/yaml.hpp>
#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/log.hpp>
#include <ddpxx/core/suggest.hpp>

namespace ddpxx {

struct ParseOptions {
  std::filesystem::path config_path = ".";  ///< Where --config-name looks, unless --config-path says otherwise.
  std::string program{};                    ///< As --help names it; by default as it was called.
};

/// Defaults, then the files of --config-name, then the other arguments. `--help` prints all keys and ends the program.
/// A launched rank other than 0 leaves notices to rank 0.
/// Errors  `config`, with every problem and its place, one after the other.
template <ConfigStruct Config>
Config parse_config(int argc, const char* const* argv, const ParseOptions& options = {});

namespace detail {

/// `FILE`, `FILE.yaml` or `FILE.yml`, the first that is there, and no folder if possible; none when none is there.
inline std::optional<std::filesystem::path> find_config(const std::filesystem::path& folder, const std::string& name) {
  std::error_code ignored;
  std::optional<std::filesystem::path> found;
  for (const char* ending : {"", ".yaml", ".yml"}) {
    const auto path = (folder / (name + ending)).lexically_normal();
    const bool is_folder = std::filesystem::is_directory(path, ignored);
    const bool is_there = std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
    if (is_there && !is_folder) return path;
    if (is_folder && !found) found = path;
  }
  return found;
}

/// ` (did you mean gpt2.yaml?)`, of what lies in the folder.
inline std::string similar_file(const std::filesystem::path& folder, const std::string& name) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator{folder, ignored})
    if (const auto ending = entry.path().extension(); ending == ".yaml" || ending == ".yml")
      names.push_back(name.ends_with(ending.string()) ? entry.path().filename().string()
                                                      : entry.path().stem().string());
  std::ranges::sort(names);
  const auto meant = nearest(name, names);
  return meant ? " (did you mean " + *meant + "?)" : "";
}

inline Said read_named_file(const std::filesystem::path& folder, const OptionValue& name, std::size_t order) {
  const auto found = find_config(folder, name.text);
  try {
    return read_yaml_file(found.value_or((folder / name.text).lexically_normal()), order);
  } catch (const Error& error) {
    const auto text = error.what() + (found ? "" : similar_file(folder, name.text));
    return {.source = name.place.source, .problems = {{name.place, "", text}}};
  }
}

inline void print_notices(const std::vector<ConfigProblem>& notices) {
  if (environment("RANK").value_or("0") != "0") return;
  for (const auto& notice : notices)
    Log{0}.info(to_text(notice.place) + ": " + (notice.place.source->is_command_line() ? "" : notice.path + ": ") +
                notice.text);
}

/// Parses into `config`, which holds its defaults.
inline void parse_into(const ConfigTable& table, void* config, std::span<const char* const> arguments,
                       const ParseOptions& options) {
  const auto line = read_arguments(arguments.subspan(arguments.empty() ? 0 : 1), table);
  if (line.help) {
    const std::filesystem::path called = arguments.empty() ? "" : arguments[0];
    std::cout << help_text(table, options.program.empty() ? called.filename().string() : options.program,
                           options.config_path.string())
              << std::flush;
    std::exit(0);
  }
  Filling filling{table, config};
  const auto folder = line.config_path ? std::filesystem::path{line.config_path->text} : options.config_path;
  for (std::size_t i = 0; i < line.config_names.size(); ++i)
    filling.apply(read_named_file(folder, line.config_names[i], i));
  filling.apply(line.said);
  filling.check();
  if (!filling.problems().empty()) throw Error{Errc::config, problem_report(filling.problems())};
  print_notices(filling.notices());
}

}  // namespace detail

template <ConfigStruct Config>
Config parse_config(int argc, const char* const* argv, const ParseOptions& options) {
  Config config{};
  detail::parse_into(table_of<Config>(), &config, {argv, static_cast<std::size_t>(argc)}, options);
  return config;
}

}  // namespace ddpxx
