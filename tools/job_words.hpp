// job_words.hpp — the words of `ddpxx slurm` and `ddpxx k8s`: settings of the job, `--`, a program and its arguments.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ddpxx/core/error.hpp>

struct JobWords {
  std::vector<const char*> settings;  ///< The command's name, and the words before `--`.
  std::vector<std::string> program;   ///< The program and its arguments.

  int num_settings() const { return static_cast<int>(settings.size()); }
  /// Errors  `config` if no program is given, or one with an empty name.
  void check(const std::string& command) const {
    if (program.empty() || program.front().empty())
      throw ddpxx::Error{ddpxx::Errc::config, command + " needs the program that the job runs: " + command +
                                                  " [KEY=VALUE ...] -- PROGRAM [ARGUMENTS]"};
  }
};

inline JobWords read_job_words(int argc, char** argv) {
  const std::span all{argv, static_cast<std::size_t>(argc)};
  const auto dashes =
      std::ranges::find(all, std::string_view{"--"}, [](const char* word) { return std::string_view{word}; });
  JobWords words{.settings = {all.begin(), dashes}, .program = {}};
  if (dashes != all.end()) words.program.assign(dashes + 1, all.end());
  return words;
}

/// Errors  `config` for a text that a line of a script or a manifest cannot hold as one word.
inline void check_word(const std::string& name, const std::string& text) {
  if (std::ranges::any_of(text,
                          [](unsigned char c) { return c <= ' ' || c == '#' || c == '"' || c == '\'' || c == 127; }))
    throw ddpxx::Error{ddpxx::Errc::config, name + " has to be one word, without blanks, quotes and #"};
}
