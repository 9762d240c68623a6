// tests/faults/watched_run.hpp — what a test sees of a training that runs: its losses and its processes.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "../launch/started_program.hpp"

/// The losses of the steps in `folder`/metrics.jsonl; an incomplete last row does not count.
inline std::map<std::int64_t, double> losses(const std::filesystem::path& folder) {
  std::map<std::int64_t, double> losses;
  std::ifstream file{folder / "metrics.jsonl"};
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    if (row.is_object() && row.contains("loss")) losses[row["step"]] = row["loss"];
  }
  return losses;
}

inline std::int64_t last_step(const std::filesystem::path& folder) {
  const auto steps = losses(folder);
  return steps.empty() ? 0 : steps.rbegin()->first;
}

/// Waits until the training of `run` in `folder` has come to `step`; throws as `StartedProgram::wait_until` does.
inline void wait_for_step(const StartedProgram& run, const std::filesystem::path& folder, std::int64_t step) {
  run.wait_until([&] { return last_step(folder) >= step; }, "step " + std::to_string(step) + " in " + folder.string());
}

/// The ranks of a launcher: its child processes except the guardian.
inline std::vector<pid_t> ranks_of(pid_t launcher) {
  std::vector<pid_t> ranks;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc"}) {
    const auto name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto stat = StartedProgram::text_of(entry.path() / "stat");  // PID (NAME) STATE PARENT ...
    const auto end = stat.rfind(')');
    if (end == std::string::npos || end + 4 > stat.size() || stat[end + 2] == 'Z') continue;
    if (std::atoi(stat.c_str() + end + 4) != launcher || stat.find("(ddpxx-guardian)") < end) continue;
    ranks.push_back(std::stoi(name));
  }
  return ranks;
}
