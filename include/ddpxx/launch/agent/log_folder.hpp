// ddpxx/launch/agent/log_folder.hpp — the folder that holds the log files and error files of a run.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <ddpxx/core/environment.hpp>
#include <ddpxx/core/error.hpp>
#include <ddpxx/core/file.hpp>
#include <ddpxx/launch/output_plan.hpp>

namespace ddpxx::detail {

/// The folder `<run id>_<random>` of one agent, in the log folder that the plan names, or a temporary folder. Only this
/// user can write there. The destructor removes a temporary folder without log files; the error files in it are in the
/// report by then.
class LogFolder {
 public:
  /// Makes the folder.
  /// Errors  `storage` if it cannot be made. Without a log folder in the plan and without log files there is no folder
  ///         then, since the run needs none.
  LogFolder(const OutputPlan& plan, const std::string& run_id)
      : is_temporary_{plan.log_dir.empty()}, is_removed_{!plan.writes_logs()} {
    namespace fs = std::filesystem;
    if (plan.log_dir == "/dev/null") return;
    fs::path above = plan.log_dir;
    if (!above.empty()) {
      is_removed_ = false;
      std::error_code failure;
      above = fs::absolute(above);
      fs::create_directories(above, failure);
      if (failure) throw Error{Errc::storage, "cannot make " + above.string() + ": " + failure.message()};
    } else {
      above = environment("TMPDIR").value_or("/tmp");
    }
    std::string name = above / ((plan.log_dir.empty() ? "ddpxx_" : "") + run_id + "_XXXXXX");
    if (::mkdtemp(name.data()) != nullptr)
      path_ = name;
    else if (!is_removed_)
      throw Error{Errc::storage,
                  "cannot make a folder of log files in " + above.string() + ": " + std::strerror(errno)};
  }
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;
  ~LogFolder() {
    std::error_code ignored;
    if (is_removed_ && !path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  /// Empty if there is no folder.
  const std::filesystem::path& path() const noexcept { return path_; }

  /// True if the folder outlives the run.
  bool is_kept() const noexcept { return !is_removed_ && !path_.empty(); }

  /// Makes the folder of the ranks' start with this number, and in it one for each of the `num_ranks` local ranks;
  /// empty if there is no folder. Makes a temporary folder again that is gone: systemd-tmpfiles removes from /tmp what
  /// has not changed for days.
  /// Errors  as those of the constructor.
  std::filesystem::path make_attempt(int number, int num_ranks) const {
    if (path_.empty()) return {};
    auto folder = path_ / ("attempt_" + std::to_string(number));
    try {
      if (is_temporary_) make_again();
      make_subfolder(folder);
      for (int rank = 0; rank < num_ranks; ++rank) make_subfolder(folder / std::to_string(rank));
    } catch (const Error&) {
      if (!is_temporary_ || !is_removed_) throw;
      return {};
    }
    return folder;
  }

 private:
  /// Makes the temporary folder if it is gone.
  /// Errors  `storage` if it cannot be made, and where a file, a link or a folder of another user has its name.
  void make_again() const {
    if (::mkdir(path_.c_str(), S_IRWXU) != 0 && errno != EEXIST)
      throw Error{Errc::storage, "cannot make " + path_.string() + " again, which is gone: " + std::strerror(errno)};
    struct ::stat status {};
    if (::lstat(path_.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid())
      throw Error{Errc::storage, path_.string() + " is no longer a folder of this user: something else has its name"};
  }

  std::filesystem::path path_;
  bool is_temporary_;  // the plan names no log folder
  bool is_removed_;
};

}  // namespace ddpxx::detail
