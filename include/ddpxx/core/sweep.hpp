// ddpxx/core/sweep.hpp — a sweep as a value: its jobs, and what is to be done with them. The command line tells it,
// the launcher does it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ddpxx {

/// The variable that tells a job's program the folder of its job.
inline constexpr const char* kRunFolderVariable = "DDPXX_RUN_FOLDER";

/// One run of the program.
struct SweepJob {
  std::size_t number = 0;                ///< From 0.
  std::vector<std::string> arguments{};  ///< All that the program gets.
  std::vector<std::string> varied{};     ///< Those in which the jobs differ, each with its key; secrets as `***`.
  std::vector<std::string> shown{};      ///< All arguments with secrets as `***`; empty where there are none.

  /// The arguments as they may be written down.
  const std::vector<std::string>& for_the_record() const { return shown.empty() ? arguments : shown; }
};

enum class SweepAction { run, print, write_slurm_array };

struct SweepOptions {
  std::filesystem::path folder{};     ///< Empty: a new one, `multirun/<date>_<time>`.
  std::optional<int> jobs_at_once{};  ///< None: one job after the other.
  std::string metric{};               ///< What the table compares; `-name` where larger is better. Empty: the loss.
  SweepAction action = SweepAction::run;
};

struct Sweep {
  SweepOptions options;
  std::vector<SweepJob> jobs;
};

}  // namespace ddpxx
