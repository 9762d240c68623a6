// ddpxx/config/check_sweep_inl.hpp — the functions of check_sweep.hpp that are not templates.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <ddpxx/config/check_sweep.hpp>
#include <ddpxx/config/fill/parsing.hpp>
#include <ddpxx/config/parse_options.hpp>
#include <ddpxx/config/table.hpp>
#include <ddpxx/config/text/source.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/inline.hpp>
#include <ddpxx/core/sweep.hpp>

namespace ddpxx::detail {

DDPXX_INLINE std::vector<std::string> problems_of_job(const ConfigTable& table, void* config, const Sweep& sweep,
                                                      const SweepJob& job, const ParseOptions& options,
                                                      const RecordedChoice& recorded) {
  std::vector<const char*> arguments{"program"};
  for (const auto& argument : job.arguments) arguments.push_back(argument.c_str());
  const auto sweep_folder = sweep.options.folder.empty() ? std::filesystem::path{"multirun"} : sweep.options.folder;
  const auto folder = std::filesystem::absolute(sweep_folder) / std::to_string(job.number);
  std::vector<std::string> texts;
  auto of_job = options;
  of_job.argument_numbers.clear();  // a job has arguments of its own
  for (const auto& problem : Parsing{table, config, arguments, of_job, folder, recorded}.problems())
    texts.push_back(problem_report({problem}));
  return texts;
}

DDPXX_INLINE void refuse_failing_jobs(const Sweep& sweep,
                                      const std::function<std::vector<std::string>(const SweepJob&)>& problems_of) {
  constexpr std::size_t kMaxShown = 20;
  std::set<std::string> known;
  std::string text;
  for (const auto& job : sweep.jobs)
    for (const auto& problem : problems_of(job))
      if (known.insert(problem).second && known.size() <= kMaxShown)
        text += (text.empty() ? "" : "\n") + ("job " + std::to_string(job.number) + ": " + problem);
  if (known.size() > kMaxShown) text += "\nand " + std::to_string(known.size() - kMaxShown) + " more";
  if (!text.empty()) throw Error{Errc::config, "no job was started, since not all can run:\n" + text};
}

}  // namespace ddpxx::detail
