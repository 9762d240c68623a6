// ddpxx/config/check_sweep.hpp — checks the configuration of every job of a sweep before the first one starts.
#pragma once

#include <cstddef>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <ddpxx/config/parse_config.hpp>
#include <ddpxx/config/table/config_struct.hpp>
#include <ddpxx/config/table/table.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/config/walk.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/sweep.hpp>

namespace ddpxx {

/// Refuses a sweep if the configuration of one of its jobs has a problem. For a program that runs its sweep itself:
///
///     if (const auto sweep = read_sweep(argc, argv, table_of<MyConfig>())) {
///       check_sweep<MyConfig>(*sweep, options);
///       return run_sweep(*sweep, own_command(argv[0]));
///     }
///
/// Errors  `config`, naming each problem with the first job that has it.
template <ConfigStruct Config>
void check_sweep(const Sweep& sweep, const ParseOptions& options);

namespace detail {

/// The problems of one job, in the words of parse_config.
inline std::vector<std::string> problems_of_job(const ConfigTable& table, void* config, const Sweep& sweep,
                                                const SweepJob& job, const ParseOptions& options) {
  std::vector<const char*> arguments{"program"};
  for (const auto& argument : job.arguments) arguments.push_back(argument.c_str());
  const auto sweep_folder = sweep.options.folder.empty() ? std::filesystem::path{"multirun"} : sweep.options.folder;
  const auto folder = std::filesystem::absolute(sweep_folder) / std::to_string(job.number);
  std::vector<std::string> texts;
  for (const auto& problem : Parsing{table, config, arguments, options, folder}.problems())
    texts.push_back(problem_report({problem}));
  return texts;
}

}  // namespace detail

template <ConfigStruct Config>
void check_sweep(const Sweep& sweep, const ParseOptions& options) {
  constexpr std::size_t kMaxShown = 20;
  std::set<std::string> known;
  std::string text;
  for (const auto& job : sweep.jobs) {
    Config config{};
    for (const auto& problem : detail::problems_of_job(table_of<Config>(), &config, sweep, job, options))
      if (known.insert(problem).second && known.size() <= kMaxShown)
        text += (text.empty() ? "" : "\n") + ("job " + std::to_string(job.number) + ": " + problem);
  }
  if (known.size() > kMaxShown) text += "\nand " + std::to_string(known.size() - kMaxShown) + " more";
  if (!text.empty()) throw Error{Errc::config, "no job was started, since not all can run:\n" + text};
}

}  // namespace ddpxx
